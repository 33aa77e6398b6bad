package read

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// chunkStarts applies the chunk rule of pipeline/order/SELECTION.md to a dataset of shape s.
func chunkStarts(x *readtest.Index, s readtest.Shape, o spec.Order) []uint64 {
	starts := []uint64{0}
	var n, size uint64
	for r, e := range x.ExtentTable {
		entry := s.Codec == "" || s.Member > 0 && s.MemberBytes == 0 && e.Ordinal%uint64(s.Member) == 0
		if r > 0 && (e.Ordinal == 0 || entry && (size >= o.ChunkBytes || n >= o.ChunkRecords)) {
			starts = append(starts, uint64(r))
			n, size = 0, 0
		}
		n++
		size += uint64(e.SizeBytes)
	}
	return append(starts, x.Records())
}

// wholeEpoch returns the order of an epoch.
func wholeEpoch(t require.TestingT, x *readtest.Index, s readtest.Shape, o spec.Order) readtest.List {
	e, err := order.NewEpoch(o, 0, chunkStarts(x, s, o), nil)
	require.NoError(t, err)
	l := make(readtest.List, e.Len())
	e.Cursor(0).Next(l)
	return l
}

// Whatever is chosen, a whole epoch decodes each byte only a few times, within the bounds in the
// comment of package scan.
func TestAutomaticStrategyDecodesWithinDocumentedBound(t *testing.T) {
	countsInTurn(t)
	rapid.Check(t, func(rt *rapid.T) {
		s := readtest.Shape{
			Codec:    rapid.SampledFrom([]string{"gz", "zst"}).Draw(rt, "codec"),
			Shards:   rapid.IntRange(1, 12).Draw(rt, "shards"),
			MaxBytes: rapid.SampledFrom([]int{1, 3, 12, 40, 200, 1000, 6000}).Draw(rt, "record bytes"),
			SameSize: rapid.Bool().Draw(rt, "same size"),
		}
		s.Records = rapid.IntRange(1, min(20_000, 4<<20/s.MaxBytes)/s.Shards+1).Draw(rt, "records")
		switch rapid.IntRange(0, 3).Draw(rt, "members") {
		case 0:
			s.Member = rapid.IntRange(1, s.Records).Draw(rt, "records of a member")
			s.Member = max(s.Member, 1+s.Records/50)
		case 1:
			s.MemberBytes = max(rapid.IntRange(500, 200_000).Draw(rt, "bytes of a member"), s.Records*s.MaxBytes/50)
		}
		o := spec.Default().Order
		o.Shuffle = rapid.SampledFrom([]spec.Shuffle{spec.ShuffleReservoir, spec.ShuffleReservoir, spec.ShuffleBlock, spec.ShuffleFull, spec.ShuffleNone}).Draw(rt, "shuffle")
		o.Lanes = uint64(rapid.SampledFrom([]int{1, 2, 8, 32}).Draw(rt, "lanes"))
		o.SizeRecords = uint64(rapid.IntRange(1, 20_000).Draw(rt, "size"))
		o.ChunkRecords = uint64(rapid.SampledFrom([]int{1, 8, 128}).Draw(rt, "chunk records"))
		o.ChunkBytes = uint64(rapid.SampledFrom([]int{4 << 10, 64 << 10, 256 << 10}).Draw(rt, "chunk bytes"))
		budget := int64(rapid.SampledFrom([]int{1024, 2048, 4096, 8192, 16384, 32768}).Draw(rt, "KiB")) << 10
		budget += budget * int64(rapid.IntRange(0, 99).Draw(rt, "percent")) / 100

		d := readtest.Make(t, s)
		config := spoolConfig(t, budget, o)
		config.Read, config.PieceBytes, config.PieceRecords = spec.ReadAuto, o.ChunkBytes, o.ChunkRecords
		config.Decoders, config.LookaheadRecords = int(max(64, 2*o.Lanes)), int(max(64<<10, 4*o.SizeRecords))
		f, err := newFetcher(d.Index, readtest.OpenStorage(t, d.Dir), config)
		require.NoError(rt, err)
		defer func() { require.NoError(rt, f.Close()) }()
		seq := wholeEpoch(rt, d.Index, s, o)
		workers := rapid.IntRange(1, 3).Draw(rt, "workers")
		readInTurn(rt, d, f, seq, workers, rapid.Uint64().Draw(rt, "turns"))
		decoded, total := decodedBytes(f), d.DecodedBytes()
		times := float64(mostDecoded)
		if o.Shuffle == spec.ShuffleFull {
			times = mostDecodedFull
		}
		if float64(decoded) > times*float64(total) {
			rt.Fatalf("%s (%s): %d bytes decoded of %d: %.1f times", f.o.Choice.Strategy, f.o.Choice.Reason, decoded, total, float64(decoded)/float64(total))
		}
	})
}

// readInTurn reads a sequence with workers that alternate, several records each.
func readInTurn(t require.TestingT, d *readtest.Dataset, f *Fetcher, seq readtest.List, workers int, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	readers, seqs, at := make([]*Reader, workers), make([]readtest.List, workers), make([]int, workers)
	for w := range readers {
		seqs[w] = seq.Deal(w, workers)
		readers[w] = f.Open(seqs[w])
		defer readers[w].Close()
	}
	for left := len(seq); left > 0; {
		n := 1 + rng.IntN(20)
		for w, r := range readers {
			left -= readSome(t, d, r, seqs[w], &at[w], n)
		}
	}
}

func readSome(t require.TestingT, d *readtest.Dataset, r *Reader, seq readtest.List, at *int, n int) int {
	var l Loan
	from := *at
	for end := min(from+n, len(seq)); *at < end; {
		require.NoError(t, r.Read(context.Background(), uint64(*at), end-*at, &l))
		for i, b := range l.Records {
			if want := d.Records[seq[*at+i]]; string(want) != string(b) {
				require.Equal(t, fmt.Sprintf("%q", want), fmt.Sprintf("%q", b), "record %d", *at+i)
			}
		}
		*at += len(l.Records)
		l.Release()
	}
	return *at - from
}

// The bounds of package scan, in multiples of the decoded size of the shards.
const mostDecoded, mostDecodedFull = 32, 256
