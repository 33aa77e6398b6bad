package catalog

import (
	"encoding/hex"
	"io"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
	"github.com/lsiofs/lsiofs/pipeline/unpack/formats"
)

// Shard is one file of the dataset.
type Shard struct {
	Object       storage.Object
	Codec        unpack.Codec // nil when it is not compressed
	First        uint64       // number of its first record
	Records      uint64
	DecodedBytes int64
	EntryPoints  uint64 // records at which reading can start: what chunks go by
	Members      uint64 // of a compressed shard: decoding can start at each
	Points       uint64 // other places where it can, inside of members
	DecoderBytes int64  // about what a decoder of a compressed shard holds at most; 0: not known
	IDPrefix     uint64 // first 8 bytes of its records' IDs, big-endian
	Parts        bool   // it is made of parts, see Part
}

// Part is one part of a shard that is made of parts, such as a game in a tar. It is the
// decoded bytes [DecodedBytes, EndBytes), and begins at RawBytes of the file. The next
// part that was kept begins at EndRawBytes of the file; 0 means that there is none.
type Part struct {
	DecodedBytes, EndBytes int64
	RawBytes, EndRawBytes  int64
}

// Extent is where a record lies in its decoded shard. [OffsetBytes,
// OffsetBytes+SizeBytes) may end one byte beyond the shard: that byte is then a '\n'.
type Extent struct {
	Shard                  int
	Ordinal                uint64 // of the record in its shard
	OffsetBytes, SizeBytes int64
}

// Catalog is what is known of a dataset. It is immutable and safe for concurrent use.
// Its methods do no I/O, except for page faults on the stored index.
type Catalog struct {
	root      string
	format    spec.Format
	unpacker  unpack.Format
	extension string
	kind      string
	store     *index.Store
	image     *index.Image
	coarse    coarse
	damaged   []Damage
	selection discover.Selection
	union     func(io.Writer) error // of a mixture: the text that the fingerprint hashes
}

// Close frees the index. No method may be called afterwards.
func (c *Catalog) Close() error { return c.image.Close() }

// Root is the dataset's root directory, absolute, links resolved; or its URL, which has
// no secret in it.
func (c *Catalog) Root() string { return c.root }

// IndexDir is the directory of the stored index, "" where none can be stored.
func (c *Catalog) IndexDir() string { return c.store.Dir() }

// Format is how shards are cut, with auto resolved and defaults filled in.
func (c *Catalog) Format() spec.Format { return c.format }

// Kind is what all shards with records have in common where the format demands
// something of that sort (unpack.Uniform), as the first of them writes it, or all
// their kinds where they may be mixed (unpack.Mixer); "" for other formats.
func (c *Catalog) Kind() string { return c.kind }

// Unpacker is the format's implementation, of the dataset's kind.
func (c *Catalog) Unpacker() unpack.Format { return c.unpacker }

// StreamExtension is the ending of stream names, with the dot.
func (c *Catalog) StreamExtension() string { return c.extension }

// Fingerprint is the dataset's (pipeline/order/STREAMS.md), in hexadecimal digits.
func (c *Catalog) Fingerprint() string {
	f := c.image.Fingerprint()
	return hex.EncodeToString(f[:])
}

// Records is the number of records, above 0.
func (c *Catalog) Records() uint64 { return c.image.Records() }

// Shards is the number of shards, those without records included.
func (c *Catalog) Shards() int { return int(c.image.Shards()) }

// Shard describes shard i, in dataset order. It allocates its path.
func (c *Catalog) Shard(i int) Shard {
	n := uint64(i)
	h := c.image.Blob(n).Header()
	return Shard{
		Object: c.image.Object(n), Codec: formats.NumberedCodec(c.image.Codec(n)),
		First: c.image.Start(n), Records: h.Records, DecodedBytes: h.DecodedBytes,
		EntryPoints: h.EntryPoints, Members: h.Members, Points: h.Points, DecoderBytes: h.DecoderBytes, IDPrefix: c.image.IDPrefix(n), Parts: h.Parts(),
	}
}

// Part is the part in which a byte of a decoded shard lies that is made of parts.
func (c *Catalog) Part(shard int, decodedBytes int64) Part {
	begin, end := c.image.Blob(uint64(shard)).Part(decodedBytes)
	return Part{begin.DecodedBytes, end.DecodedBytes, begin.RawBytes, end.RawBytes}
}

// RowBytes is the size that each record has in streams, where those are of rows that are
// made of records (unpack.Presenter); else 0.
func (c *Catalog) RowBytes() int64 {
	if p, ok := c.unpacker.(unpack.Presenter); ok {
		return int64(p.RowBytes())
	}
	return 0
}

// StreamBytes is the sum of the sizes that all records have in streams.
func (c *Catalog) StreamBytes() int64 {
	if row := c.RowBytes(); row > 0 {
		return int64(c.Records()) * row
	}
	return c.image.StreamBytes()
}

// Damaged lists what was left out.
func (c *Catalog) Damaged() []Damage { return c.damaged }

// PassedOver counts what is no shard.
func (c *Catalog) PassedOver() int { return c.selection.LeftOut }

// Selection is what of the dataset was taken, and what was left out.
func (c *Catalog) Selection() *discover.Selection { return &c.selection }

// Entries are the entry points among records 64·word … 64·word+63 of a
// compressed shard, a bit each, lowest first. It must not be called for shards
// without a codec.
func (c *Catalog) Entries(shard int, word uint64) uint64 {
	return c.image.Blob(uint64(shard)).Entries().Word(word)
}

// Entry is the last place of a compressed shard, at or before a byte of the
// decoded shard, where decoding can start: a point, or the first byte of a member, whether
// a record begins there (an entry point, which the order goes by) or not. Of
// members that begin at one place, for all but the last are empty, it is the last.
// It must not be called for shards without a codec.
func (c *Catalog) Entry(shard int, decodedBytes int64) unpack.Entry {
	return c.image.Blob(uint64(shard)).Entry(decodedBytes)
}

// Point is the point of an Entry of the shard, by its number. Its State is of the index, and valid
// as long as the catalog is open.
func (c *Catalog) Point(shard, number int) unpack.Point {
	return c.image.Blob(uint64(shard)).Point(number)
}

// NextPoint is the first point of a compressed shard behind a byte of the decoded shard, without its
// State; false where there is none.
func (c *Catalog) NextPoint(shard int, decodedBytes int64) (unpack.Point, bool) {
	return c.image.Blob(uint64(shard)).NextPoint(decodedBytes)
}

// PointBytes is what points of a shard take of the index.
func (c *Catalog) PointBytes(shard int) int64 { return c.image.Blob(uint64(shard)).PointBytes() }

// Identity tells the index of this catalog from every other, also of the same
// dataset: two catalogs with the same one give the same answers to everything.
func (c *Catalog) Identity() string {
	i := c.image.Identity()
	return hex.EncodeToString(i[:])
}

// SaveBeside stores a file beside the index, and removes all but the newest kept
// of those with the same ending (which begins with a dot). The file appears
// whole, under a name of its own for each dataset. Where the index is in memory
// nothing is stored.
func (c *Catalog) SaveBeside(name, ending string, kept int, content []byte) error {
	return c.store.SaveBeside(name, ending, kept, content)
}

// LoadBeside gives a file that SaveBeside has stored, and makes it the newest.
// One that does not have size bytes is an error; one that is not there is
// fs.ErrNotExist.
func (c *Catalog) LoadBeside(name, ending string, size int64) ([]byte, error) {
	return c.store.LoadBeside(name, ending, size)
}
