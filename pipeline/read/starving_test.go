package read

import (
	"context"
	"fmt"
	"testing"

	"github.com/dustin/go-humanize"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// readWithin reads all of a sequence, and fails as soon as more than times the dataset has been
// decoded, or read in bytes of pieces.
func readWithin(t testing.TB, d *readtest.Dataset, f *Fetcher, seq readtest.List, times float64) {
	t.Helper()
	most := uint64(times * float64(d.DecodedBytes()))
	r := f.Open(seq)
	defer r.Close()
	var l Loan
	for k := 0; k < len(seq); {
		require.NoError(t, r.Read(context.Background(), uint64(k), min(500, len(seq)-k), &l))
		for i, b := range l.Records {
			if want := d.Records[seq[k+i]]; string(want) != string(b) {
				require.Equal(t, string(want), string(b), "record %d of the sequence, number %d", k+i, seq[k+i])
			}
		}
		k += len(l.Records)
		l.Release()
		if s := f.Stats(); s.DecodedBytes > most {
			require.Failf(t, "starved", "%s: %d of %d records have come, and %s of %s were decoded; %d pieces were read, %d again",
				s.Reason, k, len(seq), humanize.IBytes(s.DecodedBytes), humanize.IBytes(uint64(d.DecodedBytes())), s.PiecesRead, s.PiecesReread)
		}
	}
	s := f.Stats()
	t.Logf("%s (%s): decoded %.2f times, %d of %d pieces read again", s.Strategy, s.Reason, float64(s.DecodedBytes)/float64(d.DecodedBytes()), s.PiecesReread, f.o.Survey.Places.Table.Len())
}

// The order of a mount's defaults.
func usualOrder() spec.Order { return spec.Default().Order }

// Records of few bytes in compressed shards of one member: the table entry of each is larger than
// the record. The datasets and budgets are a quarter of those at which no record arrived for
// minutes.
func TestRecordsSmallerThanTheirTablesDoNotStarve(t *testing.T) {
	const quarter = 4
	for _, c := range []struct{ recordBytes, datasetMiB, memoryMiB int }{
		{12, 30, 64}, {12, 30, 40}, {30, 60, 100},
		// In nightly tests.
		{40, 60, 92}, {12, 30, 200}, {20, 60, 110}, {30, 60, 64}, {30, 60, 120},
	}[:lessBeforeNight(8, lessIfShort(3, 1))] {
		const shards = 8
		d := readtest.Make(t, readtest.Shape{Codec: "gz", Shards: shards, Records: c.datasetMiB << 20 / quarter / shards / c.recordBytes, MaxBytes: c.recordBytes, SameSize: true})
		g := readtest.ReservoirOrder(5, d.Index, 32, 16384)
		for read, times := range map[spec.Read]float64{spec.ReadAuto: 1 + choose.MostDecodedAgain, spec.ReadScan: 60} {
			if read == spec.ReadScan && c.memoryMiB == 40 {
				continue // memory does not hold what waits, and scan would never be chosen
			}
			t.Run(fmt.Sprintf("%+v/%s", c, read), func(t *testing.T) {
				config := spoolConfig(t, int64(c.memoryMiB)<<20/quarter, usualOrder())
				config.Read, config.PieceBytes, config.PieceRecords = read, 256<<10, 128
				f := newSpoolingFetcher(t, d, config, readtest.OpenStorage(t, d.Dir))
				readWithin(t, d, f, g, times)
			})
		}
	}
}

// 12 106 records of one byte, each a piece, in 2 MiB: their tables are hundreds of times as large
// as the records.
func TestOneByteRecordsInOwnPiecesDoNotStarve(t *testing.T) {
	for _, codec := range []string{"gz", "zst", ""} {
		d := readtest.Make(t, readtest.Shape{Codec: codec, Shards: 2, Records: 6053, MaxBytes: 1, SameSize: true})
		if testing.Short() && codec == "zst" {
			continue // same as gz
		}
		for name, g := range map[string]readtest.List{"reservoir": readtest.ReservoirOrder(5, d.Index, 1, 16384), "full": readtest.RandomOrder(5, d.Index)} {
			for _, read := range []spec.Read{spec.ReadAuto, spec.ReadScan} {
				t.Run(fmt.Sprintf("%s/%s/%s", codec, name, read), func(t *testing.T) {
					o := usualOrder()
					if name == "full" {
						o.Shuffle = spec.ShuffleFull
					}
					config := spoolConfig(t, 2<<20, o)
					config.Read, config.PieceBytes, config.PieceRecords = read, 256<<10, 1
					f := newSpoolingFetcher(t, d, config, readtest.OpenStorage(t, d.Dir))
					readWithin(t, d, f, g, 100)
					s := f.Stats()
					require.LessOrEqual(t, s.PiecesReread, 100*uint64(len(g)))
				})
			}
		}
	}
}
