package catalog

import "github.com/lsiofs/lsiofs/pipeline/catalog/index"

// ChunkStarts returns the number of the first record of each chunk, ascending, with Records() at
// the end (pipeline/order/SELECTION.md, Chunks).
func (c *Catalog) ChunkStarts(chunkBytes, chunkRecords uint64) []uint64 {
	return c.starts(cutter{chunkBytes: chunkBytes, chunkRecords: chunkRecords})
}

// PieceStarts is ChunkStarts as if every record were an entry point. For uncompressed shards the
// result is the same; for compressed ones these are the portions in which a chunk too large to hold
// is decoded. In a shard that is made of parts, a chunk of at most wholeBytes is one piece: a game
// is decoded at once or not at all.
func (c *Catalog) PieceStarts(chunkBytes, chunkRecords, wholeBytes uint64) []uint64 {
	return c.starts(cutter{chunkBytes: chunkBytes, chunkRecords: chunkRecords, anywhere: true, wholeBytes: wholeBytes})
}

func (c *Catalog) starts(k cutter) []uint64 {
	k.starts = make([]uint64, 0, c.image.Records()/max(k.chunkRecords, 1)+1)
	for i := range c.image.Shards() {
		k.shard(c.image.Blob(i), c.image.Start(i))
	}
	return append(k.starts, c.image.Records())
}

// cutter applies the chunk rule.
type cutter struct {
	chunkBytes, chunkRecords uint64
	anywhere                 bool   // as if every record were an entry point
	wholeBytes               uint64 // a chunk of parts up to this size is not cut
	starts                   []uint64

	bytes, records uint64 // of the chunk being filled
	sizes          [index.BlockRecords]int64

	// The chunk of parts that is being cut into pieces.
	whole      int    // its index in starts
	wholeSoFar uint64 // its bytes
}

// shard cuts a shard into chunks; first is the number of its first record.
func (k *cutter) shard(b index.Blob, first uint64) {
	h := b.Header()
	entries := b.Entries()
	parts := k.anywhere && h.Parts()
	every := k.anywhere || !h.Compressed()
	k.bytes, k.records = 0, 0
	for from := uint64(0); from < h.Records; from += index.BlockRecords {
		block, _ := b.BlockOf(from, h.Records)
		block.Sizes(&k.sizes)
		for j := range block.Records {
			full := k.bytes >= k.chunkBytes || k.records >= k.chunkRecords
			o := from + j
			if parts && (o == 0 || k.fullPart(full) && entries.Has(o)) {
				k.endWhole(o > 0)
				full = true
			}
			if o == 0 || full && (every || entries.Has(o)) {
				k.starts = append(k.starts, first+o)
				k.bytes, k.records = 0, 0
			}
			k.bytes += uint64(k.sizes[j])
			k.records++
			k.wholeSoFar += uint64(k.sizes[j])
		}
	}
	if parts {
		k.endWhole(h.Records > 0)
	}
}

// fullPart reports whether the current chunk may end: it is full, or has already been cut into
// pieces.
func (k *cutter) fullPart(full bool) bool { return full || len(k.starts) > k.whole+1 }

// endWhole ends a chunk of parts, if there is one. A chunk that is not too large becomes one piece,
// wherever it was cut.
func (k *cutter) endWhole(begun bool) {
	if begun && k.wholeSoFar <= k.wholeBytes {
		k.starts = k.starts[:k.whole+1]
	}
	k.whole, k.wholeSoFar = len(k.starts), 0
}
