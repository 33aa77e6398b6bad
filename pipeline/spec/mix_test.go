package spec

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The settings of one bucket of a mixture apply to that bucket only, and survive a round trip
// through their text.
func TestSourceKeepsSettingsOfItsBucket(t *testing.T) {
	all := Remote{Region: "us-east-1", Addressing: AddressingAuto, Endpoint: "https://minio.lab"}
	for text, want := range map[string]Remote{
		"web=70:s3://b/p":                                              all,
		"web=0.5,anonymous:s3+https://h:9000/b/p":                      {Region: "us-east-1", Addressing: AddressingAuto, Endpoint: "https://minio.lab", Anonymous: true},
		"web=7,region=eu-west-1,addressing=path,requester-pays:s3://b": {Region: "eu-west-1", Addressing: AddressingPath, Endpoint: "https://minio.lab", RequesterPays: true},
	} {
		s, err := ParseSource(text)
		require.NoError(t, err, text)
		require.Equal(t, text, s.String())
		require.Equal(t, want, s.Bucket.Over(all), text)
	}
	for text, words := range map[string]string{
		"web=7,anonymous:/data/web":               "anonymous is for buckets",
		"web=7,endpoint=https://hunter2@h:s3://b": "s3+https://HOST/BUCKET/PREFIX",
		"web=7,profile=lab:s3://b":                `"profile=lab" can't follow the weight`,
		"web=7,addressing=host:s3://b":            "addressing=path",
		"web=7,region=:s3://b":                    "region=REGION",
		"web=,anonymous:s3://b":                   "its weight",
	} {
		_, err := ParseSource(text)
		require.ErrorContains(t, err, words, text)
		require.NotContains(t, err.Error(), "hunter2")
	}
}
