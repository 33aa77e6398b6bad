package read

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestWorkersInStepReadEachPieceOnce(t *testing.T) {
	for _, codec := range []string{"", "gz"} {
		d := readtest.Make(t, readtest.Shape{Codec: codec, Shards: 8, Records: 600, MaxBytes: 2000})
		g := readtest.ReservoirOrder(3, d.Index, 3, 200)
		f := newTestFetcher(t, d, map[string]int64{"": 2 << 20, "gz": 5 << 20}[codec]) // of 5 MB
		// Alternating, as a loader reads them.
		readers := make([]*Reader, 4)
		seqs := make([]readtest.List, 4)
		for w := range readers {
			seqs[w] = g.Deal(w, 4)
			readers[w] = f.Open(seqs[w])
		}
		var l Loan
		for k := 0; k < len(seqs[0]); {
			for w, r := range readers {
				for at := k; at < min(k+10, len(seqs[w])); {
					require.NoError(t, r.Read(context.Background(), uint64(at), min(k+10, len(seqs[w]))-at, &l))
					for i, b := range l.Records {
						require.Equal(t, string(d.Records[seqs[w][at+i]]), string(b))
					}
					at += len(l.Records)
					l.Release()
				}
			}
			k += 10
		}
		for _, r := range readers {
			r.Close()
		}
		s := f.Stats()
		require.Equal(t, uint64(f.o.Survey.Places.Table.Len()), s.PiecesRead, "codec %q", codec)
		require.Zero(t, s.PiecesReread)
		require.Equal(t, uint64(len(g)), s.RecordsOut)
		require.Equal(t, s.RecordsOut, s.Hits+s.Waits)
	}
}

func TestSmallDatasetIsReadOnceForAllEpochs(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 6, Records: 200, MaxBytes: 1000})
	f := newTestFetcher(t, d, 8<<20)
	for epoch := range uint64(4) {
		seq := readtest.ReservoirOrder(epoch, d.Index, 4, 100)
		r := f.Open(seq)
		readtest.ReadAll(t, d, r, seq, 30)
		r.Close()
	}
	require.Equal(t, uint64(f.o.Survey.Places.Table.Len()), f.Stats().PiecesRead)
}

// A few records that wait long never keep the pieces that they came with: with room for little more
// than the buffer, nothing is read twice.
func TestRetainedPartsOfPiecesAreCompacted(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 12, Records: 1000, MaxBytes: 1000}) // 6 MB
	g := readtest.ReservoirOrder(3, d.Index, 4, 1500)                                // 750 kB
	f := newTestFetcher(t, d, 3<<20)
	r := f.Open(g)
	readtest.ReadAll(t, d, r, g, 30)
	r.Close()
	require.Less(t, f.Stats().PiecesReread, uint64(f.o.Survey.Places.Table.Len()/50))
}

func TestMemoryStaysWithinBudget(t *testing.T) {
	for _, codec := range []string{"", "gz"} {
		d := readtest.Make(t, readtest.Shape{Codec: codec, Shards: 6, Records: 200, MaxBytes: 2000})
		budgets := []int64{256 << 10, 512 << 10}
		if codec != "" {
			budgets = []int64{8 << 20} // a decoder has about 600 kB
		}
		for _, budget := range budgets {
			t.Run(fmt.Sprintf("%s/%d", codec, budget), func(t *testing.T) {
				f := newTestFetcher(t, d, budget)
				g := readtest.ReservoirOrder(3, d.Index, 4, 100)
				const readers = 8
				// A segment for each piece that is waited for, and each that is pinned, one to copy
				// into; and one decoder each, if shards are compressed.
				slack := (2*readers + 1) * f.o.Survey.Limits.SegmentBytes
				if codec != "" {
					slack += readers * 1 << 20
				}
				most := int64(0)
				var mu sync.Mutex
				var wg sync.WaitGroup
				for w := range readers {
					seq := g.Deal(w, readers)
					r := f.Open(seq)
					wg.Go(func() {
						defer r.Close()
						var l Loan
						for k := 0; k < len(seq); {
							if err := r.Read(context.Background(), uint64(k), 7, &l); err != nil {
								t.Error(err)
								return
							}
							held := f.Stats().HeldBytes
							mu.Lock()
							most = max(most, held)
							mu.Unlock()
							k += len(l.Records)
							l.Release()
						}
					})
				}
				wg.Wait()
				require.LessOrEqual(t, most, budget+slack)
			})
		}
	}
}

func TestManyOpenReadersWithOneActive(t *testing.T) {
	for _, read := range []spec.Read{spec.ReadScan, spec.ReadGather} {
		d := readtest.Make(t, readtest.Shape{Shards: 6, Records: 200, MaxBytes: 1000, Read: read})
		f := newTestFetcher(t, d, 200<<10)
		g := readtest.ReservoirOrder(3, d.Index, 3, 60)
		var l Loan
		for w := range 64 {
			r := f.Open(g.Deal(w, 64))
			defer r.Close()
			require.NoError(t, r.Read(context.Background(), 0, 3, &l))
			l.Release()
		}
		r := f.Open(g)
		defer r.Close()
		readtest.ReadAll(t, d, r, g, 25)
	}
}

