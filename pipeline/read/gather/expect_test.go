package gather

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/read/window"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// exact takes exact hints, and records what was passed.
type exact struct {
	storage.Hints // the methods that are not here are never called
	t             *testing.T

	mu        sync.Mutex
	readers   map[uint64][]storage.Block
	passed    []storage.Block
	wants     int
	forgotten int
}

// Want checks that a list continues the one before.
func (e *exact) Want(reader uint64, blocks []storage.Block) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wants++
	all := make([]storage.Block, len(blocks))
	for i, b := range blocks {
		b.DueBytes = 0
		all[i] = b
	}
	before := e.readers[reader]
	assert.True(e.t, len(before) <= len(all) && slices.Equal(before, all[:len(before)]))
	e.readers[reader] = all
}

func (e *exact) Passed(reader uint64, blocks []storage.Block) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, b := range blocks {
		b.DueBytes = 0
		assert.Equal(e.t, e.readers[reader][i], b)
		e.passed = append(e.passed, b)
	}
	e.readers[reader] = e.readers[reader][len(blocks):]
}

func (e *exact) Drop(reader uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.readers[reader]) > 0 {
		e.forgotten++
	}
	delete(e.readers, reader)
}

// newExpected returns a gatherer that reads each record separately, and announces it.
func newExpected(t *testing.T, d *readtest.Dataset, memoryBytes int64) (*Gatherer, *exact) {
	e := &exact{t: t, readers: map[uint64][]storage.Block{}}
	c := testOptions(d, memoryBytes, readtest.OpenStorage(t, d.Dir))
	c.Profile.Apart = true
	return newGathererTold(t, c, &window.Plan{Hints: e, Exact: true, Index: d.Index}), e
}

// rangeOf returns the range of a record of a sequence.
func rangeOf(d *readtest.Dataset, record uint64, epoch uint64) storage.Block {
	x := d.Index.ExtentTable[record]
	return storage.Block{Object: d.Index.Shard(x.Shard).Object, OffsetBytes: x.OffsetBytes, SizeBytes: x.SizeBytes, Epoch: epoch}
}

// For a reader that reads on: all records but the first ones are expected in its order, and passed
// before they are read.
func TestSequentialReaderExpectsRecordsInItsOrder(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 3, Records: 9000, MaxBytes: 1000})
	g, e := newExpected(t, d, 2<<20)
	seq := readtest.RandomOrder(1, d.Index)
	r := g.Open(inEpoch{seq, 5})
	var l budget.Records
	for k := 0; k < len(seq); {
		require.NoError(t, r.Read(context.Background(), uint64(k), 50, &l))
		for i, b := range l.Records {
			require.Equal(t, string(d.Records[seq[k+i]]), string(b))
		}
		k += len(l.Records)
		l.Release()
		for _, of := range e.readers {
			require.LessOrEqual(t, len(of), 4096)
		}
	}
	require.Greater(t, len(e.passed), len(seq)-1000)
	from := len(seq) - len(e.passed)
	for i, got := range e.passed {
		require.Equal(t, rangeOf(d, seq[from+i], 5), got)
	}
	require.Less(t, e.wants, 60, "not for each call")
	r.Close()
	require.Empty(t, e.readers)
}

// Many readers announce as much as few, and no more often.
func TestManyReadersExpectAsFarAsOneDoes(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 3, Records: 4000, MaxBytes: 200})
	for _, count := range []int{8, 40} {
		g, e := newExpected(t, d, 64<<20)
		readers := make([]*Reader, count)
		seqs := make([]readtest.List, count)
		for i := range readers {
			seqs[i] = readtest.RandomOrder(uint64(i), d.Index)
			readers[i] = g.Open(seqs[i])
		}
		var l budget.Records
		furthest, limit := 0, min(exactRecords, mostExactWants/count)
		for k := 0; k < 8000; k += 50 {
			for i, r := range readers {
				for from, end := k, k+50; from < end; {
					require.NoError(t, r.Read(context.Background(), uint64(from), end-from, &l))
					require.Equal(t, string(d.Records[seqs[i][from]]), string(l.Records[0]))
					from += len(l.Records)
					l.Release()
				}
			}
			for _, of := range e.readers {
				furthest = max(furthest, len(of))
			}
		}
		require.Greater(t, furthest, limit*9/10, "%d readers", count)
		require.Less(t, e.wants, count*(20+8*8000/limit), "%d readers: not for each call", count)
		for _, r := range readers {
			r.Close()
		}
		require.Empty(t, e.readers)
	}
}

// The bounds of package window: how many records a reader expects, and all readers together.
const exactRecords, mostExactWants = 4096, 64 << 10

// For a reader that jumps now and then: what it expected is forgotten, what it reads on afterwards
// is expected, and nothing else is ever passed.
func TestJumpForgetsExpectedRecords(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 3, Records: 9000, MaxBytes: 1000})
	g, e := newExpected(t, d, 2<<20)
	seq := readtest.RandomOrder(1, d.Index)
	at := map[storage.Block]bool{}
	for _, n := range seq {
		at[rangeOf(d, n, 0)] = true
	}
	r := g.Open(seq)
	dice := rand.New(rand.NewPCG(1, 1))
	var l budget.Records
	for range 20 {
		k := dice.IntN(len(seq) - 4000)
		for end := k + 3000; k < end; {
			require.NoError(t, r.Read(context.Background(), uint64(k), 40, &l))
			for i, b := range l.Records {
				require.Equal(t, string(d.Records[seq[k+i]]), string(b))
			}
			k += len(l.Records)
			l.Release()
		}
	}
	require.Positive(t, e.forgotten)
	require.Greater(t, len(e.passed), 10_000)
	for _, x := range e.passed {
		require.True(t, at[x])
	}
	r.Close()
	require.Empty(t, e.readers)
}
