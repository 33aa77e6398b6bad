package remote_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/unkind"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// world is an engine and its server, with one object: a.tar, of 4 MiB.
type world struct {
	t      *testing.T
	server *unkind.Server
	source *unkind.Source
	*remote.Storage
	a storage.Object
}

// in runs a test with a fake clock, which advances when all goroutines wait: time costs nothing,
// and durations can be checked.
func in(t *testing.T, change func(*remote.Config), test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, server: unkind.New()}
		w.server.Put("a.tar", 4*mib)
		w.source = unkind.Connect(t, w.server)
		w.Storage = engine(t, w.source, change)
		w.a = w.stat("a.tar")
		test(t, w)
		require.NoError(t, w.Close())
		require.NotContains(t, w.Stats().LastError, "secret")
	})
}

func (w *world) stat(path string) storage.Object {
	o, err := w.Stat(w.t.Context(), path)
	require.NoError(w.t, err)
	return o
}

// read reads a range, and checks the bytes if there is no error.
func (w *world) read(o storage.Object, off, n int64) error {
	want := w.server.Bytes(o.Path, off, n)
	p := make([]byte, n)
	if err := storage.ReadAt(w.t.Context(), w, o, p, off); err != nil {
		require.NotContains(w.t, err.Error(), "secret")
		require.Contains(w.t, err.Error(), o.Path)
		return err
	}
	require.True(w.t, bytes.Equal(want, p), "[%d, %d) of %s", off, off+n, o.Path)
	return nil
}

// reads returns the data ranges that the server was asked for, in KiB, as "begin+length".
func (w *world) reads() (ranges []string) {
	for _, r := range w.server.Log() {
		switch {
		case r.Method == "GET" && r.Begin < 0:
			ranges = append(ranges, "all")
		case r.Method == "GET":
			ranges = append(ranges, fmt.Sprintf("%d+%d", r.Begin/kib, (r.End-r.Begin)/kib))
		}
	}
	return ranges
}

