package top

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/style"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/fs"
)

func TestPageListensOnLoopbackByDefault(t *testing.T) {
	for s, want := range map[string]string{
		"9464": "127.0.0.1:9464", ":9464": "127.0.0.1:9464", "0": "127.0.0.1:0", "127.0.0.1:80": "127.0.0.1:80",
		"0.0.0.0:9464": "0.0.0.0:9464", "[::1]:9464": "[::1]:9464", "node7:9464": "node7:9464",
	} {
		got, err := listenAddress(s)
		require.NoError(t, err, s)
		require.Equal(t, want, got)
	}
	for _, s := range []string{"", "localhost", "127.0.0.1", "127.0.0.1:", ":http", "1:2:3", ":65536", ":-1"} {
		_, err := listenAddress(s)
		require.Equal(t, exit.Usage, exit.CodeOf(err), "%q: %v", s, err)
	}
}

// serving starts a board with short intervals, which answers until the test ends.
func serving(t *testing.T, points ...string) (url string) {
	b := newBoard(points)
	b.every, b.patience = time.Millisecond, 50*time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() { b.run(ctx) })
	running.Go(func() { assert.NoError(t, serve(ctx, l, "127.0.0.1:0", b.answer)) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return "http://" + l.Addr().String() + "/"
}

func TestTopPrintsAddressAndListensUntilInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Points: []string{pointWith(t, 1)}, Listen: "0"}, &terminal.UI{Out: in, Err: io.Discard, JSON: true})
	}()
	var said struct{ URL string }
	require.NoError(t, json.NewDecoder(out).Decode(&said))
	require.Regexp(t, `^http://127\.0\.0\.1:\d+/$`, said.URL)
	code, body, _ := answer(t, said.URL)
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, boardHTML, body)

	taken := strings.TrimSuffix(strings.TrimPrefix(said.URL, "http://"), "/")
	err := Run(t.Context(), Options{Listen: taken}, &terminal.UI{Out: io.Discard, Err: io.Discard})
	require.ErrorIs(t, err, unix.EADDRINUSE)
	require.ErrorContains(t, err, "can't listen on "+taken)
	require.ErrorContains(t, err, "choose another port, or 0 for any free port")

	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// answer requests a URL. headers alternate between names and values.
func answer(t *testing.T, url string, headers ...string) (status int, body string, header http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	a, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	return a.StatusCode, string(text), a.Header
}

func stateOf(t *testing.T, url, after string) (s boardState) {
	t.Helper()
	code, body, _ := answer(t, url+"board.json?after="+after)
	require.Equal(t, http.StatusOK, code)
	require.NoError(t, json.Unmarshal([]byte(body), &s))
	return s
}

func TestPageHasTopOutputOfEachMount(t *testing.T) {
	a, b := pointWith(t, 1), pointWith(t, 2)
	require.NoError(t, os.WriteFile(filepath.Join(a, "metrics"), []byte("# HELP x y\n# TYPE x gauge\nx 1\n"), 0o600))
	url := serving(t, a, b)
	var s boardState
	require.Eventually(t, func() bool {
		s = stateOf(t, url, "0")
		return len(s.Mounts) == 2 && len(s.Mounts[0].Samples) > 0 && len(s.Mounts[1].Samples) > 0
	}, time.Minute, 10*time.Millisecond)
	for _, m := range s.Mounts {
		require.Empty(t, m.Message)
		f := frame{point: m.Point, now: savedStatus(t, map[string]int{a: 1, b: 2}[m.Point])}
		require.Equal(t, f.line().Verdict, m.Line.Verdict)
		require.Len(t, m.Line.Streams, len(f.streams()))
		require.Contains(t, m.Facts, fact{"records", f.counted()})
		require.Len(t, m.Samples[0].Waited, len(f.now.Explain.Second.Stages))
	}
	newest := s.Mounts[0].Samples[len(s.Mounts[0].Samples)-1].Milliseconds
	for _, x := range stateOf(t, url, strconv.FormatInt(newest, 10)).Mounts[0].Samples {
		require.Greater(t, x.Milliseconds, newest)
	}
	code, text, header := answer(t, url+"metrics")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, metricsFormat, header.Get("Content-Type"))
	require.Contains(t, text, `lsiofs_up{mount="`+a+`"} 1`)
	require.Contains(t, text, `lsiofs_up{mount="`+b+`"} 0`)
	require.Contains(t, text, `x{mount="`+a+`"} 1`)

	// A mount that is gone keeps its last state, and comes back when it exists again.
	kept, err := os.ReadFile(filepath.Join(a, "status.json"))
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(a, "status.json")))
	ofA := func() mountView {
		for _, m := range stateOf(t, url, "0").Mounts {
			if m.Point == a {
				return m
			}
		}
		return mountView{}
	}
	require.Eventually(t, func() bool { return strings.Contains(ofA().Message, "was unmounted") }, time.Minute, 10*time.Millisecond)
	require.NotNil(t, ofA().Line)
	require.NoError(t, os.WriteFile(filepath.Join(a, "status.json"), kept, 0o600))
	require.Eventually(t, func() bool { return ofA().Message == "" }, time.Minute, 10*time.Millisecond)
}

