package order

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// closeStates makes an epoch keep its states every few positions, so that small datasets have many.
// It returns false if its shuffle has none.
func closeStates(e *Epoch, spacing uint64) bool {
	switch r := e.arrangement().states.(type) {
	case *reservoirs[uint32]:
		r.spacing, r.kept = spacing, make([]atomic.Pointer[reservoirState[uint32]], r.total/spacing+1)
	case *reservoirs[uint64]:
		r.spacing, r.kept = spacing, make([]atomic.Pointer[reservoirState[uint64]], r.total/spacing+1)
	default:
		return false
	}
	e.stride = spacing
	return true
}

// runParts runs the parts of Prepare concurrently.
func runParts(parts []func(func() bool), stop func() bool) {
	var g sync.WaitGroup
	for _, part := range parts {
		g.Go(func() { part(stop) })
	}
	g.Wait()
}

func never() bool { return false }

func visitAll(e *Epoch) {
	e.Cursor(0).Next(make([]uint64, e.Len()))
}

func TestPreparedStoredAndVisitedStatesAreEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSettings(t)
		spacing := rapid.Uint64Range(1, 100).Draw(t, "spacing")
		visited, prepared, restored := s.newEpoch(t), s.newEpoch(t), s.newEpoch(t)
		if !closeStates(visited, spacing) {
			require.Nil(t, visited.Prepare())
			require.True(t, visited.Prepared())
			require.Zero(t, visited.StoredStatesBytes())
			require.Empty(t, visited.StoreStates(nil))
			require.Error(t, visited.RestoreStates(make([]byte, 8)))
			return
		}
		closeStates(prepared, spacing)
		closeStates(restored, spacing)
		many := visited.StoredStatesBytes() > 0
		require.Equal(t, !many, visited.Prepared())
		require.Empty(t, visited.StoreStates(nil), "not all of them are there")

		visitAll(visited)
		runParts(prepared.Prepare(), never)
		stored := visited.StoreStates([]byte("before"))[len("before"):]
		require.Len(t, stored, int(visited.StoredStatesBytes()))
		if !many {
			return
		}
		require.True(t, prepared.Prepared())
		require.Nil(t, prepared.Prepare(), "nothing is left to do")
		require.NoError(t, restored.RestoreStates(stored))
		require.True(t, restored.Prepared())

		for _, e := range []*Epoch{prepared, restored} {
			for range 5 {
				p := rapid.Uint64Range(0, uint64(len(s.g))).Draw(t, "p")
				got := make([]uint64, min(uint64(len(s.g))-p, 3*spacing))
				e.Cursor(p).Next(got)
				require.Equal(t, s.g[p:][:len(got)], got)
			}
		}
	})
}

func TestWideStatesAreStoredToo(t *testing.T) {
	o := spec.Default().Order
	o.SizeRecords, o.Lanes = 40, 4
	starts := []uint64{0}
	for total := uint64(0); total < 1000; total += 10 {
		starts = append(starts, total+10)
	}
	layout := newLayout(layoutOptions{size: 40, lanes: 4, groups: 1, step: 1}, 1000, newChunks(0, 0, starts))
	wide := func() (*Epoch, *reservoirs[uint64]) {
		r := newReservoirs[uint64](layout, 1000)
		e := &Epoch{order: o, total: 1000}
		e.arranged.Store(&arrangement{start: r.walker, states: r})
		require.True(t, closeStates(e, 50))
		return e, r
	}
	a, _ := wide()
	runParts(a.Prepare(), never)
	b, r := wide()
	require.NoError(t, b.RestoreStates(a.StoreStates(nil)))
	require.Equal(t, uint64(8+19*40*8), b.StoredStatesBytes())
	want, got := make([]uint64, 300), make([]uint64, 300)
	fresh, _ := wide()
	fresh.Cursor(0).Next(make([]uint64, 100))
	c := fresh.Cursor(700)
	c.Next(want)
	b.Cursor(700).Next(got)
	require.Equal(t, want, got)
	require.True(t, r.whole())
}

func TestStoppedPreparationCachesNothing(t *testing.T) {
	e := newEpoch(t, spec.Default().Order, 0, manyChunks(50_000))
	require.True(t, closeStates(e, 1000))
	var asked atomic.Int64
	runParts(e.Prepare(), func() bool { return asked.Add(1) > 20 })
	require.False(t, e.Prepared())
	runParts(e.Prepare(), never)
	require.True(t, e.Prepared())
}

func TestInvalidStatesAreRefused(t *testing.T) {
	o := spec.Default().Order
	o.SizeRecords = 320
	fresh := func() *Epoch {
		e := newEpoch(t, o, 0, manyChunks(5000))
		require.True(t, closeStates(e, 1000))
		return e
	}
	e := fresh()
	runParts(e.Prepare(), never)
	good := e.StoreStates(nil)
	for name, change := range map[string]func([]byte) []byte{
		"take":           func(b []byte) []byte { return b[:len(b)-1] },
		"positions":      func(b []byte) []byte { b[0]++; return b },
		"record 5000":    func(b []byte) []byte { binary.LittleEndian.PutUint32(b[len(b)-4:], 5000); return b },
		"not 0":          func([]byte) []byte { return nil },
		"bytes, not 540": func(b []byte) []byte { return append(b[:8], make([]byte, 532)...) },
	} {
		e := fresh()
		require.ErrorContains(t, e.RestoreStates(change(slices.Clone(good))), name)
		require.False(t, e.Prepared())
	}
}

func TestPartialSweepsEqualWholeSweep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSettings(t)
		e := s.newEpoch(t)
		closeStates(e, rapid.Uint64Range(1, 100).Draw(t, "spacing"))
		if rapid.Bool().Draw(t, "prepared") {
			runParts(e.Prepare(), never)
		}
		done, _ := s.drawDone(t)
		deal := spec.Assignment{Workers: rapid.Uint64Range(1, 9).Draw(t, "workers"), Tail: rapid.SampledFrom([]spec.Tail{spec.TailKeep, spec.TailDrop, spec.TailPad}).Draw(t, "tail")}
		if deal.Batch, deal.Dealing = s.drawDealing(t); s.order.Groups > 1 || deal.Batch > 50 {
			deal.Tail = spec.TailKeep // padding to a huge batch would take forever
		}
		v, err := NewView(e, done, deal)
		require.NoError(t, err)
		var whole, parts []uint64
		v.Sweep(0, v.Dealt(), func(_ uint64, records []uint64) bool { whole = append(whole, records...); return true })
		require.Len(t, whole, int(v.Dealt()))
		for from := uint64(0); from < v.Dealt(); {
			to := min(v.Dealt(), from+rapid.Uint64Range(1, 300).Draw(t, "stretch"))
			v.Sweep(from, to, func(j uint64, records []uint64) bool {
				require.Equal(t, uint64(len(parts)), j)
				parts = append(parts, records...)
				return true
			})
			from = to
		}
		require.Equal(t, whole, parts)
		j := rapid.Uint64Range(0, v.Dealt()).Draw(t, "j")
		for w := range deal.Workers {
			n := uint64(0)
			for i := range j {
				if owner, _ := v.Owner(i); owner == w {
					n++
				}
			}
			require.Equal(t, n, v.CountBelow(w, j), fmt.Sprint("worker ", w))
		}
		require.Panics(t, func() { v.Sweep(0, v.Dealt()+1, nil) })
	})
}
