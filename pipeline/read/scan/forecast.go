package scan

import (
	"context"
	"slices"
	"sort"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/decode"
	"github.com/lsiofs/lsiofs/pipeline/read/pinned"
	"github.com/lsiofs/lsiofs/pipeline/read/window"
)

// Forecast is what a reader's next records take, if nothing is in memory, not
// even in the page cache, and nobody else reads.
type Forecast struct {
	Pieces uint64 // that are read or decoded, each once
	// KeptBytes is the most that has been read at a time and is still to go
	// out, to this reader or to others.
	KeptBytes int64
	// Fits says that KeptBytes, and what is read ahead, is well within the
	// budget. Where it does not, pieces may be dropped and read again.
	Fits bool
	// Estimated is set where records of compressed shards are among those
	// wanted: how much is read of a shard up to a place inside of a member is
	// then interpolated, and decoders are taken to keep on their way all that
	// is looked at in advance, and to go through the shard again for the rest.
	Estimated bool
	// Passes is how often decoders go through compressed shards, or parts of
	// them, of which there are Compressed.
	Passes, Compressed uint64
	// Spooled is how many shards go through the spool. They are read whole, and
	// once, as long as the spool has room for what the order needs; what is then
	// read of the spool itself is not counted.
	Spooled uint64
}

// ForecastReads goes through records 0 … n-1 of a sequence and calls read with the
// size of each storage read that they take where they are scanned, or spooled as
// a choice says. What would be read ahead of the records behind them is not counted.
//
// Of the configuration it uses what says where records lie, sizes and the profile. It reads
// nothing itself. It ends early with the context's error.
func ForecastReads(ctx context.Context, config Config, seq pinned.Sequence, n uint64, how choose.Choice, read func(sizeBytes int64)) (Forecast, error) {
	f := forecaster{config}
	var c Forecast
	spooled := make([]uint64, len(how.Spooled)) // a bit a shard that has been read
	seen := make([]uint64, (f.Places.Table.Len()+63)/64)
	numbers, sizes := make([]uint64, lendBlock), make([]catalog.Extent, lendBlock)
	compressed := map[int][]pass{} // of a shard
	bytes, kept := int64(0), int64(0)
	for k := uint64(0); k < n; {
		if err := ctx.Err(); err != nil {
			return c, err
		}
		m := seq.Records(k, numbers[:min(n-k, lendBlock)])
		if m == 0 {
			break
		}
		f.Index.Extents(numbers[:m], sizes[:m])
		for i, record := range numbers[:m] {
			piece := f.Places.Table.Of(record)
			if w, bit := &seen[piece>>6], uint64(1)<<(piece&63); *w&bit == 0 {
				*w |= bit
				c.Pieces++
				shard, l := f.layoutOf(piece)
				if how.Spools(shard) {
					if w, bit := &spooled[shard/64], uint64(1)<<(shard%64); *w&bit == 0 {
						*w |= bit
						c.Spooled++
						f.forecastRaw(shard, f.Index.Entry(shard, 0), f.Index.Shard(shard).DecodedBytes, read)
					}
				} else {
					f.forecastPiece(piece, shard, &l, place{k + uint64(i), c.Pieces, bytes}, compressed, read)
				}
				size := int64(0)
				for _, s := range l.Spans {
					size += max(s.SizeBytes, 0)
				}
				bytes, kept = bytes+size, kept+size
				c.KeptBytes = max(c.KeptBytes, kept)
			}
			kept = max(kept-sizes[i].SizeBytes, 0)
		}
		k += uint64(m)
	}
	c.Estimated = len(compressed) > 0
	c.Fits = c.KeptBytes+min(f.Profile.Ahead.Bytes, f.Limits.WindowBytes) <= f.Limits.CacheBytes/5*4
	c.Compressed = uint64(len(compressed))
	for shard, passes := range compressed {
		c.Passes += uint64(len(passes))
		for _, p := range passes {
			f.forecastDecoding(shard, p.pieces, read)
		}
	}
	return c, nil
}

// forecaster forecasts for a scanner of such a configuration.
type forecaster struct{ Config }

