package catalog

// ChunkStarts gives the number of the first record of each chunk, ascending,
// and Records() at the end (ORDER.md, Chunks).
func (c *Catalog) ChunkStarts(chunkBytes, chunkRecords uint64) []uint64 {
	return c.starts(chunkBytes, chunkRecords, false)
}

// PieceStarts is ChunkStarts as if every record were an entry point: for
// shards without compression the same, for others the portions in which a
// chunk too large to hold is decoded.
func (c *Catalog) PieceStarts(chunkBytes, chunkRecords uint64) []uint64 {
	return c.starts(chunkBytes, chunkRecords, true)
}

func (c *Catalog) starts(chunkBytes, chunkRecords uint64, anywhere bool) []uint64 {
	k := cutter{chunkBytes: chunkBytes, chunkRecords: chunkRecords}
	k.starts = make([]uint64, 0, c.image.h.records/max(chunkRecords, 1)+1)
	for i := range c.image.h.shards {
		k.shard(c.image.blob(i), c.image.start(i), anywhere)
	}
	return append(k.starts, c.image.h.records)
}

// cutter applies the chunk rule.
type cutter struct {
	chunkBytes, chunkRecords uint64
	starts                   []uint64

	bytes, records uint64 // of the chunk that is being filled
	sizes          [blockRecords]int64
}

// shard cuts a shard whose first record has that number.
func (k *cutter) shard(b blob, first uint64, anywhere bool) {
	h := b.header()
	l := h.layout()
	every := anywhere || h.flags&flagCompressed == 0
	k.bytes, k.records = 0, 0
	for i := range blockCount(h.records) {
		from := i << blockShift
		n := min(blockRecords, h.records-from)
		block := b.block(i, n)
		block.sizes(b, &k.sizes)
		for j := range n {
			full := k.bytes >= k.chunkBytes || k.records >= k.chunkRecords
			if o := from + j; o == 0 || full && (every || b.isEntry(&l, o)) {
				k.starts = append(k.starts, first+o)
				k.bytes, k.records = 0, 0
			}
			k.bytes += uint64(k.sizes[j])
			k.records++
		}
	}
}
