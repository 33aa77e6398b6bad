package doctor

import (
	"bytes"
	"errors"
	"fmt"
	iofs "io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/goldentest"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/s3"
	"github.com/lsiofs/lsiofs/pipeline/tune/probe"
)

// examineService returns all findings about a service.
func examineService(f probe.Facts, now time.Time, r room) []Finding {
	found := []Finding{checkRoom(r)}
	for p := probe.Credentials; p <= probe.Clock; p++ {
		if f.Bucket || p != probe.Credentials {
			found = append(found, examinePart(p, f, now)...)
		}
	}
	return found
}

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func goodService() probe.Facts {
	f := probe.Facts{
		Name: "s3://bucket/train", Host: "bucket.s3.eu-west-1.amazonaws.com", Addresses: []string{"3.5.1.1", "3.5.1.2"}, Answers: true, Bucket: true, Region: "eu-west-1",
		Identity: s3.Identity{From: "a web identity, by AWS_WEB_IDENTITY_TOKEN_FILE", Expires: noon.Add(55 * time.Minute)},
		Object:   remote.Listed{Path: "train-000.tar", SizeBytes: 1 << 30}, Skewed: true, Ranges: probe.Answered{Status: 206, Right: true},
		Version: probe.Condition{Header: "If-Match", Status: 412},
	}
	for i := range 20 {
		f.Heads = append(f.Heads, time.Duration(9+i)*time.Millisecond)
	}
	for range 3 {
		f.Gets = append(f.Gets, probe.Get{Bytes: 8 << 20, FirstByte: 26 * time.Millisecond, Whole: 120 * time.Millisecond})
	}
	return f
}

func goodRoom() room {
	return room{dir: "/cache/lsiofs/data", freeBytes: 500 << 30, place: filesystem.Place{Kind: storage.KindSSD, FileSystem: "xfs"}}
}

