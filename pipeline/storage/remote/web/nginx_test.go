package web

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/servers"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// text is compressible, for servers that compress.
var text = bytes.Repeat([]byte("the same line again\n"), 5000)

// nginx serves text as x.txt and under two unusual names.
func nginx(t *testing.T, settings string) (url, dir string) {
	dir = t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	for _, name := range []string{"x.txt", "a b+c%20#?&ü.tar", "sub/y.tar"} {
		write(t, dir, name, text, written)
	}
	return servers.Nginx(t, dir, settings), dir
}

func write(t *testing.T, dir, name string, content []byte, modified time.Time) {
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, content, 0o644))
	require.NoError(t, os.Chtimes(path, modified, modified))
}

// folder returns a source for the server's root.
func folder(t *testing.T, url string) *Source { return open(t, url+"/any.tar") }

func read(t *testing.T, s *Source, path string, v remote.Validator, off, n int64) (remote.Answer, []byte) {
	a, err := s.Open(t.Context(), path, v, off, n)
	require.NoError(t, err)
	b, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	require.NoError(t, a.Body.Close())
	return a, b
}

// Including servers that compress for other clients.
func TestNginxServesRangesOfVersion(t *testing.T) {
	for _, settings := range []string{"", "gzip on; gzip_types *; gzip_min_length 1;", "etag off;", `etag off; add_header ETag 'W/"1"' always;`} {
		url, dir := nginx(t, settings)
		s := folder(t, url)
		for _, path := range []string{"x.txt", "a b+c%20#?&ü.tar", "sub/y.tar"} {
			l, err := s.Head(t.Context(), path)
			require.NoError(t, err)
			require.Equal(t, int64(len(text)), l.SizeBytes)
			require.Equal(t, written, l.Modified)
			_, dated := l.Validator.Modified()
			require.Equal(t, strings.Contains(settings, "etag"), dated, "%s: %s", settings, l.Validator)

			a, b := read(t, s, path, l.Validator, 7, 5000)
			require.Equal(t, string(text[7:5007]), string(b))
			require.Equal(t, [5]int64{206, 7, 5007, int64(len(text)), 5000}, [5]int64{int64(a.Status), a.Begin, a.End, a.Total, a.LengthBytes})
			require.Equal(t, l.Validator, a.Validator)
			require.Empty(t, a.Encoding)
			a, b = read(t, s, path, l.Validator, 0, -1)
			require.Equal(t, 200, a.Status)
			require.Equal(t, len(text), len(b))
			a, _ = read(t, s, path, l.Validator, int64(len(text)), 1)
			require.Equal(t, [2]int64{416, int64(len(text))}, [2]int64{int64(a.Status), a.Total})

			write(t, dir, path, text, written.Add(2*time.Second))
			a, _ = read(t, s, path, l.Validator, 7, 5000)
			require.Equal(t, 412, a.Status, "another version is not mixed in")
			write(t, dir, path, text, written.Add(time.Second))
			a, _ = read(t, s, path, l.Validator, 7, 5000)
			require.True(t, a.Status == 412 || a.Validator != l.Validator, "a second later shows too: %+v", a)
		}
		_, err := s.Head(t.Context(), "none.tar")
		require.ErrorIs(t, err, fs.ErrNotExist)
		a, _ := read(t, s, "none.tar", "", 0, 1)
		require.Equal(t, 404, a.Status)
	}
}

func TestNginxWithoutRangesServesWholeFile(t *testing.T) {
	url, _ := nginx(t, "max_ranges 0;")
	s := folder(t, url)
	l, err := s.Head(t.Context(), "x.txt")
	require.NoError(t, err)
	a, b := read(t, s, "x.txt", l.Validator, 7, 5000)
	require.Equal(t, []any{200, int64(-1), int64(-1), int64(-1), int64(len(text)), len(text)}, []any{a.Status, a.Begin, a.End, a.Total, a.LengthBytes, len(b)})
}

func TestNginxRefusingHEADIsAskedForOneByte(t *testing.T) {
	url, dir := nginx(t, "if ($request_method = HEAD) { return 405; }")
	write(t, dir, "empty.tar", nil, written)
	s := folder(t, url)
	for path, size := range map[string]int{"x.txt": len(text), "empty.tar": 0} {
		l, err := s.Head(t.Context(), path)
		require.NoError(t, err)
		require.Equal(t, int64(size), l.SizeBytes, path)
		require.NotEmpty(t, l.Validator)
	}
}

func TestBusyOrRedirectingNginx(t *testing.T) {
	url, _ := nginx(t, `location = /busy { add_header Retry-After 7 always; return 503; }
		location /old/ { rewrite ^/old/(.*)$ /$1 redirect; } location = /loop { return 302 /loop; }
		location = /encoded { add_header Content-Encoding gzip; try_files /x.txt =404; }`)
	s := folder(t, url)
	a, _ := read(t, s, "busy", "", 0, 1)
	require.Equal(t, []any{503, 7 * time.Second}, []any{a.Status, a.RetryAfter})
	_, b := read(t, s, "old/x.txt", "", 4, 4)
	require.Equal(t, "same", string(b))
	_, err := s.Open(t.Context(), "loop", "", 0, 1)
	require.ErrorContains(t, err, "more than 10 times")
	l, err := s.Head(t.Context(), "encoded")
	require.NoError(t, err, "it may be stored so")
	a, _ = read(t, s, "encoded", l.Validator, 0, 1)
	require.Equal(t, []any{"gzip", int64(len(text))}, []any{a.Encoding, a.Total})
}

// They break during the request or in the body, and the next one works.
func TestBrokenConnectionsAreErrors(t *testing.T) {
	url, _ := nginx(t, "")
	proxy := servers.NewToxiproxy(t, 1)
	s := folder(t, "http://"+proxy.Before("nginx", strings.TrimPrefix(url, "http://")))
	l, err := s.Head(t.Context(), "x.txt")
	require.NoError(t, err)
	for toxic, attributes := range map[string]map[string]int{"limit_data": {"bytes": 4000}, "reset_peer": {"timeout": 0}} {
		proxy.Add("nginx", toxic, 1, attributes)
		a, err := s.Open(t.Context(), "x.txt", l.Validator, 0, 50_000)
		if err == nil {
			_, err = io.ReadAll(a.Body)
			_ = a.Body.Close()
		}
		require.Error(t, err, toxic)
		proxy.Remove("nginx", toxic)
	}
	require.Eventually(t, func() bool {
		a, err := s.Open(t.Context(), "x.txt", l.Validator, 0, 50_000)
		if err != nil {
			return false // a connection that was cut while idle
		}
		b, err := io.ReadAll(a.Body)
		_ = a.Body.Close()
		return err == nil && bytes.Equal(b, text[:50_000])
	}, time.Minute, time.Millisecond)
	proxy.Enable("nginx", false)
	_, err = s.Open(t.Context(), "x.txt", l.Validator, 0, 50_000)
	require.Error(t, err)
}
