package read

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func TestClosedReaderCancelsReadsOnlyItWanted(t *testing.T) {
	for name, s := range map[string]readtest.Shape{
		"scanned": {Shards: 2, Records: 3000, MaxBytes: 1000, SameSize: true}, "gathered": {Read: spec.ReadGather, Shards: 2, Records: 3000, MaxBytes: 1000, SameSize: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := readtest.Make(t, s)
			store, m := readtest.HoldReads(t, d)
			f := newFetcherOver(t, d, 64<<20, store)
			defer store.Release()
			r, other := f.Open(readtest.InOrder(d.Index)), f.Open(readtest.InOrder(d.Index))
			readtest.AskOn(t, r, 0)
			readtest.AskOn(t, other, 0)
			r.Close()
			other.Close()
			require.Zero(t, f.Stats().LoadsInFlight)
			store.Release()
			require.NoError(t, f.Close()) // when all reads have completed
			require.Empty(t, m.Reads)
			require.Positive(t, f.Stats().ReadsCancelled)
			require.Positive(t, f.Stats().BytesCancelled)
			require.Zero(t, f.Stats().Errors)
		})
	}
}

// A scan reads the piece that has the sample; a gather reads its bytes.
func TestRandomReadsLoadOnlyRequestedRecords(t *testing.T) {
	for name, s := range map[string]readtest.Shape{
		"scanned": {Shards: 3, Records: 4000, MaxBytes: 1000}, "gathered": {Read: spec.ReadGather, Shards: 3, Records: 4000, MaxBytes: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			d := readtest.Make(t, s)
			seq := readtest.RandomOrder(1, d.Index)
			store := &readtest.CountedStorage{Storage: readtest.OpenStorage(t, d.Dir)}
			f := newFetcherOver(t, d, 64<<20, store)
			r := f.Open(seq)
			defer r.Close()
			reads, bytes := int64(0), int64(0)
			seen := map[int]bool{}
			for i := range 50 {
				// Near the previous sample, and far from it.
				k := uint64(i/5*1100 + i%5*200)
				readtest.LendOne(t, d, r, seq, k)
				number := f.o.Survey.Places.Table.Of(seq[k])
				_, l := f.o.Survey.Places.Layout(number, func(int) int64 { return f.o.Profile.GapBytes })
				switch {
				case s.Read == spec.ReadGather:
					reads, bytes = reads+1, bytes+int64(len(d.Records[seq[k]]))
				case !seen[number]:
					reads, bytes = reads+1, bytes+l.SizeBytes
				}
				seen[number] = true
			}
			require.Equal(t, [2]int64{reads, bytes}, [2]int64{store.Reads.Load(), store.Bytes.Load()})
		})
	}
}
