package gather

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/pinned"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// expecter takes at most that many ranges of each reader, and records what was passed.
type expecter struct {
	most int

	mu        sync.Mutex
	readers   map[uint64][]storage.Range
	passed    []storage.Range
	forgotten int
}

func (e *expecter) Expect(reader uint64, next []storage.Range) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := min(len(next), e.most-len(e.readers[reader]))
	e.readers[reader] = append(e.readers[reader], next[:n]...)
	return n
}

func (e *expecter) Passed(reader uint64, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.passed = append(e.passed, e.readers[reader][:n]...)
	e.readers[reader] = e.readers[reader][n:]
}

func (e *expecter) Forget(reader uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.readers[reader]) > 0 {
		e.forgotten++
	}
	delete(e.readers, reader)
}

// newExpected returns a gatherer that reads each record separately, and announces it.
func newExpected(t *testing.T, d *readtest.Dataset, most int) (*Gatherer, *expecter) {
	e := &expecter{most: most, readers: map[uint64][]storage.Range{}}
	c := testOptions(d, 2<<20, readtest.OpenStorage(t, d.Dir))
	c.Profile.Apart = true
	c.Caps.Expecter = e
	return newGathererWith(t, c), e
}

// rangeOf returns the range of a record of a sequence.
func rangeOf(d *readtest.Dataset, record uint64, epoch uint64) storage.Range {
	x := d.Index.ExtentTable[record]
	return storage.Range{Object: d.Index.Shard(x.Shard).Object, OffsetBytes: x.OffsetBytes, SizeBytes: x.SizeBytes, Epoch: epoch}
}

// For a reader that reads on: all records but the first ones are expected in its order, and passed
// before they are read.
func TestSequentialReaderExpectsRecordsInItsOrder(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 3, Records: 9000, MaxBytes: 1000})
	for _, most := range []int{1 << 20, 700, 3} {
		g, e := newExpected(t, d, most)
		seq := readtest.RandomOrder(1, d.Index)
		r := g.Open(inEpoch{seq, 5})
		var l pinned.Records
		for k := 0; k < len(seq); {
			require.NoError(t, r.Read(context.Background(), uint64(k), 50, &l))
			for i, b := range l.Records {
				require.Equal(t, string(d.Records[seq[k+i]]), string(b))
			}
			k += len(l.Records)
			l.Release()
			require.LessOrEqual(t, len(e.readers[r.expected.reader]), most)
		}
		if most >= 700 {
			require.Greater(t, len(e.passed), len(seq)/2)
			from := len(seq) - len(e.passed)
			for i, got := range e.passed {
				require.Equal(t, rangeOf(d, seq[from+i], 5), got)
			}
		}
		r.Close()
		require.Empty(t, e.readers)
	}
}

// For a reader that jumps now and then: what it expected is forgotten, what it reads on afterwards
// is expected, and nothing else is ever passed.
func TestJumpForgetsExpectedRecords(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 3, Records: 9000, MaxBytes: 1000})
	g, e := newExpected(t, d, 1<<20)
	seq := readtest.RandomOrder(1, d.Index)
	at := map[storage.Range]bool{}
	for _, n := range seq {
		at[rangeOf(d, n, 0)] = true
	}
	r := g.Open(seq)
	dice := rand.New(rand.NewPCG(1, 1))
	var l pinned.Records
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