// Temporary faults show only in statistics.
func TestFaultsThatPass(t *testing.T) {
	first := func(f unkind.Fault) func(*world) {
		return func(w *world) { w.server.On(unkind.Path("a.tar"), f).Times(1) }
	}
	twice := func(f unkind.Fault) func(*world) {
		return func(w *world) { w.server.On(unkind.Path("a.tar"), f).Times(2) }
	}
	always := func(f unkind.Fault) func(*world) {
		return func(w *world) { w.server.On(unkind.Path("a.tar"), f) }
	}
	for _, c := range []struct {
		name    string
		prepare func(*world)
		retries map[string]uint64
		asked   []string // to read the MiB from 1 MiB on, in KiB
		within  time.Duration
	}{
		{"nothing", func(*world) {}, nil, []string{"1024+1024"}, time.Second},
		{"a first byte after 9 s", first(unkind.Delay(9 * time.Second)), nil, []string{"1024+1024"}, 10 * time.Second},
		{"a first byte after 30 s", first(unkind.Delay(30 * time.Second)), map[string]uint64{"failed": 1}, []string{"1024+1024", "1024+1024"}, 11 * time.Second},
		{"a request that is lost", first(unkind.Hang()), map[string]uint64{"failed": 1}, []string{"1024+1024", "1024+1024"}, 11 * time.Second},
		{"a stall after the header", first(unkind.Stall(0)), map[string]uint64{"failed": 1}, []string{"1024+1024", "1024+1024"}, 11 * time.Second},
		{"a stall after 1 KiB", first(unkind.Stall(kib)), map[string]uint64{"failed": 1}, []string{"1024+1024", "1024+1024"}, 11 * time.Second},
		{"a stall after 64 KiB", first(unkind.Stall(64 * kib)), map[string]uint64{"failed": 1}, []string{"1024+1024", "1088+960"}, 13 * time.Second},
		{"1 KiB a second", first(unkind.Drip(time.Second)), map[string]uint64{"failed": 1}, []string{"1024+1024", "1024+1024"}, 12 * time.Second},
		{"5 KiB a second is slow and good", always(unkind.Drip(time.Second / 5)), nil, []string{"1024+1024"}, 206 * time.Second},
		// net/http itself repeats a request if a kept-alive connection is closed.
		{"a reset before the header", twice(unkind.Reset(-1)), map[string]uint64{"failed": 1}, []string{"1024+1024", "1024+1024", "1024+1024"}, time.Second},
		{"a reset after the header", first(unkind.Reset(0)), map[string]uint64{"failed": 1}, []string{"1024+1024", "1024+1024"}, time.Second},
		{"a reset in the body", first(unkind.Reset(512 * kib)), map[string]uint64{"failed": 1}, []string{"1024+1024", "1536+512"}, time.Second},
		{"two resets in the body", twice(unkind.Reset(256 * kib)), map[string]uint64{"failed": 2}, []string{"1024+1024", "1280+768", "1536+512"}, time.Second},
		{"a reset at the end of a body without length", first(unkind.Together(unkind.Unannounced(), unkind.Reset(mib))), map[string]uint64{"failed": 1}, []string{"1024+1024", "1024+1024"}, time.Second},
		{"a body that lacks a byte", twice(unkind.Short(1)), map[string]uint64{"wrong_answer": 2}, []string{"1024+1024", "1024+1024", "1024+1024"}, time.Second},
		{"an empty body", twice(unkind.Short(-1)), map[string]uint64{"wrong_answer": 2}, []string{"1024+1024", "1024+1024", "1024+1024"}, time.Second},
		{"a body of unsaid length that lacks 1 KiB", first(unkind.Together(unkind.Short(kib), unkind.Unannounced())), map[string]uint64{"failed": 1}, []string{"1024+1024", "2047+1"}, time.Second},
		{"a body with a byte more", twice(unkind.Long(1)), map[string]uint64{"wrong_answer": 2}, []string{"1024+1024", "1024+1024", "1024+1024"}, time.Second},
		{"a body of unsaid length with a byte more", twice(unkind.Together(unkind.Long(1), unkind.Unannounced())), map[string]uint64{"wrong_answer": 2}, []string{"1024+1024", "1024+1024", "1024+1024"}, time.Second},
		{"a body of unsaid length", always(unkind.Unannounced()), nil, []string{"1024+1024"}, time.Second},
		{"500", twice(unkind.Status(500, "InternalError")), map[string]uint64{"failed": 2}, nil, time.Second},
		{"408", first(unkind.Status(408, "")), map[string]uint64{"failed": 1}, nil, time.Second},
		{"502", first(unkind.Status(502, "")), map[string]uint64{"failed": 1}, nil, time.Second},
		{"504", first(unkind.Status(504, "")), map[string]uint64{"failed": 1}, nil, time.Second},
		{"400 RequestTimeout", first(unkind.Status(400, "RequestTimeout")), map[string]uint64{"failed": 1}, nil, time.Second},
		{"503 SlowDown", first(unkind.Status(503, "SlowDown")), map[string]uint64{"throttled": 1}, nil, time.Second},
		{"429 with Retry-After", first(unkind.Status(429, "", "Retry-After", "7")), map[string]uint64{"throttled": 1}, nil, 8 * time.Second},
		{"429 with RateLimit", first(unkind.Status(429, "", "RateLimit", `"api";r=0;t=25`)), map[string]uint64{"throttled": 1}, nil, 26 * time.Second},
		{"200 for a range, once", first(unkind.Whole()), map[string]uint64{"no_range": 1}, []string{"1024+1024", "1024+1024"}, time.Second},
		{"200 for all ranges of a small object", always(unkind.Whole()), map[string]uint64{"no_range": 1}, []string{"1024+1024", "1024+1024"}, time.Second},
		{"another range", twice(unkind.OtherRange(100)), map[string]uint64{"wrong_answer": 2}, nil, time.Second},
		{"no Content-Range", twice(unkind.ContentRange("")), map[string]uint64{"wrong_answer": 2}, nil, time.Second},
		{"Content-Range without range", twice(unkind.ContentRange("bytes */TOTAL")), map[string]uint64{"wrong_answer": 2}, nil, time.Second},
		{"Content-Range without total", twice(unkind.ContentRange("bytes BEGIN-LAST/*")), map[string]uint64{"wrong_answer": 2}, nil, time.Second},
		{"several ranges", twice(unkind.Multipart()), map[string]uint64{"wrong_answer": 2}, nil, time.Second},
		{"wrong answers, twice and twice, with good bytes in between", func(w *world) {
			w.server.On(unkind.Path("a.tar"), unkind.OtherRange(100)).Times(2)
			w.server.On(unkind.Path("a.tar"), unkind.Reset(256*kib)).After(2).Times(1)
			w.server.On(unkind.Path("a.tar"), unkind.OtherRange(-100)).After(3).Times(2)
		}, map[string]uint64{"wrong_answer": 4, "failed": 1}, []string{"1024+1024", "1024+1024", "1024+1024", "1280+768", "1280+768", "1280+768"}, 2 * time.Second},
		{"a body that is encoded on the way", twice(unkind.Together(unkind.Encoded("gzip"), unkind.Short(1000))), map[string]uint64{"wrong_answer": 2}, nil, time.Second},
		{"one that is stored with an encoding", twice(unkind.Encoded("gzip")), nil, nil, time.Second},
		{"an answer that names no version", twice(unkind.NoVersion()), map[string]uint64{"wrong_answer": 2}, nil, time.Second},
		{"401, once", first(unkind.Status(401, "")), map[string]uint64{"refreshed": 1}, nil, time.Second},
		{"403 ExpiredToken, twice", twice(unkind.Status(403, "ExpiredToken")), map[string]uint64{"refreshed": 2}, nil, time.Second},
		{"400 ExpiredToken", first(unkind.Status(400, "ExpiredToken")), map[string]uint64{"refreshed": 1}, nil, time.Second},
		{"a clock that was wrong", first(unkind.Status(403, "RequestTimeTooSkewed")), map[string]uint64{"refreshed": 1}, nil, time.Second},
		{"301 until the region is looked up", first(unkind.Status(301, "PermanentRedirect")), map[string]uint64{"redirected": 1}, nil, time.Second},
		{"HTTP/1.0", always(unkind.Old()), nil, []string{"1024+1024"}, time.Second},
		{"a connection for each answer", always(unkind.LastAnswer()), nil, []string{"1024+1024"}, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, nil, func(t *testing.T, w *world) {
				c.prepare(w)
				began := time.Now()
				require.NoError(t, w.read(w.a, mib, mib))
				require.LessOrEqual(t, time.Since(began), c.within)
				if c.asked != nil {
					require.Equal(t, c.asked, w.reads())
				}
				got := w.Stats().Retries
				if c.retries == nil {
					c.retries = map[string]uint64{}
				}
				require.Equal(t, c.retries, got)
				require.NoError(t, w.read(w.a, 0, 4*mib), "a read of all of it")
			})
		})
	}
}