func TestSeekAndConcurrentCallsOfOneReader(t *testing.T) {
	for name, s := range map[string]readtest.Shape{"plain": readtest.Shapes()["plain"], "gz": readtest.Shapes()["gz, many members"], "gathered": readtest.Shapes()["gathered"]} {
		d := readtest.Make(t, s)
		seq := readtest.ReservoirOrder(3, d.Index, 3, 60)
		f := newTestFetcher(t, d, 300<<10)
		r := f.Open(seq)
		var wg sync.WaitGroup
		for g := range 4 {
			rng := rand.New(rand.NewPCG(uint64(g), 7))
			wg.Go(func() {
				var l Loan
				for range 60 {
					k := rng.IntN(len(seq))
					if err := r.Read(context.Background(), uint64(k), 1+rng.IntN(20), &l); err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
					for i, b := range l.Records {
						if string(b) != string(d.Records[seq[k+i]]) {
							t.Errorf("%s: record %d is wrong", name, k+i)
						}
					}
					l.Release()
				}
			})
		}
		wg.Wait()
		r.Close()
	}
}

func TestReadingCachedRecordsAllocatesNothing(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 4, Records: 500, MaxBytes: 1000})
	f := newTestFetcher(t, d, 64<<20)
	var seq Sequence = readtest.ReservoirOrder(3, d.Index, 4, 200)
	r := f.Open(seq)
	defer r.Close()
	readtest.ReadAll(t, d, r, seq.(readtest.List), 100)
	var l Loan
	k := uint64(0)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if err := r.Read(context.Background(), k, 100, &l); err != nil {
			t.Fatal(err)
		}
		k = (k + uint64(len(l.Records))) % seq.Len()
		l.Release()
	}))
}

func BenchmarkReadPinned(b *testing.B) {
	d := readtest.Make(b, readtest.Shape{Shards: 16, Records: 1000, MaxBytes: 2400})
	for _, n := range []int{1, 80, 800} {
		b.Run(fmt.Sprintf("records=%d", n), func(b *testing.B) {
			f := newTestFetcher(b, d, 256<<20)
			var seq Sequence = readtest.ReservoirOrder(3, d.Index, 32, 2000)
			r := f.Open(seq)
			defer r.Close()
			readtest.ReadAll(b, d, r, seq.(readtest.List), 100)
			var l Loan
			b.ReportAllocs()
			k, records, bytes := uint64(0), 0, 0
			for b.Loop() {
				if err := r.Read(context.Background(), k, n, &l); err != nil {
					b.Fatal(err)
				}
				records += len(l.Records)
				for _, x := range l.Records {
					bytes += len(x)
				}
				k = (k + uint64(len(l.Records))) % seq.Len()
				l.Release()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(records), "ns/record")
			b.SetBytes(int64(bytes / b.N))
		})
	}
}

// Large pieces are read as whole pages, into memory that is aligned like the file, and have the
// same bytes.
func TestLargePiecesAreReadInWholePages(t *testing.T) {
	for name, s := range map[string]readtest.Shape{
		"sizes of all kinds": {Shards: 3, Records: 400, MaxBytes: 3000},
		"no newline":         {Shards: 3, Records: 400, MaxBytes: 3000, NoNewline: true},
		"checksummed":        {Shards: 2, Records: 300, MaxBytes: 3000, Checksummed: true},
		"large records":      {Shards: 2, Records: 9, MaxBytes: 300_000},
	} {
		t.Run(name, func(t *testing.T) {
			d := readtest.Make(t, s)
			for _, budget := range []int64{200 << 10, 1 << 20, 64 << 20} {
				store := &alignedStorage{Storage: readtest.OpenStorage(t, d.Dir)}
				f, err := newFetcher(d.Index, store, Options{MemoryBytes: budget, ReadTimeout: time.Minute, PieceBytes: 200_000, PieceRecords: 128, Released: readtest.Poison})
				require.NoError(t, err)
				seq := readtest.ReservoirOrder(5, d.Index, 3, 200)
				r := f.Open(seq)
				readtest.ReadAll(t, d, r, seq, 25)
				r.Close()
				require.NoError(t, f.Close())
				require.Zero(t, store.astray.Load(), "reads that begin in a page")
				require.NotZero(t, store.large.Load())
			}
		})
	}
}

// alignedStorage counts large reads, and those of them that a direct read would have to copy.
type alignedStorage struct {
	storage.Storage
	large, astray atomic.Int64
}

func (s *alignedStorage) Caps() storage.Caps { return storage.Caps{} }

func (s *alignedStorage) Submit(reads []*storage.Read) {
	for _, r := range reads {
		end := r.OffsetBytes + int64(len(r.Buf))
		if len(r.Buf) < budget.AlignFromBytes {
			continue
		}
		s.large.Add(1)
		at := uintptr(unsafe.Pointer(unsafe.SliceData(r.Buf)))
		if r.OffsetBytes%budget.PageBytes != 0 || at%budget.PageBytes != 0 || end%budget.PageBytes != 0 && end != r.Object.SizeBytes {
			s.astray.Add(1)
		}
	}
	s.Storage.Submit(reads)
}
