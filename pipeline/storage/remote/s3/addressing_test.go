package s3

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// The name that a source is printed with can be used as a target again, whatever else is set: it
// includes the service.
func TestSourceNameIsAValidTarget(t *testing.T) {
	alone(t)
	for _, below := range []string{"", "/s3", "/storage/v1/s3/"} {
		n := newNode(t, stores)
		src := openAt(t, "s3://bucket/train/", Options{Endpoint: n.URL + below})
		t.Setenv("AWS_ENDPOINT_URL", "http://elsewhere.invalid")
		again := openAt(t, src.Name()+"/", Options{Endpoint: "http://elsewhere.invalid"})
		require.Equal(t, src.Name(), again.Name())
		require.Equal(t, src.where().url("a b"), again.where().url("a b"))
		a, err := again.Open(t.Context(), "x.tar", "", 0, 4)
		require.NoError(t, err)
		require.Equal(t, "0123", body(t, a))
		object, name, err := Open(t.Context(), bucket(t, src.Name()+"/x.tar"), Options{Transport: transport(t)})
		require.NoError(t, err)
		require.Equal(t, []string{src.Name(), "x.tar"}, []string{object.Name(), name})
		require.NoError(t, object.Close())
	}
}

// Requests with the bucket in the host name are signed for that host.
func TestRequestsUseBucketInHostName(t *testing.T) {
	s := serve(t, stores)
	src := s.open(t, "s3://bucket/train/", Options{Endpoint: "https://store.local:9000", Addressing: "virtual"})
	a, err := src.Open(t.Context(), "x.tar", "", 0, 4)
	require.NoError(t, err)
	require.Equal(t, "0123", body(t, a))
	require.Equal(t, []string{"GET bucket.store.local:9000/train/x.tar"}, s.requests())
	require.Contains(t, s.last().Header.Get("Authorization"), "SignedHeaders=")
	require.Equal(t, "s3+https://store.local:9000/bucket/train", src.Name(), "it is the same dataset")
}

// A service that accepts buckets only in its host name rejects other requests, and not all services
// state the reason.
func TestRefusalSuggestsAddressingStyle(t *testing.T) {
	alone(t)
	for _, code := range []string{"SecondLevelDomainForbidden", "AccessDenied"} {
		n := newNode(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(403)
			_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
		})
		for _, anonymous := range []bool{false, true} {
			src := openAt(t, "s3://bucket/", Options{Endpoint: n.URL, Anonymous: anonymous})
			s, err := remote.New(src, remote.DefaultConfig())
			require.NoError(t, err)
			_, err = s.Stat(t.Context(), "x.tar")
			require.Error(t, err)
			if code == "AccessDenied" { // an answer to HEAD has no code
				require.ErrorContains(t, err, "--addressing virtual")
			}
			a, err := src.Open(t.Context(), "x.tar", "", 0, 4)
			require.NoError(t, err)
			_, _ = io.Copy(io.Discard, a.Body)
			require.Equal(t, code, a.Code)
			require.Contains(t, a.Advice, "--addressing virtual")
		}
	}
}
