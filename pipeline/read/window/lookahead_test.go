package window

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

const (
	toldRecordBytes = 64 << 10
	toldPiece       = 8 // records
)

// told records hints.
type told struct {
	storage.Hints    // the methods that are not here are never called
	plans, forgotten int
	wants            map[uint64][]storage.Block
	ever             map[string]int // how often a range was planned that was not before
	done             map[string]int
	held             map[string]bool
	mostHeld         int
}

func (p *told) Want(reader uint64, wants []storage.Block) {
	p.plans++
	p.wants[reader] = append([]storage.Block(nil), wants...)
	for _, w := range wants {
		if r := rangeOf(w.Object, w.OffsetBytes, w.SizeBytes); !p.held[r] {
			p.held[r] = true
			p.ever[r]++
		}
	}
	p.mostHeld = max(p.mostHeld, len(p.held))
}

func (p *told) Passed(_ uint64, blocks []storage.Block) {
	for _, b := range blocks {
		r := rangeOf(b.Object, b.OffsetBytes, b.SizeBytes)
		p.done[r]++
		delete(p.held, r)
	}
}

func (p *told) Drop(reader uint64) {
	p.forgotten++
	delete(p.wants, reader)
}

func rangeOf(o storage.Object, off, n int64) string { return fmt.Sprintf("%s %d %d", o.Path, off, n) }

// equal is an index of shards of 800 equal records.
type equal struct {
	chunkmap.Index // nil: only the methods below are called
	shards         int
}

const equalRecords = 800

func (x equal) Shards() int { return x.shards }
func (x equal) Shard(i int) catalog.Shard {
	const bytes = equalRecords * toldRecordBytes
	return catalog.Shard{Object: storage.Object{Path: fmt.Sprint(i), SizeBytes: bytes}, First: uint64(i * equalRecords), Records: equalRecords, DecodedBytes: bytes}
}
func (x equal) Extents(records []uint64, dst []catalog.Extent) {
	for i, r := range records {
		at := r % equalRecords
		dst[i] = catalog.Extent{Shard: int(r / equalRecords), Ordinal: at, OffsetBytes: int64(at) * toldRecordBytes, SizeBytes: toldRecordBytes}
	}
}

type everything struct{}

func (everything) Has(uint64) bool              { return true }
func (everything) Count(from, to uint64) uint64 { return to - from }

// newPlan returns a plan for that many shards, in pieces of 8 records: half a MiB.
func newPlan(t testing.TB, shards int, change func(*Plan)) (*Plan, *told) {
	x := equal{shards: shards}
	rec := &told{wants: map[uint64][]storage.Block{}, ever: map[string]int{}, done: map[string]int{}, held: map[string]bool{}}
	places := &chunkmap.Map{Index: x, Table: *pieces(t, uint64(shards*equalRecords), toldPiece), Part: everything{}, Unaligned: true}
	now := time.Unix(0, 0)
	p := &Plan{
		Hints: rec, Index: x, Places: places, Chunks: true, MostBytes: 1 << 40, LookaheadBytes: 64 << 20,
		Layout: func(part chunkmap.Part, number int) (int, chunkmap.Layout) {
			return places.Of(part).Layout(number, func(int) int64 { return 0 })
		},
		Now: func() time.Time { return now },
	}
	if change != nil {
		change(p)
	}
	p.Init()
	return p, rec
}

// shuffled returns all records of that many shards, each moved at most by about a buffer.
func shuffled(shards, buffer int) readtest.List {
	rng := rand.New(rand.NewPCG(7, 8))
	all := sequence(shards * equalRecords)
	for from := 0; from < len(all); from += buffer {
		some := all[from:min(from+buffer, len(all))]
		rng.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	}
	return all
}

func TestEachChunkIsPlannedOnceBeforeItsFirstRecord(t *testing.T) {
	p, rec := newPlan(t, 4, nil)
	seq := shuffled(4, 300)
	w := p.NewWalker(seq)
	named, checked := map[int]bool{}, 10
	for k := 0; k < len(seq); k += 10 {
		w.Move(uint64(k), 10)
		if k >= 10 {
			// What is read ahead is planned, or was.
			for ; checked < int(w.Reached(uint64(k))); checked++ {
				record := seq[checked]
				number := p.Places.Table.Of(record)
				at := int64(record%equalRecords) / toldPiece * toldPiece * toldRecordBytes
				r := rangeOf(p.Index.Shard(int(record/equalRecords)).Object, at, toldPiece*toldRecordBytes)
				require.Positive(t, rec.ever[r], "record %d of the sequence at %d", record, k)
				named[number] = true
			}
			require.True(t, slices.IsSortedFunc(rec.wants[w.id], func(a, b storage.Block) int { return cmp.Compare(a.DueBytes, b.DueBytes) }), "nearest first")
		}
	}
	require.Len(t, named, p.Places.Table.Len())
	for r, n := range rec.ever {
		require.Equal(t, 1, n, r)
	}
	require.Less(t, rec.plans, len(seq)*toldRecordBytes/(4<<20)+20, "not more often than each quarter of the first reach, at most")
	w.Close()
	w.Close()
	require.Empty(t, rec.wants)
	require.Zero(t, p.readers.Load())
}