// A pipe without a writer acts as a mount that does not answer.
func TestHangingMountDelaysNoOther(t *testing.T) {
	hangs, well := t.TempDir(), pointWith(t, 1)
	for _, name := range []string{"status.json", "metrics"} {
		require.NoError(t, unix.Mkfifo(filepath.Join(hangs, name), 0o600))
	}
	t.Cleanup(func() { // end whatever waits for a writer
		for _, name := range []string{"status.json", "metrics"} {
			if f, err := os.OpenFile(filepath.Join(hangs, name), os.O_RDWR|unix.O_NONBLOCK, 0); err == nil {
				f.Close()
			}
		}
	})
	require.NoError(t, os.WriteFile(filepath.Join(well, "metrics"), []byte("# HELP x y\n# TYPE x gauge\nx 1\n"), 0o600))
	url := serving(t, hangs, well)
	_, text, _ := answer(t, url+"metrics")
	require.Contains(t, text, `lsiofs_up{mount="`+hangs+`"} 0`)
	require.Contains(t, text, `x{mount="`+well+`"} 1`)
	require.Eventually(t, func() bool {
		for _, m := range stateOf(t, url, "0").Mounts {
			if m.Point == hangs {
				return strings.Contains(m.Message, "has not answered for")
			}
		}
		return false
	}, time.Minute, 10*time.Millisecond)
}

func TestNoOtherOriginMayReadThePage(t *testing.T) {
	url := serving(t, pointWith(t, 1))
	for _, path := range []string{"", "board.json", "metrics", "board.js", "board.css"} {
		code, body, header := answer(t, url+path)
		require.Equal(t, http.StatusOK, code, path)
		require.NotEmpty(t, body)
		require.Equal(t, "same-origin", header.Get("Cross-Origin-Resource-Policy"))
		require.Contains(t, header.Get("Content-Security-Policy"), "frame-ancestors 'none'")
		require.Empty(t, header.Get("Access-Control-Allow-Origin"))
		for _, refused := range [][]string{
			{"Host", "evil.example"}, {"Host", "evil.example:9464"}, {"Host", "127.0.0.1.evil.example"},
			{"Origin", "http://evil.example"}, {"Origin", "null"}, {"Origin", "http://127.0.0.1:1"},
			{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
			{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "script"},
			{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"},
		} {
			code, body, _ := answer(t, url+path, refused...)
			require.Equal(t, http.StatusForbidden, code, "%s with %v", path, refused)
			require.NotContains(t, body, "worker-0")
		}
		for _, allowed := range [][]string{
			{"Host", "localhost:9464"}, {"Host", "LOCALHOST"}, {"Host", "[::1]:9464"}, {"Host", "10.1.2.3:9464"},
			{"Sec-Fetch-Site", "same-origin"}, {"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate"},
			{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"},
		} {
			code, _, _ := answer(t, url+path, allowed...)
			require.Equal(t, http.StatusOK, code, "%s with %v", path, allowed)
		}
	}
	a, err := http.Post(url, "text/plain", strings.NewReader("x"))
	require.NoError(t, err)
	a.Body.Close()
	require.Equal(t, http.StatusMethodNotAllowed, a.StatusCode)
	code, _, _ := answer(t, url+"status.json")
	require.Equal(t, http.StatusNotFound, code)
	head, err := http.Head(url + "board.css")
	require.NoError(t, err)
	head.Body.Close()
	require.EqualValues(t, len(style.CSS+boardCSS), head.ContentLength)
}

func TestClientsThatSayNothingHoldUpNobodyForLong(t *testing.T) {
	url := serving(t, pointWith(t, 1))
	address := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/")
	for _, said := range []string{"", "GET", "nonsense\r\n\r\n", "GET / HTTP/1.1\r\n" + strings.Repeat("X: y\r\n", requestBytes)} {
		client, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer client.Close()
		_, _ = io.WriteString(client, said) // the server may hang up before the end
	}
	for range clientsMost {
		code, _, _ := answer(t, url)
		require.Equal(t, http.StatusOK, code)
	}
}

func TestOnlyTopmostMountsOfUserAreListed(t *testing.T) {
	entry := func(id int, point, kind string, user int) fs.MountEntry {
		return fs.MountEntry{ID: id, Point: point, Type: kind, User: user}
	}
	mounts := []fs.MountEntry{
		entry(1, "/", "ext4", -1), entry(2, "/mnt/a", fs.FileSystemType, 7), entry(3, "/mnt/b", fs.FileSystemType, 8),
		entry(4, "/mnt/c", fs.FileSystemType, 7), entry(5, "/mnt/c", "tmpfs", -1), entry(6, "/mnt/a", fs.FileSystemType, 7), entry(7, "/mnt/d", "fuse.other", 7),
	}
	require.Equal(t, []string{"/mnt/a"}, mountsOf(mounts, 7))
	require.Equal(t, []string{"/mnt/b"}, mountsOf(mounts, 8))
	require.Empty(t, mountsOf(mounts, 9))
}
