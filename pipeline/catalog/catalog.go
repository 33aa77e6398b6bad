package catalog

import (
	"encoding/hex"
	"io"
	"math/bits"
	"sort"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Shard is one file of the dataset.
type Shard struct {
	Object       storage.Object
	Codec        format.Codec // nil if it is not compressed
	First        uint64       // number of its first record
	Records      uint64
	DecodedBytes int64
	EntryPoints  uint64 // records at which reading can start; chunks begin at these
	Members      uint64 // of a compressed shard: decoding can start at each
	Points       uint64 // further places where decoding can start, inside members
	DecoderBytes int64  // approximate peak memory of a decoder of a compressed shard; 0: unknown
	IDPrefix     uint64 // first 8 bytes of its records' IDs, big-endian
	Parts        bool   // it is made of parts, see Part
}

// Part is one part of a shard that is made of parts, such as a game in a tar. It consists of the
// decoded bytes [DecodedBytes, EndBytes), and begins at RawBytes of the file. The next part that
// was kept begins at EndRawBytes of the file; 0 means that there is none.
type Part struct {
	DecodedBytes, EndBytes int64
	RawBytes, EndRawBytes  int64
}

// Extent is the location of a record in its decoded shard. [OffsetBytes, OffsetBytes+SizeBytes) may
// end one byte after the shard: that byte is then a '\n'.
type Extent struct {
	Shard                  int
	Ordinal                uint64 // of the record in its shard
	OffsetBytes, SizeBytes int64
}

// Catalog describes a dataset: its shards and the location of each record. It is immutable and safe
// for concurrent use. Its methods do no I/O, except for page faults on the stored index.
type Catalog struct {
	root      string
	format    spec.Format
	unpacker  format.Format
	extension string
	kind      string
	store     *index.Store
	image     *index.Image
	coarse    coarse
	damaged   []Damage
	selection discover.Selection
	union     func(io.Writer) error // of a mixture: writes the text that the fingerprint hashes
}

// Close frees the index. No method may be called afterwards.
func (c *Catalog) Close() error { return c.image.Close() }

// Root returns the dataset's root directory (absolute, symbolic links resolved), or its URL without
// secrets.
func (c *Catalog) Root() string { return c.root }

// IndexDir returns the directory of the stored index, "" if none can be stored.
func (c *Catalog) IndexDir() string { return c.store.Dir() }

// Format returns the shards' format, with auto resolved and defaults filled in.
func (c *Catalog) Format() spec.Format { return c.format }

// Kind returns what all shards with records have in common if the format requires that
// (format.Uniform), as written by the first of them, or all their kinds if they may be mixed
// (format.Mixer). It returns "" for other formats.
func (c *Catalog) Kind() string { return c.kind }

// Unpacker returns the format's implementation for the dataset's kind.
func (c *Catalog) Unpacker() format.Format { return c.unpacker }

// StreamExtension returns the extension of stream names, with the dot.
func (c *Catalog) StreamExtension() string { return c.extension }

// Fingerprint returns the dataset's fingerprint (pipeline/order/STREAMS.md) in hexadecimal.
func (c *Catalog) Fingerprint() string {
	f := c.image.Fingerprint()
	return hex.EncodeToString(f[:])
}

// Records returns the number of records, above 0.
func (c *Catalog) Records() uint64 { return c.image.Records() }

// Shards returns the number of shards, including those without records.
func (c *Catalog) Shards() int { return int(c.image.Shards()) }

// Shard describes shard i, in dataset order. It allocates the path.
func (c *Catalog) Shard(i int) Shard {
	n := uint64(i)
	h := c.image.Blob(n).Header()
	o := c.image.Object(n)
	return Shard{
		Object: o, Codec: c.codec(c.image.Codec(n), o.Path),
		First: c.image.Start(n), Records: h.Records, DecodedBytes: h.DecodedBytes,
		EntryPoints: h.EntryPoints, Members: h.Members, Points: h.Points, DecoderBytes: h.DecoderBytes, IDPrefix: c.image.IDPrefix(n), Parts: h.Parts(),
	}
}

// codec returns the codec of a shard with that number and path.
func (c *Catalog) codec(number uint32, path string) format.Codec {
	codec := formats.NumberedCodec(number)
	own, ok := c.unpacker.(format.Coded)
	if _, ranges := codec.(format.RangeCodec); !ranges || !ok {
		return codec
	}
	if c.union != nil { // the path in the source's dataset
		_, path, _ = strings.Cut(path, "/")
	}
	return own.Codec(path, nil)
}

// RecordsBefore returns how many records of a shard begin before a byte of the decoded shard.
func (c *Catalog) RecordsBefore(shard int, decodedBytes int64) uint64 {
	return c.image.Blob(uint64(shard)).RecordsBefore(decodedBytes)
}

// Part returns the part that contains a byte of the decoded shard. The shard must be made of parts.
func (c *Catalog) Part(shard int, decodedBytes int64) Part {
	begin, end := c.image.Blob(uint64(shard)).Part(decodedBytes)
	return Part{begin.DecodedBytes, end.DecodedBytes, begin.RawBytes, end.RawBytes}
}

// RowBytes returns the size of each record in streams if streams consist of rows made from records
// (format.Presenter), else 0.
func (c *Catalog) RowBytes() int64 {
	if p, ok := c.unpacker.(format.Presenter); ok {
		return int64(p.RowBytes())
	}
	return 0
}

// StreamBytes returns the total size of all records in streams.
func (c *Catalog) StreamBytes() int64 {
	if row := c.RowBytes(); row > 0 {
		return int64(c.Records()) * row
	}
	return c.image.StreamBytes()
}

// Damaged lists the shards of which something was left out.
func (c *Catalog) Damaged() []Damage { return c.damaged }

// PassedOver returns the number of files that are not shards.
func (c *Catalog) PassedOver() int { return c.selection.LeftOut }

// Selection returns which files of the dataset are shards, and which were left out.
func (c *Catalog) Selection() *discover.Selection { return &c.selection }

// Entries returns the entry points among records 64·word … 64·word+63 of a compressed shard, one
// bit each, lowest first. It must not be called for shards without a codec.
func (c *Catalog) Entries(shard int, word uint64) uint64 {
	return c.image.Blob(uint64(shard)).Entries().Word(word)
}

// Entry returns the last place at or before a byte of the decoded shard where decoding of a
// compressed shard can start: a point, or the first byte of a member, whether or not a record
// begins there (if one does, it is an entry point, which the order uses). If several members begin
// at the same place, because all but the last are empty, it is the last one. It must not be called
// for shards without a codec.
func (c *Catalog) Entry(shard int, decodedBytes int64) format.Entry {
	return c.image.Blob(uint64(shard)).Entry(decodedBytes)
}

// Point returns the shard's point with the number that an Entry holds. Its State is part of the
// index, and valid as long as the catalog is open.
func (c *Catalog) Point(shard, number int) format.Point {
	return c.image.Blob(uint64(shard)).Point(number)
}

// NextPoint returns the first point of a compressed shard after a byte of the decoded shard,
// without its State; false if there is none.
func (c *Catalog) NextPoint(shard int, decodedBytes int64) (format.Point, bool) {
	return c.image.Blob(uint64(shard)).NextPoint(decodedBytes)
}

// PointBytes returns how many bytes of the index a shard's points take.
func (c *Catalog) PointBytes(shard int) int64 { return c.image.Blob(uint64(shard)).PointBytes() }

// Identity distinguishes the index of this catalog from every other, even of the same dataset: two
// catalogs with the same identity answer everything alike.
func (c *Catalog) Identity() string {
	i := c.image.Identity()
	return hex.EncodeToString(i[:])
}

// SaveBeside stores a file next to the index, and removes all but the newest kept files with the
// same ending (which begins with a dot). The file appears atomically, under a name of its own for
// each dataset. If the index is in memory, nothing is stored.
func (c *Catalog) SaveBeside(name, ending string, kept int, content []byte) error {
	return c.store.SaveBeside(name, ending, kept, content)
}

// LoadBeside returns a file stored by SaveBeside, and marks it as the newest. A file that does not
// have size bytes is an error; a missing one is fs.ErrNotExist.
func (c *Catalog) LoadBeside(name, ending string, size int64) ([]byte, error) {
	return c.store.LoadBeside(name, ending, size)
}

// coarse finds the shard of a record number in O(1): record numbers are cut into equal stretches,
// and the table has the shard of each stretch's first record. Only the shards between two table
// entries are searched by bisection; there are about four entries per shard.
type coarse struct {
	shift uint
	first []uint32
}

// leastShift makes a stretch of at least 128 records.
const leastShift = 7

// newCoarse makes the table for an image: at most one entry per 128 records, and at most about four
// per shard.
func newCoarse(m *index.Image) coarse {
	t := coarse{shift: leastShift}
	limit := 4*m.Shards() + 1024
	if stretches := m.Records() >> leastShift; stretches > limit {
		t.shift += uint(bits.Len64(stretches / limit))
	}
	n := m.Records()>>t.shift + 2
	t.first = make([]uint32, 0, n)
	var shard uint64
	for i := range n {
		record := i << t.shift
		for shard+1 < m.Shards() && m.Start(shard+1) <= record {
			shard++
		}
		t.first = append(t.first, uint32(shard))
	}
	return t
}

// shardOf returns the shard that holds a record, which must exist.
func (c *Catalog) shardOf(record uint64) uint64 {
	i := record >> c.coarse.shift
	low, high := uint64(c.coarse.first[i]), uint64(c.coarse.first[i+1])
	if low == high || record < c.image.Start(low+1) {
		return low
	}
	return low + uint64(sort.Search(int(high-low), func(k int) bool {
		return c.image.Start(low+1+uint64(k)) > record
	}))
}

// place is a record's location in the index. It is reused from record to record, because most
// callers ask for runs.
type place struct {
	shard       uint64
	first, last uint64 // numbers of the shard's first record, and the one after its last
	blob        index.Blob
	block       index.Block
	blockFirst  uint64 // number of the block's first record
	index       uint64 // of the record in its block
}

// find moves p to a record. The zero place has no shard (last is 0).
func (c *Catalog) find(p *place, record uint64) {
	if record < p.first || record >= p.last {
		p.shard = c.shardOf(record)
		p.first, p.last = c.image.Start(p.shard), c.image.Start(p.shard+1)
		p.blob = c.image.Blob(p.shard)
		p.block.Records = 0
	}
	if record < p.blockFirst || record-p.blockFirst >= p.block.Records {
		p.block, p.index = p.blob.BlockOf(record-p.first, p.last-p.first)
		p.blockFirst = record - p.index
		return
	}
	p.index = record - p.blockFirst
}

// Extents sets dst[i] to the extent of records[i]. The lengths must be equal. Consecutive records
// cost the least.
func (c *Catalog) Extents(records []uint64, dst []Extent) {
	var p place
	_ = dst[:len(records)]
	for i, r := range records {
		at, blockFirst := p.index, p.blockFirst
		c.find(&p, r)
		e := Extent{Shard: int(p.shard), Ordinal: r - p.first, SizeBytes: p.block.Size(p.index)}
		if i > 0 && r == records[i-1]+1 && p.blockFirst == blockFirst && p.index == at+1 {
			last := dst[i-1]
			e.OffsetBytes = last.OffsetBytes + last.SizeBytes + p.block.Gap(at)
		} else {
			e.OffsetBytes = p.block.Offset(p.index)
		}
		dst[i] = e
	}
}

// Sizes sets dst[i] to the stream size in bytes of records[i], not counting the equal-key rule. It
// takes O(1) per record and does not allocate.
func (c *Catalog) Sizes(records []uint64, dst []int64) {
	_ = dst[:len(records)]
	var first, last uint64
	var b index.Blob
	for i, r := range records {
		if r < first || r >= last {
			shard := c.shardOf(r)
			first, last = c.image.Start(shard), c.image.Start(shard+1)
			b = c.image.Blob(shard)
		}
		dst[i] = b.Size(r - first)
	}
}

// KeyHashes sets dst[i] to the key hash of records[i], 0 for a record without a key. It returns
// false, and sets nothing, if the format has no keys.
func (c *Catalog) KeyHashes(records []uint64, dst []uint64) bool {
	if !c.image.Keyed() {
		return false
	}
	_ = dst[:len(records)]
	var first, last uint64
	var b index.Blob
	for i, r := range records {
		if r < first || r >= last {
			shard := c.shardOf(r)
			first, last = c.image.Start(shard), c.image.Start(shard+1)
			b = c.image.Blob(shard)
		}
		dst[i] = b.KeyHash(r-first, last-first)
	}
	return true
}

// Growth returns by how many bytes a record grows under the equal-key rule at a position of a
// stream.
func (c *Catalog) Growth(record, position uint64) int64 {
	shard := c.shardOf(record)
	return c.image.Blob(shard).Growth(record-c.image.Start(shard), digits(position))
}

// digits returns the number of decimal digits of n.
func digits(n uint64) int {
	d := 1
	for n >= 10 {
		n /= 10
		d++
	}
	return d
}

// RecordAbove finds the first record of more than sizeBytes bytes. It looks at the heads of blocks,
// 128 records at a time, and at the records of only those blocks whose width allows that.
func (c *Catalog) RecordAbove(sizeBytes int64) (Extent, bool) {
	for n := range c.image.Shards() {
		b := c.image.Blob(n)
		records := b.Header().Records
		for first := uint64(0); first < records; first += index.BlockRecords {
			k, _ := b.BlockOf(first, records)
			if !k.MayExceed(sizeBytes) {
				continue
			}
			for j := range k.Records {
				if size := k.Size(j); size > sizeBytes {
					return Extent{Shard: int(n), Ordinal: first + j, OffsetBytes: k.Offset(j), SizeBytes: size}, true
				}
			}
		}
	}
	return Extent{}, false
}

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