// Permanent faults are errors that state what to do.
func TestFaultsThatStay(t *testing.T) {
	for _, c := range []struct {
		name     string
		fault    unkind.Fault
		changed  bool
		words    string
		requests int
	}{
		{"another range", unkind.OtherRange(100), false, "not [1048576, 2097152) of 4194304; so it was 3 times", 3},
		{"a range of another object", unkind.ContentRange("bytes BEGIN-LAST/5000000"), true, "5000000 bytes, not 4194304", 1},
		{"no Content-Range", unkind.ContentRange(""), false, "no single range", 3},
		{"Content-Range without range", unkind.ContentRange("bytes */TOTAL"), false, "no single range", 3},
		{"several ranges", unkind.Multipart(), false, "no single range", 3},
		{"a body that is encoded on the way", unkind.Together(unkind.Encoded("gzip"), unkind.Short(1000)), false, "Content-Encoding gzip", 3},
		{"one that does not say how long it is", unkind.Together(unkind.Encoded("gzip"), unkind.Unannounced()), false, "Content-Encoding gzip", 3},
		{"a body that lacks a byte", unkind.Short(1), false, "1048575 bytes, not 1048576", 3},
		{"a body with a byte more", unkind.Together(unkind.Long(1), unkind.Unannounced()), false, "more than the 1048576 bytes", 3},
		{"an answer that names no version", unkind.NoVersion(), false, "which version", 3},
		{"401", unkind.Status(401, ""), false, "401 Unauthorized: the server wants", 3},
		{"403 ExpiredToken", unkind.Status(403, "ExpiredToken"), false, "have expired: renew them", 3},
		{"a clock that is wrong", unkind.Status(403, "RequestTimeTooSkewed"), false, "clock", 3},
		{"403", unkind.Status(403, "AccessDenied"), false, "403 Forbidden (AccessDenied): the credentials may not read it", 1},
		{"400", unkind.Status(400, "InvalidArgument"), false, "400 Bad Request (InvalidArgument)", 1},
		{"a code that is no word", unkind.Status(400, "see https://secret"), false, "400 Bad Request", 1},
		{"404", unkind.Status(404, "NoSuchKey"), true, "not there any more", 1},
		{"410", unkind.Status(410, ""), true, "not there any more", 1},
		{"412, though HEAD shows what was listed", unkind.Status(412, ""), false, "another in others", 1},
		{"416, though HEAD shows what was listed", unkind.Status(416, ""), false, "416 Range Not Satisfiable to a range of it", 1},
		{"another region", unkind.Status(301, "PermanentRedirect"), false, "--region", 2},
		{"another region, in S3's other words", unkind.Status(400, "AuthorizationHeaderMalformed"), false, "--region", 2},
		{"a redirect", unkind.Status(307, ""), false, "lies elsewhere", 2},
		{"archived", unkind.Status(403, "InvalidObjectState"), false, "restore it first", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, nil, func(t *testing.T, w *world) {
				w.server.On(unkind.Path("a.tar"), c.fault)
				began := time.Now()
				err := w.read(w.a, mib, mib)
				require.ErrorContains(t, err, c.words)
				require.ErrorContains(t, err, "http://unkind.test/data")
				require.Equal(t, c.changed, errors.Is(err, storage.ErrChanged), err)
				require.Len(t, w.reads(), c.requests)
				require.Less(t, time.Since(began), time.Second)
			})
		})
	}
}

