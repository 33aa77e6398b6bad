package order

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// drawMixture draws sources, some of them tiny, and epochs of any length.
func drawMixture(t *rapid.T) (m *Mixture, sources []Source) {
	o := spec.Default().Order
	o.Seed = rapid.Uint64().Draw(t, "seed")
	o.Shuffle = rapid.SampledFrom([]spec.Shuffle{spec.ShuffleReservoir, spec.ShuffleBlock, spec.ShuffleFull, spec.ShuffleNone}).Draw(t, "shuffle")
	o.SizeRecords, o.Lanes = rapid.Uint64Range(0, 60).Draw(t, "size"), rapid.Uint64Range(1, 5).Draw(t, "lanes")
	n := rapid.IntRange(2, 5).Draw(t, "sources")
	weights, first := make([]uint64, n), uint64(0)
	for i := range weights {
		weights[i] = rapid.Uint64Range(1, 100).Draw(t, "weight")
		starts := []uint64{0}
		for range rapid.IntRange(1, 4).Draw(t, "chunks") {
			starts = append(starts, starts[len(starts)-1]+rapid.Uint64Range(1, 30).Draw(t, "chunk"))
		}
		if rapid.Bool().Draw(t, "tiny") {
			starts = []uint64{0, 1}
		}
		sources = append(sources, Source{First: first, Starts: starts})
		first += starts[len(starts)-1]
	}
	m, err := NewMixture(o, sharesOf(t, o.Seed, weights), sources, rapid.Uint64Range(1, 700).Draw(t, "length"))
	require.NoError(t, err)
	return m, sources
}

// takeEpoch reads an epoch in several runs, each with its own number of workers, which are stopped
// at uneven positions, and returns all the records.
func takeEpoch(t *rapid.T, m *Mixture, sources []Source, epoch uint64, e *Epoch) (records []uint64) {
	var done []Done
	stages := rapid.IntRange(1, 4).Draw(t, "stages")
	for stage := range stages {
		deal := spec.Assignment{
			Workers: rapid.Uint64Range(1, 9).Draw(t, "workers"), Batch: rapid.Uint64Range(1, 5).Draw(t, "batch"), Tail: spec.TailKeep,
			Dealing: rapid.SampledFrom([]spec.Dealing{spec.DealInterleaved, spec.DealContiguous}).Draw(t, "deal"),
		}
		v, err := NewView(e, done, deal)
		require.NoError(t, err)
		consumed := make([]uint64, deal.Workers)
		for w := range consumed {
			n := v.Count(uint64(w))
			if stage < stages-1 {
				n = rapid.Uint64Range(0, n).Draw(t, "taken")
			}
			consumed[w] = n
			mine := make([]uint64, n)
			for k := 0; k < len(mine); {
				k += v.Records(uint64(w), uint64(k), mine[k:])
			}
			records = append(records, mine...)
		}
		entry := Done{Batch: deal.Batch, Dealing: deal.Dealing, Consumed: consumed}
		if deal.Dealing == spec.DealContiguous {
			entry.Batch = 1
		}
		done = append(done, entry)
		counts, exact, err := m.CountTaken(epoch, done)
		require.NoError(t, err)
		require.True(t, exact)
		require.Equal(t, countsOf(sources, records), counts)
	}
	return records
}

// countsOf returns the number of records from each source.
func countsOf(sources []Source, records []uint64) []uint64 {
	counts := make([]uint64, len(sources))
	for _, record := range records {
		for i, s := range sources {
			if record >= s.First && record < s.First+s.records() {
				counts[i]++
			}
		}
	}
	return counts
}

// If workers are very far apart, the counts are those of the same number of positions from the
// start, and exact is false.
func TestSharesOfDistantWorkersAreApproximate(t *testing.T) {
	m := mixtureWithStates(t)
	counts, exact, err := m.CountTaken(1, []Done{{Batch: 1, Dealing: spec.DealInterleaved, Consumed: []uint64{200_000, 0}}})
	require.NoError(t, err)
	require.False(t, exact)
	require.InDelta(t, 90_000, float64(counts[0]), 256)
	_, _, err = m.CountTaken(1, []Done{{Batch: 1, Dealing: spec.DealInterleaved, Consumed: []uint64{2_000_000, 0}}})
	require.ErrorContains(t, err, "took 2000000 records")
}

// In each pass over a source, each of its records occurs once, whatever the length of epochs, the
// number of workers, and the positions at which they were stopped. So at the end of every epoch the
// counts of any two records of a source differ by at most one.
func TestEachPassReadsEveryRecordOfSourceOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, sources := drawMixture(t)
		counts := map[uint64]uint64{}
		came := uint64(0)
		for epoch := range uint64(rapid.IntRange(1, 6).Draw(t, "epochs")) {
			e, err := m.Epoch(epoch)
			require.NoError(t, err)
			records := takeEpoch(t, m, sources, epoch, e)
			require.Equal(t, slices.Sorted(slices.Values(allOf(e))), slices.Sorted(slices.Values(records)))
			for _, record := range records {
				counts[record]++
			}
			came += m.length
			want := make([]uint64, len(sources))
			m.shares.CountFirst(came, want)
			for i, s := range sources {
				least, most, sum := ^uint64(0), uint64(0), uint64(0)
				for record := s.First; record < s.First+s.records(); record++ {
					least, most, sum = min(least, counts[record]), max(most, counts[record]), sum+counts[record]
				}
				require.LessOrEqual(t, most-least, uint64(1), "source %d", i)
				require.Equal(t, want[i], sum, "source %d", i)
			}
		}
	})
}
