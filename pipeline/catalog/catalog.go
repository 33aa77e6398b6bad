package catalog

import (
	"encoding/hex"
	"io"

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
	return Shard{
		Object: c.image.Object(n), Codec: formats.NumberedCodec(c.image.Codec(n)),
		First: c.image.Start(n), Records: h.Records, DecodedBytes: h.DecodedBytes,
		EntryPoints: h.EntryPoints, Members: h.Members, Points: h.Points, DecoderBytes: h.DecoderBytes, IDPrefix: c.image.IDPrefix(n), Parts: h.Parts(),
	}
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