func TestDueBytesAreStreamBytesBeforeChunk(t *testing.T) {
	p, rec := newPlan(t, 4, nil)
	w := p.NewWalker(sequence(4 * equalRecords))
	w.Move(0, 4)
	require.Zero(t, rec.plans, "who asks for a record wants no more")
	w.Move(4, 4)
	wants := rec.wants[w.id]
	require.NotEmpty(t, wants)
	// Record 8 is the first of a chunk that has not been read.
	require.EqualValues(t, 4*toldRecordBytes, wants[1].DueBytes)
	require.EqualValues(t, 12*toldRecordBytes, wants[2].DueBytes)
	w.Promote(8)
	require.Zero(t, rec.wants[w.id][0].DueBytes, "it is waited for")
	require.EqualValues(t, 8*toldRecordBytes, rec.wants[w.id][0].OffsetBytes)
	w.Close()
}

func TestJumpForgetsPlanAndSamplingPlansNothing(t *testing.T) {
	p, rec := newPlan(t, 8, nil)
	w := p.NewWalker(sequence(8 * equalRecords))
	for i := range uint64(50) {
		w.Move(i*1999%(8*equalRecords), 1)
	}
	require.Zero(t, rec.plans)
	require.Zero(t, rec.forgotten)
	for k := uint64(0); k < 100; k += 5 {
		w.Move(k, 5)
	}
	require.NotEmpty(t, rec.wants)
	w.Move(6000, 5)
	require.Equal(t, 1, rec.forgotten)
	require.Empty(t, rec.wants)
	w.Close()
}

// A cache holds for readers that share an epoch what they have open and look ahead: not everything,
// and at the end nothing.
func TestCacheLearnsWhenChunkIsFullyDelivered(t *testing.T) {
	for _, readers := range []int{1, 4} {
		t.Run(fmt.Sprint(readers), func(t *testing.T) {
			p, rec := newPlan(t, 8, func(p *Plan) { p.Keeps, p.LookaheadBytes = true, 16<<20 })
			g := shuffled(8, 300)
			var walkers []*Lookahead
			var seqs []readtest.List
			for i := range readers {
				seqs = append(seqs, g.Deal(i, readers))
				walkers = append(walkers, p.NewWalker(seqs[i]))
			}
			for k := 0; k < len(seqs[0]); k += 4 {
				for i, w := range walkers {
					if k >= len(seqs[i]) {
						continue
					}
					w.Move(uint64(k), 4)
					for _, record := range seqs[i][k:min(k+4, len(seqs[i]))] {
						at := int64(record%equalRecords) / toldPiece * toldPiece * toldRecordBytes
						require.True(t, rec.held[rangeOf(p.Index.Shard(int(record/equalRecords)).Object, at, toldPiece*toldRecordBytes)], "it is kept when it is read")
					}
				}
			}
			require.Less(t, rec.mostHeld, p.Places.Table.Len()/2)
			for r, n := range rec.ever {
				require.Equal(t, 1, n, r)
			}
			for _, w := range walkers {
				w.Close()
			}
			require.Empty(t, rec.wants)
		})
	}
}

// If some records of chunks are never read, chunks are done when hardly any can still come.
func TestPartiallyReadChunkIsDoneEventually(t *testing.T) {
	p, rec := newPlan(t, 8, func(p *Plan) { p.Keeps, p.LookaheadBytes, p.StaleRecords = true, 16<<20, 600 })
	seq := shuffled(8, 300).Deal(0, 2)
	w := p.NewWalker(seq)
	for k := 0; k < len(seq); k += 4 {
		w.Move(uint64(k), 4)
	}
	require.Less(t, rec.mostHeld, p.Places.Table.Len()/2)
	w.Close()
}

func TestLookaheadFollowsRate(t *testing.T) {
	now := time.Unix(0, 0)
	p, _ := newPlan(t, 64, func(p *Plan) { p.LookaheadBytes, p.Now = 0, func() time.Time { return now } })
	seq := sequence(64 * equalRecords)
	w := p.NewWalker(seq)
	ahead := func(k uint64) int64 { return int64(w.Reached(k)-k) * toldRecordBytes }
	k := uint64(0)
	for ; k < 8000; k += 16 {
		w.Move(k, 16)
		now = now.Add(40 * time.Millisecond) // 26 MB/s
	}
	require.InDelta(t, 128<<20, ahead(k), 33<<20, "the least")
	for ; k < 24000; k += 16 {
		w.Move(k, 16)
		now = now.Add(4 * time.Millisecond) // 262 MB/s
	}
	require.InDelta(t, 524e6, ahead(k), 140e6, "two seconds")
	w.Close()
}

func TestPlanningAllocatesNothingPerCall(t *testing.T) {
	p, _ := newPlan(t, 64, nil)
	w := p.NewWalker(sequence(64 * equalRecords))
	for k := uint64(0); k < 4000; k += 16 {
		w.Move(k, 16)
	}
	at := w.at
	require.Zero(t, testing.AllocsPerRun(100, func() { w.Move(at, 16) }))
	w.Close()
}