// pass is one way of decoders through a compressed shard, for the pieces that
// they bring on it: those that follow each other, and those before them that
// were looked at in advance, or read ahead, when it began, or all of them where
// memory holds the dataset.
type pass struct {
	began  place
	last   int // its last piece
	pieces []int
}

// place is how far a forecast has come.
type place struct {
	records, pieces uint64
	bytes           int64 // of the pieces
}

// take gives a piece, wanted at some place, to the shard's last pass, or begins
// another one.
func (f *forecaster) take(passes []pass, piece int, at place) []pass {
	if n := len(passes); n > 0 {
		if p := &passes[n-1]; f.HoldsAll || piece > p.last || f.inAdvance(p.began, at) {
			p.last = max(p.last, piece)
			p.pieces = append(p.pieces, piece)
			return passes
		}
	}
	return append(passes, pass{at, piece, []int{piece}})
}

// inAdvance says whether a reader at one place knows of a piece at another.
func (f *forecaster) inAdvance(from, to place) bool {
	records := to.records - from.records
	return records < uint64(f.LookaheadRecords) ||
		records < window.MaxRecords && to.pieces-from.pieces < window.MaxPieces && to.bytes-from.bytes < min(f.Profile.Ahead.Bytes, f.Limits.WindowBytes)
}

// forecastPiece calls read for those of a piece of a shard that is not
// compressed; others go to a pass.
func (f *forecaster) forecastPiece(number, shard int, l *chunkmap.Layout, at place, compressed map[int][]pass, read func(int64)) {
	if f.Index.Shard(shard).Codec != nil {
		compressed[shard] = f.take(compressed[shard], number, at)
	} else {
		f.reads(l, func(r chunkmap.Range) { read(r.SizeBytes) })
	}
}

// forecastDecoding calls read for what decoders read of a compressed shard that
// go through the pieces in order, as assign would have them do.
func (f *forecaster) forecastDecoding(shard int, pieces []int, read func(int64)) {
	slices.Sort(pieces)
	var begin format.Entry // where the decoder at hand began
	at := int64(-1)        // where it stands, -1 for none
	for _, piece := range pieces {
		_, l := f.layoutOf(piece)
		entry := f.Index.Entry(shard, l.Start())
		if at < 0 || decode.Enters(l.Start(), at, entry.DecodedBytes) {
			if at >= 0 {
				f.forecastRaw(shard, begin, at, read)
			}
			begin = entry
		}
		at = l.ReachBytes
	}
	f.forecastRaw(shard, begin, at, read)
}

// forecastRaw calls read for the blocks that a decoder reads from an entry to a
// place in the decoded shard, and the one ahead.
func (f *forecaster) forecastRaw(shard int, from format.Entry, to int64, read func(int64)) {
	block := int64(f.Limits.RawBlockBytes)
	end := f.Index.Shard(shard).Object.SizeBytes
	blocks := (f.rawPlace(shard, to)-from.RawBytes+block-1)/block + 1
	for at := from.RawBytes; at < end && blocks > 0; blocks-- {
		n := min(block, end-at)
		read(n)
		at += n
	}
}

// rawPlace is about where in the file a place in the decoded shard is: between
// the first byte of the member that it lies in and that of the one behind it.
func (f *forecaster) rawPlace(shard int, decoded int64) int64 {
	s := f.Index.Shard(shard)
	before, behind := f.Index.Entry(shard, decoded), format.Entry{DecodedBytes: s.DecodedBytes, RawBytes: s.Object.SizeBytes}
	// The first byte behind the place that does not lie in its member.
	rest := max(s.DecodedBytes-decoded, 0)
	next := int64(sort.Search(int(rest), func(i int) bool {
		return f.Index.Entry(shard, decoded+int64(i)).DecodedBytes > before.DecodedBytes
	}))
	if next < rest {
		behind = f.Index.Entry(shard, decoded+next)
	}
	if behind.DecodedBytes <= before.DecodedBytes {
		return behind.RawBytes
	}
	share := float64(decoded-before.DecodedBytes) / float64(behind.DecodedBytes-before.DecodedBytes)
	return before.RawBytes + int64(share*float64(behind.RawBytes-before.RawBytes))
}
