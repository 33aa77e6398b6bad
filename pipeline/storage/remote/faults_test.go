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
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/faultserver"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// world is an engine and its server, with one object: a.tar, of 4 MiB.
type world struct {
	t      *testing.T
	server *faultserver.Server
	source *faultserver.Source
	*remote.Storage
	a storage.Object
}

// in runs a test with a fake clock, which advances when all goroutines wait: time costs nothing,
// and durations can be checked.
func in(t *testing.T, change func(*remote.Config), test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, server: faultserver.New()}
		w.server.Put("a.tar", 4*mib)
		w.source = faultserver.Connect(t, w.server)
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
func TestTransientFaults(t *testing.T) {
	first := func(f faultserver.Fault) func(*world) {
		return func(w *world) { w.server.On(faultserver.Path("a.tar"), f).Times(1) }
	}
	twice := func(f faultserver.Fault) func(*world) {
		return func(w *world) { w.server.On(faultserver.Path("a.tar"), f).Times(2) }
	}
	always := func(f faultserver.Fault) func(*world) {
		return func(w *world) { w.server.On(faultserver.Path("a.tar"), f) }
	}
	for _, c := range []struct {
		name    string
		prepare func(*world)
		retries map[string]uint64
		asked   []string // to read the MiB from 1 MiB on, in KiB
		within  time.Duration
	}{
		{"nothing", func(*world) {}, nil, []string{"1024+1024"}, time.Second},
		{"a first byte after 9 s", first(faultserver.Delay(9 * time.Second)), nil, []string{"1024+1024"}, 10 * time.Second},
		{"a first byte after 30 s", first(faultserver.Delay(30 * time.Second)), map[string]uint64{"failed": 1}, []string{"1024+1024", "1024+1024"}, 11 * time.Second},
		{"a request that is lost", first(faultserver.Hang()), map[string]uint64{"failed": 1}, []string{"1024+1024", "1024+1024"}, 11 * time.Second},
		{"a stall after the header", first(faultserver.Stall(0)), map[string]uint64{"failed": 1}, []string{"1024+1024", "1024+1024"}, 11 * time.Second},
		{"a stall after 1 KiB", first(faultserver.Stall(kib)), map[string]uint64{"failed": 1}, []string{"1024+1024", "1024+1024"}, 11 * time.Second},
		{"a stall after 64 KiB", first(faultserver.Stall(64 * kib)), map[string]uint64{"failed": 1}, []string{"1024+1024", "1088+960"}, 13 * time.Second},
		{"1 KiB a second", first(faultserver.Drip(time.Second)), map[string]uint64{"failed": 1}, []string{"1024+1024", "1024+1024"}, 12 * time.Second},
		{"5 KiB a second is slow and good", always(faultserver.Drip(time.Second / 5)), nil, []string{"1024+1024"}, 206 * time.Second},
		// net/http itself repeats a request if a kept-alive connection is closed.
		{"a reset before the header", twice(faultserver.Reset(-1)), map[string]uint64{"failed": 1}, []string{"1024+1024", "1024+1024", "1024+1024"}, time.Second},
		{"a reset after the header", first(faultserver.Reset(0)), map[string]uint64{"failed": 1}, []string{"1024+1024", "1024+1024"}, time.Second},
		{"a reset in the body", first(faultserver.Reset(512 * kib)), map[string]uint64{"failed": 1}, []string{"1024+1024", "1536+512"}, time.Second},
		{"two resets in the body", twice(faultserver.Reset(256 * kib)), map[string]uint64{"failed": 2}, []string{"1024+1024", "1280+768", "1536+512"}, time.Second},
		{"a reset at the end of a body without length", first(faultserver.Together(faultserver.Unannounced(), faultserver.Reset(mib))), map[string]uint64{"failed": 1}, []string{"1024+1024", "1024+1024"}, time.Second},
		{"a body that lacks a byte", twice(faultserver.Short(1)), map[string]uint64{"wrong_answer": 2}, []string{"1024+1024", "1024+1024", "1024+1024"}, time.Second},
		{"an empty body", twice(faultserver.Short(-1)), map[string]uint64{"wrong_answer": 2}, []string{"1024+1024", "1024+1024", "1024+1024"}, time.Second},
		{"a body of unsaid length that lacks 1 KiB", first(faultserver.Together(faultserver.Short(kib), faultserver.Unannounced())), map[string]uint64{"failed": 1}, []string{"1024+1024", "2047+1"}, time.Second},
		{"a body with a byte more", twice(faultserver.Long(1)), map[string]uint64{"wrong_answer": 2}, []string{"1024+1024", "1024+1024", "1024+1024"}, time.Second},
		{"a body of unsaid length with a byte more", twice(faultserver.Together(faultserver.Long(1), faultserver.Unannounced())), map[string]uint64{"wrong_answer": 2}, []string{"1024+1024", "1024+1024", "1024+1024"}, time.Second},
		{"a body of unsaid length", always(faultserver.Unannounced()), nil, []string{"1024+1024"}, time.Second},
		{"500", twice(faultserver.Status(500, "InternalError")), map[string]uint64{"failed": 2}, nil, time.Second},
		{"408", first(faultserver.Status(408, "")), map[string]uint64{"failed": 1}, nil, time.Second},
		{"502", first(faultserver.Status(502, "")), map[string]uint64{"failed": 1}, nil, time.Second},
		{"504", first(faultserver.Status(504, "")), map[string]uint64{"failed": 1}, nil, time.Second},
		{"400 RequestTimeout", first(faultserver.Status(400, "RequestTimeout")), map[string]uint64{"failed": 1}, nil, time.Second},
		{"503 SlowDown", first(faultserver.Status(503, "SlowDown")), map[string]uint64{"throttled": 1}, nil, time.Second},
		{"429 with Retry-After", first(faultserver.Status(429, "", "Retry-After", "7")), map[string]uint64{"throttled": 1}, nil, 8 * time.Second},
		{"429 with RateLimit", first(faultserver.Status(429, "", "RateLimit", `"api";r=0;t=25`)), map[string]uint64{"throttled": 1}, nil, 26 * time.Second},
		{"200 for a range, once", first(faultserver.Whole()), map[string]uint64{"no_range": 1}, []string{"1024+1024", "1024+1024"}, time.Second},
		{"200 for all ranges of a small object", always(faultserver.Whole()), map[string]uint64{"no_range": 1}, []string{"1024+1024", "1024+1024"}, time.Second},
		{"another range", twice(faultserver.OtherRange(100)), map[string]uint64{"wrong_answer": 2}, nil, time.Second},
		{"no Content-Range", twice(faultserver.ContentRange("")), map[string]uint64{"wrong_answer": 2}, nil, time.Second},
		{"Content-Range without range", twice(faultserver.ContentRange("bytes */TOTAL")), map[string]uint64{"wrong_answer": 2}, nil, time.Second},
		{"Content-Range without total", twice(faultserver.ContentRange("bytes BEGIN-LAST/*")), map[string]uint64{"wrong_answer": 2}, nil, time.Second},
		{"several ranges", twice(faultserver.Multipart()), map[string]uint64{"wrong_answer": 2}, nil, time.Second},
		{"wrong answers, twice and twice, with good bytes in between", func(w *world) {
			w.server.On(faultserver.Path("a.tar"), faultserver.OtherRange(100)).Times(2)
			w.server.On(faultserver.Path("a.tar"), faultserver.Reset(256*kib)).After(2).Times(1)
			w.server.On(faultserver.Path("a.tar"), faultserver.OtherRange(-100)).After(3).Times(2)
		}, map[string]uint64{"wrong_answer": 4, "failed": 1}, []string{"1024+1024", "1024+1024", "1024+1024", "1280+768", "1280+768", "1280+768"}, 2 * time.Second},
		{"a body that is encoded on the way", twice(faultserver.Together(faultserver.Encoded("gzip"), faultserver.Short(1000))), map[string]uint64{"wrong_answer": 2}, nil, time.Second},
		{"one that is stored with an encoding", twice(faultserver.Encoded("gzip")), nil, nil, time.Second},
		{"an answer that names no version", twice(faultserver.NoVersion()), map[string]uint64{"wrong_answer": 2}, nil, time.Second},
		{"401, once", first(faultserver.Status(401, "")), map[string]uint64{"refreshed": 1}, nil, time.Second},
		{"403 ExpiredToken, twice", twice(faultserver.Status(403, "ExpiredToken")), map[string]uint64{"refreshed": 2}, nil, time.Second},
		{"400 ExpiredToken", first(faultserver.Status(400, "ExpiredToken")), map[string]uint64{"refreshed": 1}, nil, time.Second},
		{"a clock that was wrong", first(faultserver.Status(403, "RequestTimeTooSkewed")), map[string]uint64{"refreshed": 1}, nil, time.Second},
		{"301 until the region is looked up", first(faultserver.Status(301, "PermanentRedirect")), map[string]uint64{"redirected": 1}, nil, time.Second},
		{"HTTP/1.0", always(faultserver.Old()), nil, []string{"1024+1024"}, time.Second},
		{"a connection for each answer", always(faultserver.LastAnswer()), nil, []string{"1024+1024"}, time.Second},
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
func TestPermanentFaults(t *testing.T) {
	for _, c := range []struct {
		name     string
		fault    faultserver.Fault
		changed  bool
		words    string
		requests int
	}{
		{"another range", faultserver.OtherRange(100), false, "not [1048576, 2097152) of 4194304; so it was 3 times", 3},
		{"a range of another object", faultserver.ContentRange("bytes BEGIN-LAST/5000000"), true, "5000000 bytes, not 4194304", 1},
		{"no Content-Range", faultserver.ContentRange(""), false, "no single range", 3},
		{"Content-Range without range", faultserver.ContentRange("bytes */TOTAL"), false, "no single range", 3},
		{"several ranges", faultserver.Multipart(), false, "no single range", 3},
		{"a body that is encoded on the way", faultserver.Together(faultserver.Encoded("gzip"), faultserver.Short(1000)), false, "Content-Encoding gzip", 3},
		{"one that does not say how long it is", faultserver.Together(faultserver.Encoded("gzip"), faultserver.Unannounced()), false, "Content-Encoding gzip", 3},
		{"a body that lacks a byte", faultserver.Short(1), false, "1048575 bytes, not 1048576", 3},
		{"a body with a byte more", faultserver.Together(faultserver.Long(1), faultserver.Unannounced()), false, "more than the 1048576 bytes", 3},
		{"an answer that names no version", faultserver.NoVersion(), false, "which version", 3},
		{"401", faultserver.Status(401, ""), false, "401 Unauthorized: the server wants", 3},
		{"403 ExpiredToken", faultserver.Status(403, "ExpiredToken"), false, "have expired: renew them", 3},
		{"a clock that is wrong", faultserver.Status(403, "RequestTimeTooSkewed"), false, "clock", 3},
		{"403", faultserver.Status(403, "AccessDenied"), false, "403 Forbidden (AccessDenied): the credentials may not read it", 1},
		{"400", faultserver.Status(400, "InvalidArgument"), false, "400 Bad Request (InvalidArgument)", 1},
		{"a code that is no word", faultserver.Status(400, "see https://secret"), false, "400 Bad Request", 1},
		{"404", faultserver.Status(404, "NoSuchKey"), true, "not there any more", 1},
		{"410", faultserver.Status(410, ""), true, "not there any more", 1},
		{"412, though HEAD shows what was listed", faultserver.Status(412, ""), false, "another in others", 1},
		{"416, though HEAD shows what was listed", faultserver.Status(416, ""), false, "416 Range Not Satisfiable to a range of it", 1},
		{"another region", faultserver.Status(301, "PermanentRedirect"), false, "--region", 2},
		{"another region, in S3's other words", faultserver.Status(400, "AuthorizationHeaderMalformed"), false, "--region", 2},
		{"a redirect", faultserver.Status(307, ""), false, "lies elsewhere", 2},
		{"archived", faultserver.Status(403, "InvalidObjectState"), false, "restore it first", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, nil, func(t *testing.T, w *world) {
				w.server.On(faultserver.Path("a.tar"), c.fault)
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
func TestReadsAreRetriedUntilReadTimeout(t *testing.T) {
	for name, fault := range map[string]faultserver.Fault{
		"503":                 faultserver.Status(503, "SlowDown"),
		"500":                 faultserver.Status(500, ""),
		"no answer":           faultserver.Hang(),
		"a reset":             faultserver.Reset(-1),
		"Retry-After: 1 hour": faultserver.Status(503, "", "Retry-After", "3600"),
	} {
		t.Run(name, func(t *testing.T) {
			in(t, nil, func(t *testing.T, w *world) {
				w.server.On(faultserver.Path("a.tar"), fault)
				began := time.Now()
				require.ErrorContains(t, w.read(w.a, mib, mib), "it has failed for")
				require.LessOrEqual(t, time.Since(began), 5*time.Minute+10*time.Second)
				require.Less(t, len(w.reads()), 250, "waits between requests")
			})
		})
	}
}

// A read that no reader waits for is retried forever.
func TestPlannedReadsAreRetriedForever(t *testing.T) {
	const half = 30 * time.Minute
	in(t, nil, func(t *testing.T, w *world) {
		w.Want(1, []storage.Block{{Object: w.a, OffsetBytes: mib, SizeBytes: kib, DueBytes: 1}})
		outage := w.server.On(faultserver.Path("a.tar"), faultserver.Status(500, ""))
		go func() { time.Sleep(half); outage.Off() }()
		began := time.Now()
		require.NoError(t, w.read(w.a, mib, kib))
		require.GreaterOrEqual(t, time.Since(began), half)
		require.LessOrEqual(t, time.Since(began), half+6*time.Second)

		outage = w.server.On(faultserver.Path("a.tar"), faultserver.Status(500, ""))
		defer outage.Off()
		go func() { time.Sleep(half); w.Want(1, nil) }()
		began = time.Now()
		require.Error(t, w.read(w.a, mib, kib), "somebody waits for it from now on")
		require.LessOrEqual(t, time.Since(began), half+6*time.Minute)
		require.GreaterOrEqual(t, time.Since(began), half+4*time.Minute)
	})
}
