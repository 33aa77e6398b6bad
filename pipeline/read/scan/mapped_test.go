package scan

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/mapped"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/faulty"
)

func TestMappedBytesAreCorrect(t *testing.T) {
	for name, s := range readtest.Scanned() {
		t.Run(name, func(t *testing.T) {
			d := readtest.Make(t, s)
			budgets := []int64{300 << 10, 64 << 20, 1, 2 << 20}
			if testing.Short() { // one budget at which pieces are evicted, one at which all are mapped
				budgets = budgets[:2]
			}
			for order, seq := range map[string]readtest.List{"none": readtest.InOrder(d.Index), "reservoir": readtest.ReservoirOrder(3, d.Index, 3, 90)} {
				for _, limit := range budgets {
					store := openMapper(t, d)
					sc := newMappedScanner(t, d, limit, store)
					readEpochs(t, d, sc, seq, 2)
					stats := sc.Stats()
					require.LessOrEqual(t, stats.MappedBytes, limit)
					if s.Codec != "" || limit == 1 {
						require.Zero(t, stats.RecordsMapped, "%s, budget %d", order, limit)
					} else if limit >= 2<<20 && s.GapBytes == 0 && s.Records > 1 {
						require.Positive(t, stats.RecordsMapped, "%s, budget %d", order, limit)
					}
					if s.Codec == "" && limit == 64<<20 && s.GapBytes == 0 && !s.NoNewline {
						// Not all: the kernel may be moving pages while it is asked about them.
						require.Greater(t, stats.RecordsMapped, stats.RecordsOut/2)
					}
				}
			}
		})
	}
}

func TestConcurrentReadersOfMapping(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 6, Records: 400, MaxBytes: 3000, Checksummed: true})
	g := readtest.ReservoirOrder(3, d.Index, 3, 300)
	for _, limit := range []int64{500 << 10, 1 << 20, 64 << 20} {
		store := openMapper(t, d)
		store.most = 5 // of 6
		sc := newMappedScanner(t, d, limit, store)
		stopped := sc.Open(g)
		var l budget.Records
		require.NoError(t, stopped.Read(context.Background(), 0, 1, &l))
		var wg sync.WaitGroup
		for w := range 4 {
			seq := g.Deal(w, 4)
			r := sc.Open(seq)
			wg.Go(func() {
				readtest.ReadAll(t, d, r, seq, 1+w*9)
				store.evictions.Add(1)
				readtest.ReadAll(t, d, r, seq, 20)
				r.Close()
			})
		}
		wg.Wait()
		require.Equal(t, string(d.Records[g[0]]), string(l.Records[0]), "a loan outlives all unmapping")
		require.LessOrEqual(t, sc.Stats().MappedBytes, limit)
		require.Positive(t, sc.Stats().RecordsMapped)
		l.Release()
		stopped.Close()
	}
}

func TestMappedMemoryStaysWithinBudget(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 6, Records: 500, MaxBytes: 4000}) // 6 MB
	const limit = 2 << 20
	sc := newMappedScanner(t, d, limit, openMapper(t, d))
	seq := readtest.ReservoirOrder(3, d.Index, 3, 200)
	r := sc.Open(seq)
	defer r.Close()
	var l budget.Records
	for k := 0; k < len(seq); {
		require.NoError(t, r.Read(context.Background(), uint64(k), 30, &l))
		require.LessOrEqual(t, sc.Stats().MappedBytes, int64(limit))
		k += len(l.Records)
		l.Release()
	}
	require.Greater(t, sc.Stats().RecordsMapped, uint64(len(seq)*9/10))
	require.True(t, inAddressSpace(t, d.Dir))
	r.Close()
	require.NoError(t, sc.Close())
	require.False(t, inAddressSpace(t, d.Dir), "nothing is left")
}

func inAddressSpace(t *testing.T, path string) bool {
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return strings.Contains(string(maps), path)
}

func TestPagesMissingFromPageCacheAreRead(t *testing.T) {
	d := readtest.Make(t, readtest.Shapes()["plain"])
	seq := readtest.ReservoirOrder(3, d.Index, 3, 90)
	for _, s := range d.Index.ShardTable {
		evict(t, filepath.Join(d.Dir, s.Object.Path))
	}
	for _, hot := range []bool{false, true} {
		store := openMapper(t, d)
		store.cold = !hot
		sc := newMappedScanner(t, d, 64<<20, store)
		r := sc.Open(seq)
		var l budget.Records
		require.NoError(t, r.Read(context.Background(), 0, 1, &l))
		require.Equal(t, hot, l.Mapped())
		l.Release()
		readtest.ReadAll(t, d, r, seq, 30)
		r.Close()
		require.Equal(t, hot, sc.Stats().BytesRead == 0)
	}
}

