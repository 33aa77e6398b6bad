package window

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// shelf takes the hints of one reader: it has what was announced and is not passed.
type shelf struct {
	storage.Hints // the methods that are not here are never called
	held          map[string]bool
	brought       map[string]int
}

func (s *shelf) Want(_ uint64, blocks []storage.Block) {
	for _, w := range blocks {
		if r := rangeOf(w.Object, w.OffsetBytes, w.SizeBytes); !s.held[r] {
			s.held[r] = true
			s.brought[r]++
		}
	}
}

func (s *shelf) Passed(_ uint64, blocks []storage.Block) {
	for _, b := range blocks {
		delete(s.held, rangeOf(b.Object, b.OffsetBytes, b.SizeBytes))
	}
}

func (s *shelf) Drop(uint64) { clear(s.held) }

// Each epoch fetches each chunk once, also the second and later ones: what was open at the end of
// one is not open in the next.
func TestEachEpochReadsEachChunkOnce(t *testing.T) {
	for _, lookahead := range []int64{64 << 20, 8 << 20} {
		k := &shelf{held: map[string]bool{}}
		p, _ := newPlan(t, 4, func(p *Plan) { p.Hints, p.Keeps, p.LookaheadBytes = k, true, lookahead })
		seq := shuffled(4, 1600)
		for epoch := range 4 {
			k.brought = map[string]int{}
			w := p.NewWalker(seq)
			for i := 0; i < len(seq); i += 10 {
				w.Move(uint64(i), 10)
				for _, r := range seq[i : i+10] {
					at := int64(r / 8 % 100)
					require.True(t, k.held[fmt.Sprintf("%d %d %d", r/800, at*8*toldRecordBytes, 8*toldRecordBytes)], "epoch %d, record %d at %d", epoch, r, i)
				}
			}
			w.Close()
			for r, n := range k.brought {
				require.Equal(t, 1, n, "epoch %d, %s", epoch, r)
			}
		}
	}
}

// Two epochs of a sample that are read in step have different records of each chunk: what one has
// passed does not count for the other, and each range is fetched once.
func TestConcurrentSubsetsCountSeparately(t *testing.T) {
	all := shuffled(4, 1600)
	phases := make([]Subset, 3) // of different sizes
	for i := range phases {
		part := make(readtest.Some, len(all))
		for r := range part {
			part[r] = min(r%8, 5)/2 == i
		}
		phases[i] = Subset{Number: uint64(i), Part: part}
	}
	k := &shelf{held: map[string]bool{}, brought: map[string]int{}}
	p, _ := newPlan(t, 4, func(p *Plan) { p.Hints, p.Keeps = k, true })
	for _, pair := range [][2]int{{0, 1}, {2, 0}, {1, 2}, {0, 1}} {
		k.brought = map[string]int{}
		var walkers [2]*Lookahead
		var seqs [2]readtest.List
		for i, phase := range pair {
			seqs[i] = phases[phase].Part.(readtest.Some).Of(all)
			walkers[i] = p.NewPhaseWalker(seqs[i], phases[phase])
		}
		for at := range max(len(seqs[0]), len(seqs[1])) {
			for i, w := range walkers {
				if at < len(seqs[i]) {
					w.Move(uint64(at), 1)
				}
			}
		}
		for _, w := range walkers {
			w.Close()
		}
		require.NotEmpty(t, k.brought)
		for r, n := range k.brought {
			require.Equal(t, 1, n, "phases %v, %s", pair, r)
		}
		require.LessOrEqual(t, len(p.passed), 2, "of phases that nobody reads nothing is kept")
	}
}

// weightless is an index of records without bytes, no number of which fills a look-ahead.
type weightless struct{ equal }

func (weightless) Extents(records []uint64, dst []catalog.Extent) {
	for i, r := range records {
		dst[i] = catalog.Extent{Shard: int(r / equalRecords), Ordinal: r % equalRecords}
	}
}

// One call looks up a limited number of records, however small they are.
func TestCallExaminesBoundedNumberOfRecords(t *testing.T) {
	k := &shelf{held: map[string]bool{}, brought: map[string]int{}}
	const shards = 1 << 20 / equalRecords
	p, _ := newPlan(t, shards, func(p *Plan) { p.Hints, p.Keeps = k, true })
	p.Index = weightless{equal{}}
	seq := make(readtest.List, shards*equalRecords)
	for i := range seq {
		seq[i] = uint64(i)
	}
	w := p.NewWalker(seq)
	for i := uint64(0); i < 40; i++ {
		before := w.to
		w.Move(i, 1)
		require.LessOrEqual(t, w.to-max(before, i), uint64(lookRecords))
	}
	require.Greater(t, w.Reached(0), uint64(lookRecords), "the next calls go on")
	w.Close()
}
