package read

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
)

func TestPartIsReadWithoutWaitingForOrRetainingRest(t *testing.T) {
	for name, s := range readtest.Shapes() {
		t.Run(name, func(t *testing.T) {
			d := readtest.Make(t, s)
			for which, part := range readtest.Parts(d.Index) {
				for order, seq := range map[string]readtest.List{"none": readtest.InOrder(d.Index), "reservoir": readtest.ReservoirOrder(3, d.Index, 3, 90)} {
					for _, budget := range budgets[:lessIfShort(3, 1)] {
						t.Run(fmt.Sprintf("%s/%s/budget=%d", which, order, budget), func(t *testing.T) {
							f, err := newFetcher(d.Index, readtest.OpenStorage(t, d.Dir), Options{
								MemoryBytes: budget, ReadTimeout: time.Minute, PieceBytes: 16 << 10, PieceRecords: 32, Read: d.Read, Part: part, Released: readtest.Poison,
							})
							require.NoError(t, err)
							defer func() { require.NoError(t, f.Close()) }()
							readEpochs(t, d, f, part.Of(seqFor(seq, budget)), 2)
						})
					}
				}
			}
		})
	}
}

// Forecasts of a part match what is read of it.
func TestForecastsOfPartAreExact(t *testing.T) {
	for name, s := range map[string]readtest.Shape{
		"records side by side": {Shards: 5, Records: 300, MaxBytes: 2000},
		"gaps":                 {Shards: 3, Records: 200, MaxBytes: 300, GapBytes: 3000},
		"large records":        {Shards: 3, Records: 40, MaxBytes: 60_000},
	} {
		d := readtest.Make(t, s)
		for which, part := range readtest.Parts(d.Index) {
			t.Run(name+", "+which, func(t *testing.T) {
				c, forecast, read := forecastAndRead(t, d, part.Of(readtest.InOrder(d.Index)), Options{
					MemoryBytes: 64 << 20, ReadTimeout: time.Minute, PieceBytes: 64 << 10, PieceRecords: 50, Part: part,
				})
				require.Equal(t, forecast, read)
				require.False(t, c.Estimated)
				whole, _, _ := forecastAndRead(t, d, readtest.InOrder(d.Index), Options{MemoryBytes: 64 << 20, ReadTimeout: time.Minute, PieceBytes: 64 << 10, PieceRecords: 50})
				require.LessOrEqual(t, c.KeptBytes, whole.KeptBytes)
			})
		}
	}
}

// A checksum at the end of a shard is verified even if the shard's last records are in another
// part.
func TestDamageAfterLastRecordOfPartIsDetected(t *testing.T) {
	for _, member := range []int{0, 40} {
		d := readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 1, Records: 110, MaxBytes: 900, Member: member})
		path := filepath.Join(d.Dir, d.Index.ShardTable[0].Object.Path)
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		raw[len(raw)-5] ^= 1 // of the last member's checksum
		require.NoError(t, os.WriteFile(path, raw, 0o644))
		d.Index.ShardTable[0].Object = readtest.Listed(t, d.Dir, d.Index.ShardTable[0].Object.Path)

		part := make(readtest.Some, 110)
		for i := range 50 {
			part[i] = true
		}
		f, err := newFetcher(d.Index, readtest.OpenStorage(t, d.Dir), Options{MemoryBytes: 8 << 20, ReadTimeout: time.Minute, PieceBytes: 16 << 10, PieceRecords: 32, Part: part})
		require.NoError(t, err)
		r := f.Open(part.Of(readtest.InOrder(d.Index)))
		var l Loan
		for k := 0; k < 50 && err == nil; k += len(l.Records) {
			l.Release()
			err = r.Read(t.Context(), uint64(k), 50, &l)
		}
		l.Release()
		var corrupt *format.CorruptError
		require.ErrorAs(t, err, &corrupt)
		r.Close()
		require.NoError(t, f.Close())
	}
}
