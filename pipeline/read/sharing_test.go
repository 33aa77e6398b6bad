package read

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// generation is a fetcher of a shared memory, with its dataset.
type generation struct {
	*Fetcher
	data *readtest.Dataset
	seq  readtest.List
}

func openGeneration(t *testing.T, m *Memory, s readtest.Shape, config Options) *generation {
	t.Helper()
	d := readtest.Make(t, s)
	config.MemoryBytes, config.Memory, config.Released = m.Bytes(), m, readtest.Poison
	config.ReadTimeout, config.PieceBytes, config.PieceRecords = time.Minute, 16<<10, 32
	f, err := newFetcher(d.Index, readtest.OpenStorage(t, d.Dir), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return &generation{f, d, readtest.ReservoirOrder(3, d.Index, 3, 90)}
}

// strategies returns constructors of generations for each way of reading.
func strategies(t *testing.T, m *Memory) map[string]func() *generation {
	spooled := spoolConfig(t, m.Bytes(), spoolReservoir)
	return map[string]func() *generation{
		"scan": func() *generation {
			return openGeneration(t, m, readtest.Shape{Shards: 12, Records: 900, MaxBytes: 2000}, Options{Read: spec.ReadScan})
		},
		"gather": func() *generation {
			return openGeneration(t, m, readtest.Shape{Shards: 12, Records: 900, MaxBytes: 2000}, Options{Read: spec.ReadGather})
		},
		"packed": func() *generation {
			return openGeneration(t, m, readtest.Shape{Codec: "gz", Member: 40, Shards: 8, Records: 900, MaxBytes: 2000}, Options{Read: spec.ReadScan})
		},
		"spool": func() *generation {
			return openGeneration(t, m, readtest.Shape{Codec: "gz", Shards: 8, Records: 900, MaxBytes: 2000}, spooled)
		},
	}
}

// readEpoch reads all of a generation with several readers at the same time, and calls after
// following each of their calls.
func (g *generation) readEpoch(t *testing.T, readers int, after ...func()) {
	var wg sync.WaitGroup
	for w := range readers {
		seq := g.seq.Deal(w, readers)
		r := g.Open(seq)
		wg.Go(func() {
			defer r.Close()
			var l Loan
			for k := 0; k < len(seq); {
				if err := r.Read(context.Background(), uint64(k), 20, &l); err != nil {
					t.Error(err)
					return
				}
				for i, b := range l.Records {
					if string(b) != string(g.data.Records[seq[k+i]]) {
						t.Errorf("record %d is another one", seq[k+i])
						return
					}
				}
				for _, look := range after {
					look()
				}
				k += len(l.Records)
				l.Release()
			}
		})
	}
	wg.Wait()
}

// However many generations are read at the same time, and in whatever way, together they hold no
// more than the one budget, and return the right bytes.
func TestTwoEpochsShareOneMemoryBudget(t *testing.T) {
	for _, kinds := range [][]string{
		{"spool", "gather", "scan", "packed"}, {"scan", "gather", "spool", "scan", "gather"},
		{"scan", "scan"}, {"gather", "gather"}, {"spool", "spool"}, {"packed", "packed"},
		{"scan", "gather"}, {"scan", "packed", "gather"},
	}[:lessIfShort(8, 1)] {
		t.Run(fmt.Sprint(kinds), func(t *testing.T) {
			m := NewMemory(16 << 20) // of about 10 MB each
			open := strategies(t, m)
			var mu sync.Mutex
			var list []*generation
			var most int64
			look := func() {
				mu.Lock()
				defer mu.Unlock()
				held := int64(0)
				for _, g := range list {
					held += g.Stats().HeldBytes
				}
				most = max(most, held)
			}
			var wg sync.WaitGroup
			for _, kind := range kinds {
				g := open[kind]() // while the others are read
				mu.Lock()
				list = append(list, g)
				mu.Unlock()
				wg.Go(func() {
					for range 2 {
						g.readEpoch(t, 2, look)
					}
				})
			}
			wg.Wait()
			require.LessOrEqual(t, most, m.Bytes())
			require.Greater(t, most, m.Bytes()/2, "it is used")
		})
	}
}

// A generation that is not read gives up its memory for one that is, and continues with a reader
// that was in the middle of it.
func TestIdleEpochYieldsItsMemory(t *testing.T) {
	for _, first := range []string{"spool", "gather", "packed", "scan"}[:lessIfShort(4, 2)] {
		t.Run(first, func(t *testing.T) {
			m := NewMemory(16 << 20)
			open := strategies(t, m)
			old := open[first]()
			alone := old.Stats().HeldBytes
			stands := old.Open(old.seq)
			var l Loan
			for k := 0; k < len(old.seq)/2; {
				require.NoError(t, stands.Read(context.Background(), uint64(k), 50, &l))
				k += len(l.Records)
				l.Release()
			}
			had := old.Stats().HeldBytes
			require.Greater(t, had, alone)

			next := open["scan"]()
			next.readEpoch(t, 2)
			next.readEpoch(t, 2)
			require.LessOrEqual(t, old.Stats().HeldBytes+next.Stats().HeldBytes, m.Bytes())
			require.Greater(t, next.share.Allowed(), m.Bytes()/2, "it has more than half")
			require.Less(t, old.Stats().HeldBytes, m.Bytes()/2)

			for k := len(old.seq) / 2; k < len(old.seq); {
				require.NoError(t, stands.Read(context.Background(), uint64(k), 50, &l))
				for i, b := range l.Records {
					require.Equal(t, string(old.data.Records[old.seq[k+i]]), string(b))
				}
				k += len(l.Records)
				l.Release()
			}
			stands.Close()
			require.NoError(t, next.Close())
			require.Equal(t, m.Bytes(), old.share.Allowed(), "one that is alone has all")
			old.readEpoch(t, 2)
		})
	}
}

// Idle readers that keep their records pinned don't block other readers.
func TestEpochWithPinnedRecordsBlocksNoOther(t *testing.T) {
	m := NewMemory(1 << 20)
	open := strategies(t, m)
	for _, kind := range []string{"scan", "gather"} {
		g := open[kind]()
		for w := range 8 {
			r := g.Open(g.seq.Deal(w, 8))
			defer r.Close()
			l := new(Loan)
			require.NoError(t, r.Read(context.Background(), 0, 20, l))
			defer l.Release()
		}
	}
	for _, kind := range []string{"scan", "gather"} {
		open[kind]().readEpoch(t, 2)
	}
}

// Spools that share their disk take no more than --spool-max together: one that is not read gives
// its room to the next, and its shards are decoded again.
func TestSpoolsShareTheirDisk(t *testing.T) {
	m := NewMemory(64 << 20)
	shape := readtest.Shape{Codec: "gz", Shards: 8, Records: 900, MaxBytes: 2000}
	config := spoolConfig(t, m.Bytes(), spoolFull)
	config.Spool.MaxBytes = 9 << 20 // of 7.2 MB decoded
	first := openGeneration(t, m, shape, config)
	first.readEpoch(t, 1)
	require.NotZero(t, first.Stats().Spool.UsedBytes)

	second := openGeneration(t, m, shape, config)
	require.Equal(t, "spool", second.Stats().Strategy)
	require.Zero(t, first.Stats().Spool.CapacityBytes, "it has given its room away")
	second.readEpoch(t, 1)
	first.readEpoch(t, 1) // without a spool
	together := func() int64 { return first.Stats().Spool.CapacityBytes + second.Stats().Spool.CapacityBytes }
	require.LessOrEqual(t, together(), config.Spool.MaxBytes)

	standing := second.Open(second.seq)
	defer standing.Close()
	third := openGeneration(t, m, shape, config)
	require.Equal(t, "scan", third.Stats().Strategy, "there is no room, and somebody reads")
	third.readEpoch(t, 1)

	require.NoError(t, second.Close())
	first.readEpoch(t, 1)
	require.NotZero(t, first.Stats().Spool.UsedBytes, "it has its room again")
}
