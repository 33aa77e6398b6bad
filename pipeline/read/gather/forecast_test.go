package gather

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
)

// With room for it, each record is read once, in the reads that are forecast.
func TestAGatherReadsWhatIsForecast(t *testing.T) {
	for name, s := range map[string]readtest.Shape{
		"plain": {Shards: 6, Records: 250, MaxBytes: 12_000}, "gaps": {Shards: 2, Records: 1000, MaxBytes: 900, GapBytes: 12 << 10},
		"no newline": {Shards: 6, Records: 300, MaxBytes: 40, NoNewline: true}, "large": {Shards: 2, Records: 8, MaxBytes: 2 << 20},
	} {
		d := readtest.Make(t, s)
		for order, seq := range map[string]readtest.List{"none": readtest.InOrder(d.Index), "reservoir": readtest.ReservoirOrder(3, d.Index, 3, 90), "full": readtest.RandomOrder(4, d.Index)} {
			t.Run(name+"/"+order, func(t *testing.T) {
				store := &readtest.CountedStorage{Storage: readtest.OpenStorage(t, d.Dir)}
				g := newGathererOver(t, d, 256<<20, store)
				reads, bytes := int64(0), int64(0)
				c, err := ForecastReads(t.Context(), testConfig(d, 256<<20, store), seq, seq.Len(), func(n int64) {
					require.Positive(t, n)
					reads++
					bytes += n
				})
				require.NoError(t, err)
				require.Equal(t, bytes, c.ReadBytes)
				require.Zero(t, store.Reads.Load(), "a forecast reads nothing")
				r := g.Open(seq)
				defer r.Close()
				readtest.ReadAll(t, d, r, seq, askedRecords)
				require.Equal(t, [2]int64{reads, bytes}, [2]int64{store.Reads.Load(), store.Bytes.Load()})
				total := int64(0)
				for _, b := range d.Records {
					total += int64(len(b))
				}
				if s.NoNewline {
					total -= int64(s.Shards)
				}
				require.Equal(t, total, bytes-c.GapBytes, "each byte is read once")
			})
		}
	}
}