func TestDoctorChecksServices(t *testing.T) {
	status := func(n int) error { return fmt.Errorf("x: %w", &remote.StatusError{Status: n}) }
	type facts = probe.Facts
	for _, c := range []struct {
		name   string
		change func(*facts, *room)
		check  string
		level  level
		says   string
	}{
		{"one address", func(f *facts, _ *room) { f.Addresses = f.Addresses[:1] }, "DNS", levelOK, "1 address: 3.5.1.1"},
		{"an address for a name", func(f *facts, _ *room) { f.Host = "10.0.0.7" }, "DNS", levelOK, "is an address"},
		{"no address", func(f *facts, _ *room) { f.LookupErr, f.Answers = errors.New("no such host"), false }, "DNS", levelFail, "no such host"},
		{"no address, but a proxy", func(f *facts, _ *room) { f.LookupErr = errors.New("no such host") }, "DNS", levelOK, "a proxy"},
		{"no request at all", func(f *facts, _ *room) { f.Host = "" }, "DNS", levelWarn, "no request"},
		{"no credentials", func(f *facts, _ *room) { f.IdentityErr = s3.ErrNoCredentials }, "credentials", levelFail, "--anonymous"},
		{"a process that fails", func(f *facts, _ *room) { f.IdentityErr = errors.New("exit status 3") }, "credentials", levelFail, "fix their source"},
		{"unsigned requests", func(f *facts, _ *room) { f.Identity = s3.Identity{} }, "credentials", levelOK, "not signed"},
		{"credentials for ever", func(f *facts, _ *room) { f.Identity.Expires = time.Time{} }, "credentials", levelOK, "state no expiry"},
		{"credentials for now", func(f *facts, _ *room) { f.Identity.Expires = noon.Add(5 * time.Minute) }, "credentials", levelWarn, "expire in 5m0s"},
		{"credentials of before", func(f *facts, _ *room) { f.Identity.Expires = noon.Add(-time.Minute) }, "credentials", levelFail, "have expired"},
		{"an unknown region", func(f *facts, _ *room) { f.Region = "" }, "region", levelWarn, "--region"},
		{"no such folder", func(f *facts, _ *room) { f.ObjectErr = status(404) }, "objects", levelFail, "check the names"},
		{"an empty folder", func(f *facts, _ *room) { f.ObjectErr = fmt.Errorf("x: %w", probe.ErrNothing) }, "objects", levelFail, "check the names"},
		{"no right to list", func(f *facts, _ *room) { f.ObjectErr = status(403) }, "objects", levelFail, "s3:ListBucket"},
		{"an overloaded service", func(f *facts, _ *room) { f.ObjectErr = status(503) }, "objects", levelFail, "try again later"},
		{"another region", func(f *facts, _ *room) { f.ObjectErr = status(301) }, "objects", levelFail, "--region"},
		{"what can't be read", func(f *facts, _ *room) { f.ObjectErr = remote.Refuse("no ETag") }, "objects", levelFail, "fix this"},
		{"no network", func(f *facts, _ *room) { f.ObjectErr = errors.New("connection refused") }, "objects", levelFail, "HTTPS_PROXY"},
		{"a far service", func(f *facts, _ *room) { f.Heads = []time.Duration{time.Second} }, "latency", levelWarn, "near the service"},
		{"a HEAD that fails", func(f *facts, _ *room) { f.HeadErr = status(500) }, "latency", levelWarn, "then one failed: x"},
		{"the first HEAD fails", func(f *facts, _ *room) { f.Heads, f.HeadErr = nil, status(500) }, "latency", levelWarn, "x: the answer is 500"},
		{"a slow link", func(f *facts, _ *room) { f.Gets = []probe.Get{{Bytes: 8 << 20, Whole: 4 * time.Second}} }, "transfer", levelWarn, "lsiofs tune URL"},
		{"a small object says nothing of the link", func(f *facts, _ *room) { f.Gets = []probe.Get{{Bytes: 1000, Whole: 30 * time.Millisecond}} }, "transfer", levelOK, "GETs of 1000 B"},
		{"a GET that fails", func(f *facts, _ *room) { f.GetErr = status(200) }, "transfer", levelFail, "ranges"},
		{"whole objects for parts", func(f *facts, _ *room) { f.Ranges = probe.Answered{Status: 200} }, "ranges", levelFail, "max_ranges"},
		{"another part", func(f *facts, _ *room) { f.Ranges = probe.Answered{Status: 206} }, "ranges", levelFail, "something else"},
		{"no answer to a range", func(f *facts, _ *room) { f.Ranges = probe.Answered{Err: status(502)} }, "ranges", levelFail, "502"},
		{"If-Match is ignored", func(f *facts, _ *room) { f.Version.Status = 206 }, "versions", levelWarn, "the service ignores If-Match (status 206"},
		{"versions by date", func(f *facts, _ *room) { f.Version.Header = "If-Unmodified-Since" }, "versions", levelOK, "within a second"},
		{"no versions", func(f *facts, _ *room) { f.Version = probe.Condition{} }, "versions", levelWarn, "overwritten"},
		{"a condition that fails", func(f *facts, _ *room) { f.Version.Err = status(500) }, "versions", levelFail, "500"},
		{"an undated service", func(f *facts, _ *room) { f.Skewed = false }, "clock", levelOK, "does not report its time"},
		{"a clock some seconds off", func(f *facts, _ *room) { f.Skew = 7 * time.Second }, "clock", levelOK, "7s behind the service's"},
		{"a clock minutes off", func(f *facts, _ *room) { f.Skew = -2 * time.Minute }, "clock", levelWarn, "2m0s ahead of the service's"},
		{"a clock an hour off", func(f *facts, _ *room) { f.Skew = time.Hour }, "clock", levelFail, "refuses signatures"},
		{"a web server has no signatures", func(f *facts, _ *room) { f.Skew, f.Bucket = time.Hour, false }, "clock", levelWarn, "timedatectl"},
		{"the reserve", func(_ *facts, r *room) { r.freeBytes, r.reserveBytes = 18<<30+1<<28, 20<<30 }, "disk cache", levelWarn, "the file system has 18 GiB free, and the cache leaves 20 GiB free: free some, or set --cache-reserve"},
		{"no room", func(_ *facts, r *room) { r.freeBytes = 1 << 30 }, "disk cache", levelWarn, "free space"},
		{"a cache on a network", func(_ *facts, r *room) { r.place.Kind = storage.KindNetwork }, "disk cache", levelWarn, "local disk"},
		{"a cache in memory", func(_ *facts, r *room) { r.place.Kind = storage.KindMemory }, "disk cache", levelWarn, "this directory is in memory"},
		{"no cache directory", func(_ *facts, r *room) { r.err = iofs.ErrPermission }, "disk cache", levelWarn, "XDG_CACHE_HOME"},
		{"a cache that is not yet", func(_ *facts, r *room) {}, "disk cache", levelOK, "it is created when needed"},
		{"a cache with something in it", func(_ *facts, r *room) {
			r.exists, r.dataset = true, "s3://bucket/train"
			r.kept = kept{objects: 3, inUse: 1, hereBytes: 2 << 30, sizeBytes: 3 << 30}
			r.of = kept{objects: 1, hereBytes: 1 << 30, sizeBytes: 1 << 30}
		}, "disk cache", levelOK, "holds 2.0 GiB of 3 objects, 1 in use by mounts; for this dataset it holds 1.0 GiB of the 1.0 GiB"},
		{"a damaged cache", func(_ *facts, r *room) { r.exists, r.kept.damaged = true, 2 }, "disk cache", levelWarn, "cache verify --repair"},
		{"somebody's directory", func(_ *facts, r *room) { r.refused = errors.New("it belongs to user 7") }, "disk cache", levelWarn, "user 7"},
		{"somebody's directory, asked for", func(_ *facts, r *room) { r.refused, r.asked = errors.New("it belongs to user 7"), true }, "disk cache", levelFail, "--cache-dir"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, r := goodService(), goodRoom()
			c.change(&f, &r)
			for _, found := range examineService(f, noon, r) {
				if found.Check == c.check {
					require.Equal(t, c.level, found.Level, "%+v", found)
					require.Contains(t, found.Detail+" "+found.Do, c.says)
					require.Equal(t, c.level != levelOK, found.Do != "", "what is wrong says what to do")
					return
				}
			}
			t.Fatalf("no finding about %s", c.check)
		})
	}
}

