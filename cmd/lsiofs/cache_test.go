package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/integration/serve"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/faultserver"
)

// atServer serves the files of a dataset and returns their URL and a function that counts the
// answers with shard bytes that were requested.
func atServer(t *testing.T, dir string) (url string, bodies func() int) {
	_, url, bodies = served(t, dir)
	return url, bodies
}

// served serves a dataset over http. bodies returns the number of answers with shard bytes
// requested by clients that have ended: it waits for requests that they may have left in flight.
func served(t *testing.T, dir string) (server *faultserver.Server, url string, bodies func() int) {
	t.Helper()
	server = faultserver.New()
	paths, err := filepath.Glob(filepath.Join(dir, "[^.]*"))
	require.NoError(t, err)
	var names []string
	for _, p := range paths {
		b, err := os.ReadFile(p)
		require.NoError(t, err)
		names = append(names, filepath.Base(p))
		server.PutBytes("sets/train/"+filepath.Base(p), b)
	}
	server.PutBytes("sets/train/list.txt", []byte(strings.Join(names, "\n")))
	var open sync.Map
	h := httptest.NewUnstartedServer(server)
	h.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			open.Delete(c)
		} else {
			open.Store(c, nil)
		}
	}
	h.Start()
	t.Cleanup(h.Close)
	url = h.URL + "/sets/train/list.txt"
	return server, url, func() int {
		// Connections are accepted in order: once this one is answered, all earlier ones are known.
		alone := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		r, err := alone.Get(url)
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		require.Eventually(t, func() bool {
			none := true
			open.Range(func(any, any) bool { none = false; return false })
			return none
		}, time.Minute, time.Millisecond, "connections are left")
		return bodiesAsked(server)
	}
}

// bodiesAsked returns the number of answers with shard bytes requested so far.
func bodiesAsked(server *faultserver.Server) (n int) {
	for _, r := range server.Log() {
		if r.Method == "GET" && !strings.HasSuffix(r.Path, ".txt") {
			n++
		}
	}
	return n
}