func TestEvictedPagesAreReadAgain(t *testing.T) {
	d := readtest.Make(t, readtest.Shapes()["plain"])
	seq := readtest.ReservoirOrder(3, d.Index, 3, 90)
	store := openMapper(t, d)
	sc := newMappedScanner(t, d, 64<<20, store)
	r := sc.Open(seq)
	defer r.Close()
	readtest.ReadAll(t, d, r, seq, 30)
	first := sc.Stats().RecordsMapped
	require.Positive(t, first)
	store.evictions.Add(1)
	readtest.ReadAll(t, d, r, seq, 30)
	again := sc.Stats().RecordsMapped
	require.Greater(t, again, first, "some pages went, but none of these")
	store.evicted.Store(true)
	store.evictions.Add(1)
	readtest.ReadAll(t, d, r, seq, 30)
	require.Equal(t, again, sc.Stats().RecordsMapped)
	require.GreaterOrEqual(t, sc.Stats().PiecesRead, uint64(sc.pieces.Len()))
}

// lendMapped reads the first records of a dataset's only shard.
func lendMapped(t *testing.T, n int) (*readtest.Dataset, *mapping, *testScanner, *Reader, *budget.Records) {
	d := readtest.Make(t, readtest.Shape{Shards: 1, Records: n, MaxBytes: 9000, SameSize: true})
	store := openMapper(t, d)
	sc := newMappedScanner(t, d, 64<<20, store)
	r := sc.Open(readtest.InOrder(d.Index))
	t.Cleanup(r.Close)
	l := new(budget.Records)
	for len(l.Records) < n { // its pieces are mapped one after the other
		l.Release()
		require.NoError(t, r.Read(context.Background(), 0, n, l))
	}
	require.True(t, l.Mapped())
	require.NoError(t, l.Check())
	require.EqualValues(t, 1, store.checks.Load(), "each file is asked about once")
	return d, store, sc, r, l
}

func TestTruncationUnderPinnedRecordsIsAnError(t *testing.T) {
	for name, failed := range map[string]func(t *testing.T, l *budget.Records) error{
		"zeros, shown by Check": func(t *testing.T, l *budget.Records) error {
			require.Zero(t, l.Records[1][2500], "record 1 ends in the zeros of the last page")
			return l.Check()
		},
		"a fault": func(t *testing.T, l *budget.Records) error {
			var to [9000]byte
			require.True(t, storage.Faulted(func() { copy(to[:], l.Records[30]) }))
			return l.Fault()
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, _, sc, r, l := lendMapped(t, 40)
			require.NoError(t, os.Truncate(filepath.Join(d.Dir, "shard-000"), 9000+2000))
			err := failed(t, l)
			l.Release()
			require.ErrorIs(t, err, storage.ErrChanged)
			require.ErrorContains(t, err, "shard-000: record 0 at [0, 9000): ")
			require.Contains(t, sc.errors(), err.Error())
			for k := range uint64(40) {
				err := r.Read(context.Background(), k, 1, l)
				require.ErrorIs(t, err, storage.ErrChanged, "record %d", k)
			}
		})
	}
}

// Before a truncation is visible otherwise, the file's last page shows zeros, and accesses after it
// fault: a record is delivered whole, or not at all.
func TestZerosOfTruncatedFileAreNeverDelivered(t *testing.T) {
	shape := readtest.Shape{Shards: 1, Records: 40, MaxBytes: 3000}
	rng := rand.New(rand.NewPCG(3, 4))
	caught := 0
	for range 60 {
		d := readtest.Make(t, shape)
		readtest.Alter(t, d, 0, func(b []byte) {
			for k, x := range d.Index.ExtentTable {
				if zeros := int64(rng.IntN(600)); k%2 == 0 && zeros < x.SizeBytes { // as the members of a tar end
					clear(b[x.OffsetBytes+x.SizeBytes-zeros : x.OffsetBytes+x.SizeBytes])
					clear(d.Records[k][x.SizeBytes-zeros:])
				}
			}
		})
		store := openMapper(t, d)
		store.unleased = true
		sc := newMappedScanner(t, d, 64<<20, store)
		r := sc.Open(readtest.InOrder(d.Index))
		loans := make([]budget.Records, 40) // one per record
		for k := range loans {
			require.NoError(t, r.Read(context.Background(), uint64(k), 1, &loans[k]))
			require.True(t, loans[k].Mapped())
			require.NoError(t, loans[k].Check())
		}
		size := d.Index.ShardTable[0].Object.SizeBytes
		require.NoError(t, os.Truncate(filepath.Join(d.Dir, "shard-000"), rng.Int64N(size)))
		for k := range loans {
			var got [3000]byte
			n := 0
			var err error
			if storage.Faulted(func() { n = copy(got[:], loans[k].Records[0]) }) {
				err = loans[k].Fault()
			} else {
				err = loans[k].Check()
			}
			if err != nil {
				require.ErrorIs(t, err, storage.ErrChanged)
				caught++
			} else {
				require.Equal(t, string(d.Records[k]), string(got[:n]), "record %d", k)
			}
			loans[k].Release()
		}
		r.Close()
		require.NoError(t, sc.Close())
	}
	require.Positive(t, caught)
}

