package remote_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/faultserver"
)

func everything(string, bool) bool { return true }

func (w *world) list() (paths []string, err error) {
	err = w.List(w.t.Context(), everything, func(o storage.Object) error {
		paths = append(paths, o.Path)
		return nil
	})
	return paths, err
}

// A listing of several pages is complete even if pages fail, and requests no page again that has
// arrived.
func TestListingsOfManyPages(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world) {
		for i := range 3000 {
			w.server.Put(fmt.Sprintf("train/%06d.tar", i), 10)
		}
		list := faultserver.Method("LIST")
		w.server.On(list, faultserver.Status(503, "SlowDown")).After(2).Times(2)
		w.server.On(list, faultserver.Reset(1000)).After(4).Times(1)
		paths, err := w.list()
		require.NoError(t, err)
		require.Len(t, paths, 3001)
		require.Equal(t, "train/002999.tar", paths[3000])
		asked := 0
		for _, r := range w.server.Log() {
			if r.Method == "LIST" {
				asked++
			}
		}
		require.Equal(t, 4+3, asked)
		require.EqualValues(t, map[string]uint64{"throttled": 2, "failed": 1}, w.Stats().Retries)
	})
}

func TestFailingListings(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault faultserver.Fault
		words string
	}{
		{"no permission", faultserver.Status(403, "AccessDenied"), "list: the answer is 403 Forbidden (AccessDenied): the credentials may not read it"},
		{"no bucket", faultserver.Status(404, "NoSuchBucket"), "there is no such bucket or folder"},
		{"expired", faultserver.Status(400, "ExpiredToken"), "renew them"},
		{"an outage", faultserver.Status(503, ""), "it has failed for"},
		{"no answer", faultserver.Hang(), "it has failed for"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, nil, func(t *testing.T, w *world) {
				w.server.On(faultserver.Method("LIST"), c.fault)
				began := time.Now()
				_, err := w.list()
				require.ErrorContains(t, err, c.words)
				require.NotErrorIs(t, err, storage.ErrChanged)
				require.NotContains(t, err.Error(), "secret")
				require.LessOrEqual(t, time.Since(began), 6*time.Minute)
			})
		})
	}
}

// Keys that are not paths are skipped; unusual ones are not.
func TestOddKeys(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world) {
		odd := []string{"a b.tar", "a%2Fb", "ünï/数据+&=?#.bin", "c:d.tar", "quo\"te'", "-", "x/y z/w", "100%", "line\nbreak"}
		for _, key := range odd {
			w.server.Put(key, 100)
		}
		for _, key := range []string{"folder/", "/rooted", "a//b", "./c", "d/../e", "d/.", "..", ".hidden", "d/.hidden/e"} {
			w.server.Put(key, 100)
		}
		paths, err := w.list()
		require.NoError(t, err)
		require.ElementsMatch(t, append(odd, "a.tar"), paths)
		require.EqualValues(t, 7, w.Stats().PassedOver)
		var omitted []string
		for _, o := range w.Omitted() {
			omitted = append(omitted, o.Path)
		}
		require.ElementsMatch(t, []string{"folder/", "/rooted", "a//b", "./c", "d/../e", "d/.", "..", ".hidden", "d/.hidden/"}, omitted)
		for _, key := range odd {
			require.NoError(t, w.read(w.stat(key), 10, 20), key)
		}
		for _, key := range []string{"folder/", "/rooted", "a//b", "d/../a.tar", ""} {
			_, err := w.Stat(t.Context(), key)
			require.ErrorIs(t, err, fs.ErrNotExist, key)
		}
	})
}