// Faults that may pass, but don't, are retried for as long as ReadTimeout.
func TestReadsAreTriedUntilTheReadTimeout(t *testing.T) {
	for name, fault := range map[string]unkind.Fault{
		"503":                 unkind.Status(503, "SlowDown"),
		"500":                 unkind.Status(500, ""),
		"no answer":           unkind.Hang(),
		"a reset":             unkind.Reset(-1),
		"Retry-After: 1 hour": unkind.Status(503, "", "Retry-After", "3600"),
	} {
		t.Run(name, func(t *testing.T) {
			in(t, nil, func(t *testing.T, w *world) {
				w.server.On(unkind.Path("a.tar"), fault)
				began := time.Now()
				require.ErrorContains(t, w.read(w.a, mib, mib), "it has failed for")
				require.LessOrEqual(t, time.Since(began), 5*time.Minute+10*time.Second)
				require.Less(t, len(w.reads()), 250, "waits between requests")
			})
		})
	}
}

// A read that no reader waits for is retried forever.
func TestPlannedReadsAreTriedForEver(t *testing.T) {
	const half = 30 * time.Minute
	in(t, nil, func(t *testing.T, w *world) {
		w.Plan(1, []storage.Want{{Object: w.a, OffsetBytes: mib, SizeBytes: kib, DueBytes: 1}})
		outage := w.server.On(unkind.Path("a.tar"), unkind.Status(500, ""))
		go func() { time.Sleep(half); outage.Off() }()
		began := time.Now()
		require.NoError(t, w.read(w.a, mib, kib))
		require.GreaterOrEqual(t, time.Since(began), half)
		require.LessOrEqual(t, time.Since(began), half+6*time.Second)

		outage = w.server.On(unkind.Path("a.tar"), unkind.Status(500, ""))
		defer outage.Off()
		go func() { time.Sleep(half); w.Plan(1, nil) }()
		began = time.Now()
		require.Error(t, w.read(w.a, mib, kib), "somebody waits for it from now on")
		require.LessOrEqual(t, time.Since(began), half+6*time.Minute)
		require.GreaterOrEqual(t, time.Since(began), half+4*time.Minute)
	})
}