func TestFaultInUnchangedFileIsReportedOnce(t *testing.T) {
	d, _, sc, r, l := lendMapped(t, 40)
	err := l.Fault()
	l.Release()
	require.ErrorIs(t, err, mapped.ErrFault)
	require.ErrorContains(t, err, "shard-000: record 0 at [0, 9000): ")
	require.Len(t, sc.errors(), 1)
	readtest.ReadAll(t, d, r, readtest.InOrder(d.Index), 7)
}

func TestPinnedRecordsWithoutMappingNeedNoCheck(t *testing.T) {
	var l budget.Records
	require.False(t, l.Mapped())
	require.NoError(t, l.Check())
	require.NoError(t, l.Fault())
}

func TestEachPinnedMappedFileIsCheckedOnce(t *testing.T) {
	d := readtest.Make(t, readtest.Shapes()["plain"])
	store := openMapper(t, d)
	sc := newMappedScanner(t, d, 64<<20, store)
	seq := readtest.RandomOrder(3, d.Index)
	r := sc.Open(seq)
	defer r.Close()
	readtest.ReadAll(t, d, r, seq, 30)
	var l budget.Records
	require.NoError(t, r.Read(context.Background(), 0, 300, &l))
	require.NoError(t, l.Check())
	require.EqualValues(t, len(d.Index.ShardTable), store.checks.Load())
	l.Release()
}

func TestMappedRecordWithBadChecksumFailsAlone(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 2, Records: 60, MaxBytes: 2000, Checksummed: true})
	x := d.Index.ExtentTable[17]
	readtest.Alter(t, d, 0, func(b []byte) { b[x.OffsetBytes+3] ^= 1 })
	sc := newMappedScanner(t, d, 1<<20, openMapper(t, d))
	r := sc.Open(readtest.InOrder(d.Index))
	defer r.Close()
	var l budget.Records
	for k := range d.Records {
		err := r.Read(context.Background(), uint64(k), 1, &l)
		if k == 17 {
			require.ErrorContains(t, err, "shard-000: record 17 at [")
			require.ErrorContains(t, err, "checksum mismatch")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, string(d.Records[k]), string(l.Records[0]))
		require.True(t, l.Mapped())
		l.Release()
	}
}

func TestUnmappableShardsAreRead(t *testing.T) {
	d := readtest.Make(t, readtest.Shapes()["plain"])
	seq := readtest.InOrder(d.Index)
	for name, s := range map[string]storage.Storage{
		"a wrapper is no mapper": faulty.New(readtest.OpenFiles(t, d.Dir)),
		"no mapping is left":     &mapping{Storage: readtest.OpenFiles(t, d.Dir), Leaser: readtest.OpenFiles(t, d.Dir), mapper: readtest.OpenFiles(t, d.Dir), most: 1, open: atomic.Int64{}},
	} {
		t.Run(name, func(t *testing.T) {
			if m, ok := s.(*mapping); ok {
				m.open.Store(1)
			}
			sc := newScannerOver(t, d, 64<<20, s)
			readEpochs(t, d, sc, seq, 2)
			require.Zero(t, sc.Stats().RecordsMapped)
			require.Equal(t, uint64(sc.pieces.Len()), sc.Stats().PiecesRead)
		})
	}
}

// One mapping at a time is enough to read shards one after the other.
func TestMappingsAreClosedToMakeRoom(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 3, Records: 2000, MaxBytes: 2000})
	store := openMapper(t, d)
	store.most = 1
	sc := newMappedScanner(t, d, 64<<20, store)
	seq := readtest.InOrder(d.Index)
	r := sc.Open(seq)
	readtest.ReadAll(t, d, r, seq, 30)
	r.Close()
	shards := map[int]bool{}
	for piece := range sc.pieces.Len() {
		if e := sc.slots.at(piece); e != nil && e.mapped() {
			shards[d.Index.ExtentTable[sc.pieces.Starts[piece]].Shard] = true
		}
	}
	require.Positive(t, sc.Stats().RecordsMapped)
	require.Len(t, shards, 1)
	require.NotContains(t, shards, 0, "the first shard's was closed for a later one")
}

func TestReadingMappedRecordsAllocatesNothing(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 4, Records: 500, MaxBytes: 1000})
	sc := newMappedScanner(t, d, 64<<20, openMapper(t, d))
	var seq chunkmap.Sequence = readtest.ReservoirOrder(3, d.Index, 4, 200)
	r := sc.Open(seq)
	defer r.Close()
	readtest.ReadAll(t, d, r, seq.(readtest.List), 100)
	var l budget.Records
	k := uint64(0)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if err := r.Read(context.Background(), k, 100, &l); err != nil || !l.Mapped() || l.Check() != nil {
			t.Fatal(err)
		}
		k = (k + uint64(len(l.Records))) % seq.Len()
		l.Release()
	}))
}