// What a listing leaves out, and versions that are of little value, are logged, once per engine.
func TestListingReportsOddities(t *testing.T) {
	var log strings.Builder
	config := remote.DefaultConfig()
	config.Log = slog.New(slog.NewTextHandler(&log, nil))
	for _, c := range []struct {
		keys []string
		told string
	}{
		{[]string{"train/", "a/b.tar"}, ""},
		{[]string{"a//4", "a//1", "/2", "b/../3", "c.tar"}, `objects=4 first="[/2 a//1 a//4]"`},
	} {
		server := faultserver.New()
		for _, key := range c.keys {
			size := 10
			if strings.HasSuffix(key, "/") {
				size = 0
			}
			server.Put(key, int64(size))
		}
		log.Reset()
		s, err := remote.New(faultserver.Connect(t, server), config)
		require.NoError(t, err)
		for range 2 {
			require.NoError(t, s.List(t.Context(), everything, func(storage.Object) error { return nil }))
		}
		require.NoError(t, s.Close())
		require.Equal(t, c.told != "", strings.Contains(log.String(), "are left out"), log.String())
		require.Contains(t, log.String(), c.told)
		require.LessOrEqual(t, strings.Count(log.String(), "are left out"), 1)
	}
}

// timed is a source that lists files with those times, whose validators are made from them.
type timed struct {
	remote.Source
	at []time.Time
}

func (s timed) Name() string { return "https://host/x" }
func (s timed) Close() error { return nil }

func (s timed) List(_ context.Context, _ string, visit func(remote.Listed) error) ([]string, error) {
	for i, at := range s.at {
		if err := visit(remote.Listed{Path: fmt.Sprint(i), SizeBytes: 1, Validator: remote.ModifiedValidator(at), Modified: at}); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func TestFilesSharingOneTimestampAreReported(t *testing.T) {
	first, second := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2024, 1, 1, 0, 0, 1, 0, time.UTC)
	for want, at := range map[string][]time.Time{"files=3 time=2024": {first, first, first}, "-": {first, first, second}, "--": {first}} {
		var log strings.Builder
		config := remote.DefaultConfig()
		config.Log = slog.New(slog.NewTextHandler(&log, nil))
		s, err := remote.New(timed{at: at}, config)
		require.NoError(t, err)
		require.NoError(t, s.List(t.Context(), everything, func(storage.Object) error { return nil }))
		require.NoError(t, s.Close())
		require.Equal(t, len(at) == 3 && at[2] == first, strings.Contains(log.String(), "the same time"), want)
		if want[0] == 'f' {
			require.Contains(t, log.String(), want)
		}
	}
}

// A listing visits the same files as a walk of a tree would, whatever match accepts, and never asks
// about paths below a directory that was rejected.
func TestListMatchesTreeWalk(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		keys := rapid.SliceOfNDistinct(rapid.StringMatching(`[ab](/[ab]){0,3}(/f[12])`), 0, 20, rapid.ID).Draw(rt, "keys")
		refused := map[string]bool{}
		for _, dir := range rapid.SliceOf(rapid.StringMatching(`[ab](/[ab]){0,3}`)).Draw(rt, "refused") {
			refused[dir] = true
		}
		in(t, nil, func(t *testing.T, w *world) {
			w.server.Delete("a.tar")
			w.server.SetPageKeys(3)
			want := []string{}
			for _, key := range keys {
				w.server.Put(key, 1)
				entered := true
				for dir := path.Dir(key); dir != "."; dir = path.Dir(dir) {
					entered = entered && !refused[dir]
				}
				if entered && strings.HasSuffix(key, "1") {
					want = append(want, key)
				}
			}
			got := []string{}
			err := w.List(t.Context(), func(p string, isDir bool) bool {
				for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
					if refused[dir] {
						t.Errorf("asked about %s", p)
					}
				}
				if isDir {
					return !refused[p]
				}
				return strings.HasSuffix(p, "1")
			}, func(o storage.Object) error {
				got = append(got, o.Path)
				return nil
			})
			require.NoError(t, err)
			require.ElementsMatch(t, want, got)
		})
	})
}

