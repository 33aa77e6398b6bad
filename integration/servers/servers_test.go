package servers

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lsiofs/lsiofs/integration/serve"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := leaked(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// leaked waits until all goroutines of the tests have ended. One look gives them less than half a
// second, and a busy machine may take longer.
func leaked() (err error) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if err = goleak.Find(); err == nil {
			return nil
		}
	}
	return err
}

// get makes one request, on its own connection.
func get(t *testing.T, url string) (status int, text string, err error) {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	request.Close = true
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func directory(t *testing.T, name, content string) string {
	dir := t.TempDir()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	return dir
}

func TestNginxServesDirectoryAndEndsWithTest(t *testing.T) {
	dir := directory(t, "a/x.tar", "content")
	var first, second string
	t.Run("two at once", func(t *testing.T) {
		first, second = Nginx(t, dir, ""), Nginx(t, dir, "location = /none { return 503; }")
		for _, url := range []string{first, second} {
			status, text, err := get(t, url+"/a/x.tar")
			require.NoError(t, err)
			require.Equal(t, 200, status)
			require.Equal(t, "content", text)
		}
		status, _, err := get(t, second+"/none")
		require.NoError(t, err)
		require.Equal(t, 503, status)
	})
	_, _, err := get(t, first+"/a/x.tar")
	require.Error(t, err)
	_, _, err = get(t, second+"/a/x.tar")
	require.Error(t, err)
}

func TestVersitygwServesBuckets(t *testing.T) {
	endpoint := Versitygw(t, directory(t, "bucket/a/x.tar", "content"))
	status, text, err := get(t, endpoint+"/bucket/a/x.tar")
	require.NoError(t, err)
	require.Equal(t, 403, status, "to its user alone")
	require.Contains(t, text, "<Code>")
}

func TestFakeGCSServesObjectsAtTheirURLs(t *testing.T) {
	serve.Tier(t, serve.Night)
	s := NewFakeGCS(t, directory(t, "bucket/a/x.tar", "content"))
	s.Put(t, "bucket", "a/y.tar", []byte("another"))
	for name, content := range map[string]string{"x": "content", "y": "another"} {
		status, text, err := get(t, s.URL+"/bucket/a/"+name+".tar")
		require.NoError(t, err)
		require.Equal(t, 200, status)
		require.Equal(t, content, text)
	}
}

func TestToxiproxyForwardsToServer(t *testing.T) {
	server := strings.TrimPrefix(Nginx(t, directory(t, "x.tar", strings.Repeat("content", 1000)), ""), "http://")
	p := NewToxiproxy(t, 1)
	url := "http://" + p.Before("nginx", server) + "/x.tar"
	_, text, err := get(t, url)
	require.NoError(t, err)
	require.Len(t, text, 7000)

	p.Add("nginx", "limit_data", 1, map[string]int{"bytes": 1000})
	_, text, err = get(t, url)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Less(t, len(text), 1000)
	p.Remove("nginx", "limit_data")
	_, text, err = get(t, url)
	require.NoError(t, err)
	require.Len(t, text, 7000)

	p.Enable("nginx", false)
	_, _, err = get(t, url)
	require.Error(t, err)
	p.Enable("nginx", true)
	_, _, err = get(t, url)
	require.NoError(t, err)
}

func TestPortBelongsOnlyToItsListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	require.True(t, listens(os.Getpid(), port))
	require.False(t, listens(os.Getppid(), port))
	require.NoError(t, l.Close())
	require.False(t, listens(os.Getpid(), port))
}

func TestMissingProgramSkipsTest(t *testing.T) {
	t.Setenv("CI", "")
	skipped := false
	t.Run("skipped", func(t *testing.T) {
		defer func() { skipped = t.Skipped() }()
		Program(t, "no-such-server")
	})
	require.True(t, skipped)
}
