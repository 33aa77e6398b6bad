package read

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// reading hides that a storage can map.
type reading struct{ storage.Storage }

func (reading) Caps() storage.Caps { return storage.Caps{} }

// BenchmarkEpochFromPageCache copies a first shuffled epoch of files that are in the page cache, 1
// MiB at a time, as replies are made.
func BenchmarkEpochFromPageCache(b *testing.B) {
	for _, size := range []int{12800, 1200} {
		d := readtest.Make(b, readtest.Shape{Shards: 16, Records: 128 << 20 / 16 / size, MaxBytes: size, SameSize: true})
		seq := Sequence(readtest.ReservoirOrder(3, d.Index, 16, 4096))
		store := readtest.OpenFiles(b, d.Dir)
		for _, budget := range []int64{512 << 20, 32 << 20} {
			for name, s := range map[string]storage.Storage{"mapped": store, "read": reading{store}} {
				b.Run(fmt.Sprintf("record=%d/memory=%dMiB/%s", size, budget>>20, name), func(b *testing.B) {
					b.SetBytes(int64(size) * int64(seq.Len()))
					b.ReportAllocs()
					for b.Loop() {
						f, err := newFetcher(d.Index, s, Options{MemoryBytes: budget, ReadTimeout: time.Minute, PieceBytes: 256 << 10, PieceRecords: 128})
						require.NoError(b, err)
						copyEpoch(b, f, seq, size)
						require.NoError(b, f.Close())
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(seq.Len()), "ns/record")
				})
			}
		}
	}
}

// copyEpoch copies all records of a sequence, and checks the mapped files after each reply.
func copyEpoch(b testing.TB, f *Fetcher, seq Sequence, size int) {
	r := f.Open(seq)
	defer r.Close()
	reply := make([]byte, 0, 1<<20)
	var l Loan
	for k := uint64(0); k < seq.Len(); {
		n := min(int(seq.Len()-k), 1<<20/size)
		require.NoError(b, r.Read(context.Background(), k, n, &l))
		if len(reply)+len(l.Records)*size > cap(reply) {
			reply = reply[:0]
		}
		for _, x := range l.Records {
			reply = append(reply, x...)
		}
		require.NoError(b, l.Check())
		k += uint64(len(l.Records))
		l.Release()
	}
}