func TestDoctorReportOfHealthyService(t *testing.T) {
	var out, err bytes.Buffer
	f := goodService()
	f.Skew = 90 * time.Second
	require.NoError(t, reportFindings(examineService(f, noon, goodRoom()), terminal.New(&out, &err)))
	goldentest.Equal(t, "service.txt", out.String())
	f.Bucket = false
	for _, found := range examineService(f, noon, goodRoom()) {
		require.NotContains(t, []string{"credentials", "region"}, found.Check, "a web server has neither")
	}
}

// A server is examined and no secret in its name is shown, even if requests fail.
func TestDoctorChecksServerWithoutShowingSecrets(t *testing.T) {
	const secret = "zqxjplanted"
	broken := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "x", noon, bytes.NewReader(make([]byte, 100_000)))
	}))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	name := server.URL + "/000.tar?sig=" + secret
	look := func() (string, error) {
		var out, errs bytes.Buffer
		err := RunService(t.Context(), name, "", probe.Options{}, terminal.New(&out, &errs))
		require.NotContains(t, out.String()+errs.String()+fmt.Sprint(err), secret)
		return out.String(), err
	}
	out, err := look()
	require.NoError(t, err, out)
	require.Contains(t, out, "If-Match is honoured")
	require.NotContains(t, out, "fail")

	broken = true
	out, err = look()
	require.Equal(t, exit.Check, exit.CodeOf(err))
	require.Contains(t, out, "403 Forbidden")

	server.Close()
	out, err = look()
	require.Equal(t, exit.Check, exit.CodeOf(err))
	require.Contains(t, out, "refused")

	err = RunService(t.Context(), "gs://bucket/"+secret, "", probe.Options{}, terminal.New(&bytes.Buffer{}, &bytes.Buffer{}))
	require.Equal(t, exit.Dataset, exit.CodeOf(err))
}

func TestObjectsThatMayBelongToDataset(t *testing.T) {
	for _, c := range []struct {
		dataset, url string
		is           bool
	}{
		{"s3://b/train/", "s3://b/train/x/0.tar", true}, {"s3://b/train", "s3://b/train2/0.tar", false},
		{"s3://b/train/x-{000..146}.tar", "s3://b/train/x-003.tar", true}, {"s3://b/train/x-{000..146}.tar", "s3://b/train/y-003.tar", false},
		{"https://h/sets/list.txt?sig=s", "https://h/sets/0.tar", true}, {"https://h/sets/list.txt", "https://h/others/0.tar", false},
		{"https://h/a.tar", "https://h/a.tar", true}, {"https://h/a.tar", "https://h/a.tar.gz", false},
	} {
		require.Equal(t, c.is, objectsOf(c.dataset)(c.url), "%+v", c)
	}
}

// seen is a buffer that can be read while it is written to.
type seen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *seen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *seen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// Findings are printed as soon as they are made: a server that does not answer delays only the
// checks that need its answers.
func TestDoctorPrintsEachCheckImmediately(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var out seen
	asked, held := make(chan struct{}, 100), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		<-held
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	done := make(chan error, 1)
	go func() {
		done <- RunService(t.Context(), server.URL+"/000.tar", "", probe.Options{}, terminal.New(&out, &out))
	}()
	<-asked
	require.Contains(t, out.String(), "disk cache")
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "waiting for 127.0.0.1") }, time.Minute, 10*time.Millisecond)
	require.Contains(t, out.String(), "no answer for 3s (27s left)")
	close(held)
	require.Equal(t, exit.Check, exit.CodeOf(<-done))
	require.Contains(t, out.String(), "403 Forbidden")
}
