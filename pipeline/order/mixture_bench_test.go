package order

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// mixtureOf10M returns an epoch of 10 million records from four sources: a large one, two that
// repeat about once, and a small one that repeats some hundred times.
func mixtureOf10M(t require.TestingT) *Epoch {
	o := spec.Default().Order
	var sources []Source
	first := uint64(0)
	for _, chunks := range []int{100_000, 20_000, 10_000, 80} {
		starts := make([]uint64, chunks+1)
		for i := range starts {
			starts[i] = uint64(i) * 128
		}
		sources = append(sources, Source{First: first, Starts: starts})
		first += starts[chunks]
	}
	m, err := NewMixture(o, sharesOf(t, o.Seed, []uint64{60, 20, 10, 10}), sources, 10_000_000)
	require.NoError(t, err)
	e, err := m.Epoch(0)
	require.NoError(t, err)
	return e
}

// BenchmarkOrderOf10M computes a whole order, of one dataset and of a mixture, in one pass, and in
// the way a layout is made: the states first, then ranges.
func BenchmarkOrderOf10M(b *testing.B) {
	for name, epoch := range map[string]func() *Epoch{
		"dataset": func() *Epoch { return benchEpoch(b, spec.ShuffleReservoir, 1) },
		"mixture": func() *Epoch { return mixtureOf10M(b) },
	} {
		dst := make([]uint64, 4096)
		b.Run(name+"/walk", func(b *testing.B) {
			for b.Loop() {
				c := epoch().Cursor(0)
				for c.Next(dst) == len(dst) {
				}
			}
			perRecord(b, 10_000_000)
		})
		b.Run(name+"/stretches", func(b *testing.B) {
			for b.Loop() {
				e := epoch()
				for _, part := range e.Prepare() {
					part(func() bool { return false })
				}
				c := e.Cursor(0)
				step := 2 * e.Stride()
				for odd := range uint64(2) { // as two cores would
					for p := odd * step; p < e.Len(); p += 2 * step {
						c.Seek(p)
						for left := min(step, e.Len()-p); left > 0; {
							left -= uint64(c.Next(dst[:min(left, uint64(len(dst)))]))
						}
					}
				}
			}
			perRecord(b, 10_000_000)
		})
	}
}
