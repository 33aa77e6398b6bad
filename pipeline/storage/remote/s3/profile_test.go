package s3

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
)

// Indentation is significant, as for Amazon's command line.
func TestProfilesAreParsedByIndentation(t *testing.T) {
	all, err := parseINI("\ufeff# a comment\n  [default]\n  Region = eu-west-1 # here\n  s3 =\n    max_queue_size = 5\n\n    endpoint_url = http://s3\n  output: json\n" +
		"[ profile  \"my lab\" ]\r\ncredential_process = keys 'a # b'\r\n; another\n[default]\nmore = x\n")
	require.NoError(t, err)
	require.Equal(t, "eu-west-1", all["default"].word("region"))
	require.Equal(t, "json", all["default"]["output"])
	require.Equal(t, "x", all["default"]["more"])
	require.Equal(t, section{"max_queue_size": "5", "endpoint_url": "http://s3"}, all["default"].nested("s3"))
	require.Equal(t, "keys 'a # b'", all["profile my lab"]["credential_process"])
	for _, text := range []string{"hunter2\n", "[default]\nhunter2\n", "key = hunter2\n", "[default\n"} {
		_, err := parseINI(text)
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

// The environment has precedence, then services of the profile, then the profile.
func TestServiceIsTakenFromProfiles(t *testing.T) {
	alone(t)
	configure(t, `[profile lab]
region = eu-west-1
endpoint_url = http://profile
services = local
[services local]
dynamodb =
  endpoint_url = http://other
s3 =
  endpoint_url = http://services
sqs =
  endpoint_url = http://another
[profile bare]
endpoint_url = http://bare
[profile ignoring]
endpoint_url = http://bare
ignore_configured_endpoint_urls = true
`, "")
	named := func() string {
		p, err := readProfile()
		require.NoError(t, err)
		at, err := locate(target.Bucket{Name: "bucket"}, Options{}, p)
		require.NoError(t, err)
		return at.name("x")
	}
	require.Equal(t, "s3://bucket/x", named())
	t.Setenv("AWS_DEFAULT_PROFILE", "lab")
	require.Equal(t, "s3+http://services/bucket/x", named())
	t.Setenv("AWS_PROFILE", "bare")
	require.Equal(t, "s3+http://bare/bucket/x", named())
	t.Setenv("AWS_ENDPOINT_URL", "http://all")
	require.Equal(t, "s3+http://all/bucket/x", named())
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://s3")
	require.Equal(t, "s3+http://s3/bucket/x", named())
	t.Setenv("AWS_PROFILE", "ignoring")
	require.Equal(t, "s3://bucket/x", named())
	t.Setenv("AWS_PROFILE", "lab")
	t.Setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
	require.Equal(t, "s3://bucket/x", named())
}

// Keys in one file are not mixed with those in another.
func TestKeysOfTwoFilesAreNotMixed(t *testing.T) {
	alone(t)
	configure(t, "[default]\naws_access_key_id = A\naws_secret_access_key = a\naws_session_token = t\nca_bundle = /some/file\n", "[default]\naws_access_key_id = B\naws_secret_access_key = b\n")
	p, err := readProfile()
	require.NoError(t, err)
	v, err := (&profiled{of: p}).Retrieve()
	require.NoError(t, err)
	require.Equal(t, []string{"B", "b", ""}, []string{v.AccessKeyID, v.SecretAccessKey, v.SessionToken})
	trust, err := Trust("")
	require.NoError(t, err)
	require.Equal(t, "/some/file", trust.CAFile)
	t.Setenv("AWS_CA_BUNDLE", "/other/file")
	trust, err = Trust("")
	require.NoError(t, err)
	require.Equal(t, "/other/file", trust.CAFile)
	trust, err = Trust("/flag")
	require.NoError(t, err)
	require.Equal(t, "/flag", trust.CAFile)
}