// Objects that can't be read are reported when they are listed.
func TestRefusals(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world) {
		w.server.Put("cold/b.tar", 5<<30)
		w.server.Put("cold/c.tar", 5<<30)
		w.server.Archive("cold/b.tar")
		w.server.Archive("cold/c.tar")
		_, err := w.list()
		require.ErrorContains(t, err, "here 2 of 10 GiB together, such as cold/b.tar: restore them")
		err = w.List(t.Context(), func(p string, isDir bool) bool { return p != "cold" }, func(storage.Object) error { return nil })
		require.NoError(t, err, "what is left out may be archived")

		w.server.Bare("a.tar")
		_, err = w.list()
		require.ErrorContains(t, err, "a.tar: the service does not say which version it is of")
		require.ErrorContains(t, err, "--unversioned")
		_, err = w.Stat(t.Context(), "a.tar")
		require.ErrorContains(t, err, "--unversioned")
	})
	in(t, func(c *remote.Config) { c.Unversioned = true }, func(t *testing.T, w *world) {
		w.server.Bare("a.tar")
		a := w.stat("a.tar")
		require.Zero(t, a.Version)
		require.NoError(t, w.read(a, 5, mib))
		w.server.Put("a.tar", 5*mib)
		w.server.Bare("a.tar")
		require.ErrorIs(t, storage.ReadAt(t.Context(), w, a, make([]byte, mib), 5), storage.ErrChanged)
		require.ErrorIs(t, storage.ReadAt(t.Context(), w, a, make([]byte, 4*mib), 0), storage.ErrChanged)
	})
}

// If a server does not support HEAD, one byte is read instead.
func TestServersWithoutHead(t *testing.T) {
	for _, status := range []int{405, 501} {
		in(t, nil, func(t *testing.T, w *world) {
			w.server.Put("empty.tar", 0)
			empty := w.stat("empty.tar")
			w.server.On(faultserver.Method("HEAD"), faultserver.Status(status, ""))
			require.Equal(t, w.a, w.stat("a.tar"))
			require.Equal(t, empty, w.stat("empty.tar"))
			require.NoError(t, w.read(w.stat("a.tar"), 0, mib))
			_, err := w.Stat(t.Context(), "b.tar")
			require.ErrorIs(t, err, fs.ErrNotExist)

			w.server.On(faultserver.Method("GET"), faultserver.Status(503, "")).Times(1)
			require.Equal(t, w.a, w.stat("a.tar"))
			whole := w.server.On(faultserver.Method("GET"), faultserver.Whole())
			require.Equal(t, w.a, w.stat("a.tar"))
			whole.Off()
			w.server.On(faultserver.Method("GET"), faultserver.Together(faultserver.Whole(), faultserver.Encoded("gzip")))
			_, err = w.Stat(t.Context(), "a.tar")
			require.ErrorContains(t, err, "does not say how large it is")
		})
	}
}

// The price covers requests for objects and listings.
func TestStatsCountRequests(t *testing.T) {
	change := func(c *remote.Config) { c.GetDollars, c.ListDollars = 0.0004/1000, 0.005/1000 }
	in(t, change, func(t *testing.T, w *world) {
		_, err := w.list()
		require.NoError(t, err)
		w.server.On(faultserver.Method("GET"), faultserver.Status(500, "")).Times(1)
		w.server.On(faultserver.Method("GET"), faultserver.Delay(30*time.Millisecond))
		for range 8 {
			require.NoError(t, w.read(w.a, 0, mib))
		}
		s := w.Stats()
		require.Equal(t, map[string]uint64{"200": 2, "206": 8, "500": 1}, s.Requests)
		require.EqualValues(t, 8*mib, s.Bytes)
		require.InDelta(t, 10*0.0004/1000+0.005/1000, s.PriceDollars, 1e-12)
		require.InDelta(t, 0.03, s.FirstByte.P50, 0.001)
		require.InDelta(t, 0.03, s.FirstByte.P99, 0.001)
		require.Equal(t, 16, s.Slots)
		require.Zero(t, s.InUse)
		require.Contains(t, s.LastError, "a.tar: the answer is 500")
	})
}

// A server whose certificate is not trusted is rejected at once.
func TestUntrustedCertificates(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = discard()
	server.StartTLS()
	defer server.Close()
	source := faultserver.Connect(t, faultserver.New())
	source.Dial = func() error {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		return tls.Client(conn, &tls.Config{ServerName: "unkind.test"}).HandshakeContext(t.Context())
	}
	s := engine(t, source, nil)
	_, err := s.Stat(t.Context(), "a.tar")
	require.ErrorContains(t, err, "the name of the server that its certificate is for")
}

func discard() *log.Logger { return log.New(io.Discard, "", 0) }