// The life of a cache through its commands: filled, shown, read from, damaged, repaired, cleaned.
func TestCacheCommands(t *testing.T) {
	data := dataset(t)
	url, bodies := atServer(t, data)
	dir := []string{"--cache-dir", filepath.Join(t.TempDir(), "cache")}
	with := func(args ...string) []string { return append(args, dir...) }
	filled := func(args ...string) []string { return append(with(args...), "--cache-reserve", "0") } // however full the disk is
	want := ok(t, "cat", data).stdout

	r := ok(t, filled("cache", "warm", url+"?sig=secret")...)
	require.Contains(t, r.stdout, "of "+url+" in "+dir[1])
	require.NotContains(t, r.stdout+r.stderr, "secret")
	before := bodies()
	require.True(t, want == ok(t, filled("cat", url)...).stdout)
	require.Equal(t, before, bodies(), "all comes from the cache")
	require.True(t, want == ok(t, filled("cat", url, "--cache-size", "off")...).stdout)
	require.Greater(t, bodies(), before)

	folder := strings.TrimSuffix(url, "/list.txt")
	r = ok(t, with("cache", "show")...)
	require.Regexp(t, `(?m)^FOLDER +OBJECTS +CACHED +OF +ON DISK +USED +IN USE$`, r.stdout)
	require.Regexp(t, "(?m)^"+folder+` .*within the hour +no$`, r.stdout)
	var shown struct {
		URL            string `json:"url"`
		Bytes, Objects int64
		Cached         int64 `json:"cached_bytes"`
		InUse          int   `json:"in_use"`
	}
	require.NoError(t, json.Unmarshal([]byte(ok(t, with("cache", "show", "--json")...).stdout), &shown))
	require.Equal(t, folder, shown.URL)
	require.Positive(t, shown.Objects)
	require.Equal(t, shown.Bytes, shown.Cached)

	require.Contains(t, ok(t, with("cache", "verify")...).stdout, "0 pages bad, 0 objects damaged")
	files, err := filepath.Glob(filepath.Join(dir[1], "v1", "*", "*.data"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	flip(t, files[0], 100)
	r = lsiofs(t, with("cache", "verify")...)
	require.Equal(t, exit.Verify, r.code, r.stderr)
	require.Contains(t, r.stdout, "1 page of 4 KiB not as written")
	require.Contains(t, r.stderr, "--repair")
	require.Contains(t, ok(t, with("cache", "verify", "--repair")...).stdout, "dropped, and fetched again")
	require.Contains(t, ok(t, with("cache", "verify")...).stdout, "0 pages bad")
	before = bodies()
	require.True(t, want == ok(t, filled("cat", url, "--hedge", "off")...).stdout)
	require.Equal(t, before+1, bodies(), "the page alone is fetched again")

	require.Contains(t, ok(t, with("cache", "clean", "--unused", "1d")...).stdout, "removed 0 objects")
	require.Contains(t, ok(t, with("cache", "clean", folder+"/other/")...).stdout, "removed 0 objects")
	require.Contains(t, ok(t, with("cache", "clean", folder+"/")...).stdout, fmt.Sprintf("removed %d object", shown.Objects))
	r = ok(t, with("cache", "show")...)
	require.Empty(t, r.stdout)
	require.Contains(t, r.stderr, "the cache is empty")
	require.JSONEq(t, `{"removed": 0, "in_use": 0, "freed_bytes": 0}`, ok(t, with("cache", "clean", "--all", "--json")...).stdout)

	r = lsiofs(t, filled("cache", "warm", data)...)
	require.Equal(t, exit.Usage, r.code)
	require.Contains(t, r.stderr, "there is no cache to fill")
}

func flip(t *testing.T, path string, at int64) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	var b [1]byte
	_, err = f.ReadAt(b[:], at)
	require.NoError(t, err)
	b[0] ^= 1
	_, err = f.WriteAt(b[:], at)
	require.NoError(t, err)
}

func TestMissingCacheIsNotAnError(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, args := range [][]string{{"show"}, {"verify"}, {"clean", "--all"}} {
		r := ok(t, append([]string{"cache"}, args...)...)
		require.Empty(t, r.stdout)
		require.Contains(t, r.stderr, "there is no cache yet")
	}
}

// Too little room is an error for warm, which has nothing else to do, but only a warning for a
// mount.
func TestTooSmallCacheFailsWarmAndWarnsMount(t *testing.T) {
	url, _ := atServer(t, dataset(t))
	small := []string{"--cache-dir", filepath.Join(t.TempDir(), "cache"), "--cache-size", "16KiB", "--cache-reserve", "0"}
	r := lsiofs(t, append([]string{"cache", "warm", url}, small...)...)
	require.Equal(t, exit.Failure, r.code, r.stderr)
	require.Contains(t, r.stderr, "--cache-size")

	needMount(t)
	mnt := t.TempDir()
	t.Cleanup(func() { endDaemon(t, mnt) })
	r = ok(t, append([]string{"mount", url, mnt, "--daemon", "--warm"}, small...)...)
	require.Contains(t, r.stderr, "not all of the dataset is in the cache")
	require.True(t, ok(t, "cat", url, "--cache-size", "off").stdout == read(t, mnt, "worker-0.tar"))
	var status map[string]any
	require.NoError(t, json.Unmarshal([]byte(read(t, mnt, "status.json")), &status))
	require.Contains(t, fmt.Sprint(status), "bad_pages")
}

// Ctrl-C ends a fill that receives nothing, and the next fill does not suffer from it.
func TestInterruptedCacheFill(t *testing.T) {
	data := dataset(t)
	server, url, bodies := served(t, data)
	dir := []string{"--cache-dir", filepath.Join(t.TempDir(), "cache"), "--cache-reserve", "0"}
	ok(t, "index", url, "--cache-size", "off")
	indexed := bodies()
	ofShards := func(r faultserver.Request) bool { return r.Method == "GET" && !strings.HasSuffix(r.Path, ".txt") }
	hangs := server.On(ofShards, faultserver.Hang()).After(1) // one part arrives
	for more, args := range [][]string{{"cache", "warm", url}, {"mount", url, t.TempDir(), "--warm"}} {
		before := bodies()
		c := program(t, append(args, dir...)...)
		exited, err := serve.Launch(c)
		require.NoError(t, err)
		require.NoError(t, serve.Until(5*time.Minute, exited, func() bool { asked := bodiesAsked(server); return asked > before && asked >= indexed+2+more }), "a part is asked for that does not come")
		require.NoError(t, c.Process.Signal(os.Interrupt))
		<-exited
		require.EqualValues(t, exit.Interrupted, c.ProcessState.ExitCode())
	}
	hangs.Off()
	ok(t, append([]string{"cache", "warm", url}, dir...)...)
	before := bodies()
	require.True(t, ok(t, "cat", data).stdout == ok(t, append([]string{"cat", url}, dir...)...).stdout)
	require.Equal(t, before, bodies(), "all comes from the cache")
}

// The beginning of an epoch is fetched, and no more. Reading it then needs no requests.
func TestCacheWarmFetchesOnlyStartOfEpoch(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	makeAt(t, data, "tar", "--records", "2000", "--bytes", "5000", "--shards", "4")
	_, url, bodies := served(t, data)
	flags := []string{"--cache-dir", filepath.Join(t.TempDir(), "cache"), "--cache-reserve", "0", "--epoch", "3", "--chunk-bytes", "16KiB", "--shuffle-size", "32", "--lanes", "2", "--lookahead", "32KiB"}
	with := func(args ...string) []string { return append(args, flags...) }
	ok(t, "index", url, "--cache-size", "off") // nothing from the index pass is kept
	var some, all struct{ Bytes int64 }
	require.NoError(t, json.Unmarshal([]byte(ok(t, with("cache", "warm", url, "--records", "200", "--json")...).stdout), &some))
	require.Positive(t, some.Bytes)
	before := bodies()
	require.NoError(t, json.Unmarshal([]byte(ok(t, with("cache", "warm", url, "--records", "100..200", "--json")...).stdout), &all))
	require.Less(t, all.Bytes, some.Bytes)
	require.Equal(t, before, bodies(), "they are there")
	require.NoError(t, json.Unmarshal([]byte(ok(t, with("cache", "warm", url, "--json")...).stdout), &all))
	require.Less(t, some.Bytes, all.Bytes/2)

	require.NoError(t, json.Unmarshal([]byte(ok(t, with("cache", "warm", url, "--records", "1900..2001", "--json")...).stdout), &some))
	require.Less(t, some.Bytes, all.Bytes, "an epoch ends before that")

	for text, words := range map[string]string{"2000..2001": "an epoch has 2,000 records", "10..10": "neither a number of records", "0": "neither", "x": "neither", "5..": "neither"} {
		r := lsiofs(t, with("cache", "warm", url, "--records", text)...)
		require.Equal(t, exit.Usage, r.code, text)
		require.Contains(t, r.stderr, words)
	}
}

// The doctor reports the kind of a cache's directory and how much of a dataset it holds, and does
// not create it.
func TestDoctorChecksCache(t *testing.T) {
	data := dataset(t)
	url, _ := atServer(t, data)
	dir := filepath.Join(t.TempDir(), "cache")
	finding := func(args ...string) (f struct{ Check, Level, Detail, Do string }) {
		r := lsiofs(t, append([]string{"doctor", "--json", "--cache-dir", dir}, args...)...)
		for line := range strings.Lines(r.stdout) {
			require.NoError(t, json.Unmarshal([]byte(line), &f))
			if f.Check == "disk cache" {
				return f
			}
		}
		t.Fatalf("nothing is said of the cache: %s%s", r.stdout, r.stderr)
		return f
	}
	require.Contains(t, finding().Detail, "created when needed")
	require.NoDirExists(t, dir)
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.Contains(t, finding().Detail, "holds 0 B of 0 objects")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "nothing is written")

	ok(t, "cache", "warm", url, "--cache-dir", dir, "--cache-reserve", "0")
	f := finding(url)
	require.Equal(t, "ok", f.Level, f.Detail)
	require.Regexp(t, `for this dataset it holds (.*) of the (.*) it knows of`, f.Detail)
	require.NotContains(t, f.Detail, "for this dataset it holds 0 B")
	require.Contains(t, finding(strings.TrimSuffix(url, "train/list.txt")+"other/list.txt").Detail, "for this dataset it holds 0 B of the 0 B")

	require.NoError(t, os.Chmod(dir, 0o755))
	f = finding()
	require.Equal(t, "fail", f.Level)
	require.Contains(t, f.Detail, "chmod 700")
	require.Equal(t, exit.Check, lsiofs(t, "doctor", "--cache-dir", dir).code)
}
