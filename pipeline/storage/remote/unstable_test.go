package remote_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/faultserver"
)

// Only a version that is made from its time, and is young by the service's own clock, is unsettled.
func TestUnstableVersions(t *testing.T) {
	const date = "Sat, 21 Nov 2026 08:00:10 GMT"
	at := func(second int) time.Time { return time.Date(2026, 11, 21, 8, 0, second, 999, time.UTC) }
	const nginx, second = remote.Validator(`"6560a1c8-400"`), time.Second
	for _, c := range []struct {
		v        remote.Validator
		modified time.Time
		age      string
		want     time.Duration
	}{
		{nginx, at(10), "", 2 * second}, {nginx, at(9), "", second}, {nginx, at(8), "", 0}, {nginx, at(0), "", 0},
		{nginx, at(10), "1", second}, {nginx, at(10), "7", 0}, {nginx, at(10), "-7", 2 * second}, {nginx, at(10), "x", 2 * second},
		{nginx, at(40), "", 32 * second}, {nginx, at(10 + 61), "", 0}, {nginx, time.Time{}, "", 0},
		{remote.ModifiedValidator(at(10)), at(10), "", 2 * second}, {"", at(10), "", 0},
		{`"5d8c72a5edda8d6a:0"`, at(10), "", 2 * second}, {`"1234567890123456789"`, at(10), "", 2 * second}, {`"v1"`, at(10), "", 2 * second},
		{`"781e5e245d69b566979b86e28d23f2c7"`, at(10), "", 0}, {`"781e5e245d69b566979b86e28d23f2c7-12"`, at(10), "", 0},
		{`"sha256-2CF24DBA5FB0A30E26E83B2AC5B9E29E1B161E5C1FA7425E73043362938B9824"`, at(10), "", 0},
	} {
		h := http.Header{"Date": {date}}
		if c.age != "" {
			h.Set("Age", c.age)
		}
		require.Equal(t, c.want, remote.Unsettled(h, c.modified, c.v), "%+v", c)
	}
	require.InDelta(t, 2*time.Second, remote.Unsettled(http.Header{}, time.Now(), nginx), 2e9, "without Date it is our clock")
}

// An object that is written again within the second in which it was listed, with the same size,
// shows no difference: so the listing waits, and has the final state.
func TestObjectsAreListedOnceTheirSecondIsOver(t *testing.T) {
	for name, get := range map[string]func(w *world) (storage.Object, error){
		"listed": func(w *world) (o storage.Object, err error) {
			err = w.List(w.t.Context(), everything, func(listed storage.Object) error { o = listed; return nil })
			return o, err
		},
		"settled": func(w *world) (storage.Object, error) { return w.StatStable(w.t.Context(), "a.tar") },
	} {
		for _, dated := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, dated: %v", name, dated), func(t *testing.T) {
				in(t, nil, func(t *testing.T, w *world) {
					if dated {
						w.server.Dated("a.tar")
					}
					began := time.Now().Truncate(time.Second)
					w.server.Write("a.tar", began)
					first := w.server.Bytes("a.tar", 0, 100)
					go func() {
						time.Sleep(500 * time.Millisecond)
						w.server.Write("a.tar", began)
					}()
					o, err := get(w)
					require.NoError(t, err)
					require.GreaterOrEqual(t, time.Since(began), 2*time.Second)
					require.Less(t, time.Since(began), 4*time.Second)
					require.NotEqual(t, first, w.server.Bytes("a.tar", 0, 100))
					require.NoError(t, w.read(o, 0, mib))

					began = time.Now()
					_, err = get(w)
					require.NoError(t, err)
					require.Zero(t, time.Since(began), "what is old is not waited for")
				})
			})
		}
	}
}

// Waits are bounded: many objects wait together, an object that keeps being written can't be read,
// and one whose server's clock stands still can.
func TestWaitsForUnstableObjectsAreBounded(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world) {
		began := time.Now()
		for i := range 500 {
			w.server.Write(fmt.Sprintf("%d.tar", i), began)
		}
		paths, err := w.list()
		require.NoError(t, err)
		require.Len(t, paths, 501)
		require.Less(t, time.Since(began), 4*time.Second)

		w.server.On(faultserver.Method("HEAD"), func(*faultserver.Reply) { w.server.Write("a.tar", time.Now()) })
		began = time.Now()
		o, err := w.StatStable(t.Context(), "a.tar")
		require.NoError(t, err)
		require.LessOrEqual(t, time.Since(began), 10*time.Second)
		require.ErrorIs(t, storage.ReadAt(t.Context(), w, o, make([]byte, 10), 0), storage.ErrChanged)
	})
	in(t, nil, func(t *testing.T, w *world) {
		began := time.Now()
		w.server.Write("a.tar", began)
		w.server.On(faultserver.Method("HEAD"), func(p *faultserver.Reply) { p.Header.Set("Date", began.UTC().Format(http.TimeFormat)) })
		o, err := w.StatStable(t.Context(), "a.tar")
		require.NoError(t, err)
		require.LessOrEqual(t, time.Since(began), 3*time.Second)
		require.NoError(t, w.read(o, 0, kib))
	})
}

