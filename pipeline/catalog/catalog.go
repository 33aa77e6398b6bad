package catalog

import (
	"encoding/hex"
	"log/slog"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// Config says what to open.
type Config struct {
	// Dataset, Format and OnCorrupt as in spec.Spec.
	Dataset   string
	Format    spec.Format
	OnCorrupt spec.OnCorrupt
	IndexDir  string
	// OpenStorage opens the storage of a dataset's root directory (absolute).
	// What it keeps for itself goes to indexDir, "" where nothing can be stored.
	OpenStorage func(root, indexDir string) (storage.Storage, error)
	// Profile says how the storage's shards are gone through; the zero value stands for
	// the defaults of an unknown one. What is found does not depend on it.
	Profile profile.Profile
	// Rebuild indexes every shard again, whatever is stored.
	Rebuild bool
	// MemoryBytes bounds what decoders hold while shards are indexed, but for
	// one at a time; below 32 MiB it is that.
	MemoryBytes int64
	// Progress, when set, is called from one goroutine now and then, and a
	// last time when the catalog is ready.
	Progress func(Progress)
	Log      *slog.Logger
}

// Progress of a build. Bytes are of raw shards.
type Progress struct {
	Shards, ShardsTotal int   // of the shards that are indexed now, not of those that are reused
	Bytes, BytesTotal   int64 // likewise
	Records             uint64
	Reused              int // shards whose stored index still holds
	Elapsed             time.Duration
	Done                bool
}

// Shard is one file of the dataset.
type Shard struct {
	Object       storage.Object
	Codec        unpack.Codec // nil when it is not compressed
	First        uint64       // number of its first record
	Records      uint64
	DecodedBytes int64
	EntryPoints  uint64 // records at which reading can start: what chunks go by
	Members      uint64 // of a compressed shard: places where decoding can start
	IDPrefix     uint64 // first 8 bytes of its records' IDs, big-endian
	Parts        bool   // it is made of parts, see Part
}

// Part is one part of a shard that is made of parts, of those that are kept:
// decoded bytes [DecodedBytes, EndBytes), of a member that begins at RawBytes of
// the file. The next one that is kept begins at EndRawBytes there, which is 0
// where none does.
type Part struct {
	DecodedBytes, EndBytes int64
	RawBytes, EndRawBytes  int64
}

// Extent is where a record lies. [OffsetBytes, OffsetBytes+SizeBytes) may end
// one byte beyond the decoded shard: that byte is then a '\n'.
type Extent struct {
	Shard                  int
	Ordinal                uint64 // of the record in its shard
	OffsetBytes, SizeBytes int64
}

// Catalog is immutable and safe for concurrent use. Its methods do no I/O
// beyond page faults on the stored index.
type Catalog struct {
	root       string
	format     spec.Format
	unpacker   unpack.Format
	extension  string
	kind       string
	table      *table
	store      *store
	image      *image
	mapping    *mapping
	coarse     coarse
	damaged    []Damage
	passedOver int
}

// Close frees the index. No method may be called afterwards.
func (c *Catalog) Close() error { return c.mapping.Close() }

// Root is the dataset's root directory, absolute, links resolved.
func (c *Catalog) Root() string { return c.root }

// IndexDir is the directory of the stored index, "" where none can be stored.
func (c *Catalog) IndexDir() string { return c.store.dir }

// Format is how shards are cut, with auto resolved and defaults filled in.
func (c *Catalog) Format() spec.Format { return c.format }

// Kind is what all shards with records have in common where the format demands
// something of that sort (unpack.Uniform), as the first of them writes it; ""
// for other formats.
func (c *Catalog) Kind() string { return c.kind }

// Unpacker is the format's implementation, of the dataset's kind.
func (c *Catalog) Unpacker() unpack.Format { return c.unpacker }

// StreamExtension is the ending of stream names, with the dot.
func (c *Catalog) StreamExtension() string { return c.extension }

// Fingerprint as ORDER.md defines it.
func (c *Catalog) Fingerprint() string { return hex.EncodeToString(c.image.h.fingerprint[:]) }

// Records is the number of records, above 0.
func (c *Catalog) Records() uint64 { return c.image.h.records }

// Shards is the number of shards, those without records included.
func (c *Catalog) Shards() int { return int(c.image.h.shards) }

// Shard describes shard i, in dataset order. It allocates its path.
func (c *Catalog) Shard(i int) Shard {
	n := uint64(i)
	h := c.image.blob(n).header()
	return Shard{
		Object: c.image.object(n), Codec: c.table.byNumber(c.image.codec(n)),
		First: c.image.start(n), Records: h.records, DecodedBytes: h.decodedBytes,
		EntryPoints: h.entryPoints, Members: h.members, IDPrefix: c.image.idPrefix(n), Parts: h.flags&flagParts != 0,
	}
}

// Part is the part in which a byte of a decoded shard lies that is made of parts.
func (c *Catalog) Part(shard int, decodedBytes int64) Part {
	return c.image.blob(uint64(shard)).part(decodedBytes)
}

// StreamBytes is the sum of all records' sizes.
func (c *Catalog) StreamBytes() int64 { return int64(c.image.h.streamBytes) }

// Damaged lists what was left out.
func (c *Catalog) Damaged() []Damage { return c.damaged }

// PassedOver counts files below the root that are no shards; of a pattern,
// files that it matches.
func (c *Catalog) PassedOver() int { return c.passedOver }

// Entries are the entry points among records 64·word … 64·word+63 of a
// compressed shard, a bit each, lowest first. It must not be called for shards
// without a codec.
func (c *Catalog) Entries(shard int, word uint64) uint64 {
	b := c.image.blob(uint64(shard))
	h := b.header()
	l := h.layout()
	return b.word(l.entries + word<<3)
}

// Entry is the last place of a compressed shard, at or before a byte of the
// decoded shard, where decoding can start: the first byte of a member, whether
// a record begins there (an entry point, which the order goes by) or not. Of
// members that begin at one place, for all but the last are empty, it is the last.
// It must not be called for shards without a codec.
func (c *Catalog) Entry(shard int, decodedBytes int64) unpack.Entry {
	return c.image.blob(uint64(shard)).entry(decodedBytes)
}
