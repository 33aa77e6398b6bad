package servers

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// FakeGCS is an object server that answers like Google Cloud Storage. Its objects can be read over
// HTTP at URL/BUCKET/OBJECT. It supports ETags and ranges, and ignores If-Match, so only its
// answers show the version of an object.
type FakeGCS struct {
	URL string // without a trailing slash
}

// NewFakeGCS starts a FakeGCS with the contents of a directory: DIR/BUCKET/OBJECT.
func NewFakeGCS(t testing.TB, dir string) FakeGCS {
	t.Helper()
	program := Program(t, "fake-gcs-server")
	address := start(t, func(port string) *exec.Cmd {
		return exec.Command(program, "-scheme", "http", "-host", "127.0.0.1", "-port-http", port, "-port", port,
			"-public-host", "127.0.0.1:"+port, "-backend", "memory", "-data", dir, "-log-level", "warn")
	})
	return FakeGCS{"http://" + address}
}

// Put uploads an object, or a new version of it.
func (s FakeGCS) Put(t testing.TB, bucket, object string, content []byte) {
	t.Helper()
	at := s.URL + "/upload/storage/v1/b/" + bucket + "/o?uploadType=media&name=" + url.QueryEscape(object)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at, bytes.NewReader(content))
	require.NoError(t, err)
	request.Close = true
	resp, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s", text)
}