// A wait ends with its context, and an object that disappears meanwhile is an error.
func TestWaitsForUnstableObjectsStop(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world) {
		began := time.Now()
		w.server.Write("a.tar", began)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := w.StatStable(ctx, "a.tar")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, w.List(ctx, everything, func(storage.Object) error { return nil }), context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(began), time.Second)

		w.server.Write("a.tar", time.Now())
		go func() { time.Sleep(time.Second / 2); w.server.Delete("a.tar") }()
		_, err = w.list()
		require.ErrorContains(t, err, "a.tar: the answer is 404")
	})
}

// Objects that are overwritten, truncated, extended or deleted in mid-epoch give ErrChanged, even
// if the server ignores If-Match.
func TestChangedObjects(t *testing.T) {
	for name, change := range map[string]func(*world){
		"overwritten": func(w *world) { w.server.Change("a.tar") },
		"overwritten, and If-Match is ignored": func(w *world) {
			w.server.On(faultserver.Path("a.tar"), faultserver.NoPrecondition())
			w.server.Change("a.tar")
		},
		"overwritten, and all of it is given": func(w *world) {
			w.server.On(faultserver.Path("a.tar"), faultserver.Together(faultserver.NoPrecondition(), faultserver.Whole()))
			w.server.Change("a.tar")
		},
		"shorter": func(w *world) { w.server.Put("a.tar", mib) },
		"longer":  func(w *world) { w.server.Put("a.tar", 5*mib) },
		"gone":    func(w *world) { w.server.Delete("a.tar") },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, nil, func(t *testing.T, w *world) {
				require.NoError(t, w.read(w.a, 0, mib))
				change(w)
				for _, n := range []int64{mib, 4 * mib} {
					p, reads, began := make([]byte, n), len(w.reads()), time.Now()
					require.ErrorIs(t, storage.ReadAt(t.Context(), w, w.a, p, 0), storage.ErrChanged)
					require.Zero(t, time.Since(began), "nothing is waited for")
					require.Len(t, w.reads(), reads+1, "and nothing is asked for again")
				}
				if name != "gone" && name != "shorter" {
					require.NoError(t, w.read(w.stat("a.tar"), 0, mib), "as it is now it can be read")
					reads := len(w.reads())
					require.ErrorIs(t, storage.ReadAt(t.Context(), w, w.a, make([]byte, 10), 0), storage.ErrChanged)
					require.Len(t, w.reads(), reads, "no request for what is known to be gone")
				}
			})
		})
	}
}

// A read whose object changes between two parts of its body never mixes versions.
func TestResumedReadsNeverMixVersions(t *testing.T) {
	for name, ignored := range map[string]bool{"with If-Match": false, "without": true} {
		t.Run(name, func(t *testing.T) {
			in(t, nil, func(t *testing.T, w *world) {
				if ignored {
					w.server.On(nil, faultserver.NoPrecondition())
				}
				w.server.On(faultserver.Path("a.tar"), func(p *faultserver.Reply) {
					faultserver.Reset(512 * kib)(p)
					w.server.Change("a.tar")
				}).Times(1)
				require.ErrorIs(t, storage.ReadAt(t.Context(), w, w.a, make([]byte, mib), 0), storage.ErrChanged)
				require.Equal(t, []string{"0+1024", "512+512"}, w.reads())
			})
		})
	}
}

// If a server does not support ranges, small objects can still be read, and large ones give an
// error that explains it.
func TestServersWithoutRanges(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world) {
		w.server.Put("b.tar", 9*mib)
		b := w.stat("b.tar")
		w.server.On(faultserver.Method("GET"), faultserver.Whole())
		require.ErrorContains(t, w.read(b, 0, mib), "does not serve ranges")
		require.Equal(t, []string{"0+1024", "0+1024"}, w.reads())
		require.NoError(t, w.read(b, 0, 9*mib), "all of it can be read")

		for range 3 {
			require.NoError(t, w.read(w.a, mib+7, 100))
			require.NoError(t, w.read(w.a, 4*mib-1, 1))
		}
		require.Len(t, w.reads(), 3+1+6, "what it knows is remembered")
	})
}
