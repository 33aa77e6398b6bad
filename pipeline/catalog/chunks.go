package catalog

import "github.com/lsiofs/lsiofs/pipeline/catalog/index"

// ChunkStarts gives the number of the first record of each chunk, ascending,
// and Records() at the end (pipeline/order/SELECTION.md, Chunks).
func (c *Catalog) ChunkStarts(chunkBytes, chunkRecords uint64) []uint64 {
	return c.starts(cutter{chunkBytes: chunkBytes, chunkRecords: chunkRecords})
}

// PieceStarts is ChunkStarts as if every record were an entry point: for
// shards without compression the same, for others the portions in which a
// chunk too large to hold is decoded. Of a shard that is made of parts, a chunk of
// at most wholeBytes is one piece: a game is decoded at once or not at all.
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
	wholeBytes               uint64 // up to which a chunk of parts is not cut
	starts                   []uint64

	bytes, records uint64 // of the chunk that is being filled
	sizes          [index.BlockRecords]int64

	// The chunk of parts that is being cut into pieces.
	whole      int    // its place in starts
	wholeSoFar uint64 // its bytes
}

// shard cuts a shard whose first record has that number.
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

// fullPart says whether the chunk at hand may end: it is full, or has been cut
// into pieces already.
func (k *cutter) fullPart(full bool) bool { return full || len(k.starts) > k.whole+1 }

// endWhole ends a chunk of parts, if there is one: what is not too large is one
// piece, wherever it was cut.
func (k *cutter) endWhole(begun bool) {
	if begun && k.wholeSoFar <= k.wholeBytes {
		k.starts = k.starts[:k.whole+1]
	}
	k.whole, k.wholeSoFar = len(k.starts), 0
}
