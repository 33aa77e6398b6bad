package stream

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func (p *parking) walkers() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.list {
		h.mu.Lock()
		n += len(h.parked)
		h.mu.Unlock()
	}
	return n
}

func TestBoundedNumberOfHandlesKeepTheirPositions(t *testing.T) {
	const n, handles = 20_000, 2 * maxParkedHandles
	m := manyRecords(n)
	src := newSource(m, m.open)
	defer src.Close()
	set := src.Set(viewOf(t, n, spec.ShuffleReservoir, spec.Default().Deal), nil)
	size, err := set.SizeBytes(context.Background(), 0, Data)
	require.NoError(t, err)
	want := readFile(t, set)
	open := make([]*Handle, handles)
	for i := range open {
		open[i] = set.Open(0, Data)
	}
	var wg sync.WaitGroup
	for reader := range 4 {
		wg.Go(func() {
			var r Reply
			for round := range 3 {
				for i := reader; i < handles; i += 4 {
					off := (size/7*int64(round+1) + int64(i)) % (size - 10)
					if err := open[i].ReadAt(context.Background(), &r, off, 10); err != nil {
						t.Error(err)
						return
					}
					if got := join(r.Slices); got != want[off:off+10] {
						t.Errorf("10 bytes at %d are others", off)
					}
					r.Release()
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, len(src.parking.list), maxParkedHandles)
	parked := 0
	for _, h := range open {
		parked += len(h.parked)
	}
	require.Equal(t, src.parking.walkers(), parked, "no handle has walkers that nobody knows of")
	require.LessOrEqual(t, parked, maxParked*maxParkedHandles)
	for _, h := range open {
		h.Close()
		require.Empty(t, h.parked)
	}
	require.Empty(t, src.parking.list)
	require.Zero(t, src.kept.Load())
}

func readFile(t *testing.T, s *Set) string {
	h := s.Open(0, Data)
	defer h.Close()
	var all []byte
	var r Reply
	for {
		require.NoError(t, h.ReadAt(context.Background(), &r, int64(len(all)), MaxReadBytes))
		if r.Len() == 0 {
			return string(all)
		}
		all = append(all, join(r.Slices)...)
		r.Release()
	}
}

func join(slices [][]byte) string {
	var all []byte
	for _, s := range slices {
		all = append(all, s...)
	}
	return string(all)
}
