package remote_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/faultserver"
)

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
