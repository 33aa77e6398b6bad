// Package catalog knows what a dataset holds and where: its shards, their
// records' extents, the chunks that an order permutes. It is built once by a
// pass over the shards on all cores, stored, and opened again at once while the
// shards stay as they are. It knows nothing of orders.
//
// Records are numbered 0 … Records()-1 in dataset order (ORDER.md): shards by
// path, within a shard as they lie. A record number is the reference that all
// later stages hand around.
package catalog

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
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
	OpenStorage func(root string) (storage.Storage, error)
	// Rebuild indexes every shard again, whatever is stored.
	Rebuild bool
	// Progress, when set, is called from one goroutine now and then, and a
	// last time when the catalog is ready.
	Progress func(Progress)
	Log      *slog.Logger
}

// Progress of a build. Bytes are of raw shards.
type Progress struct {
	Shards, ShardsTotal int
	Bytes, BytesTotal   int64 // of the shards that are indexed now, not of those that are reused
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
	EntryPoints  uint64 // records at which reading can start
	IDPrefix     uint64 // first 8 bytes of its records' IDs, big-endian
}

// Extent is where a record lies. [OffsetBytes, OffsetBytes+SizeBytes) may end
// one byte beyond the decoded shard: that byte is then a '\n'.
type Extent struct {
	Shard                  int
	Ordinal                uint64 // of the record in its shard
	OffsetBytes, SizeBytes int64
}

// Damage is a shard of which something was left out (--on-corrupt skip).
type Damage struct {
	Path  string
	Error *unpack.CorruptError
}

// Catalog is immutable and safe for concurrent use. Its methods do no I/O
// beyond page faults on the stored index.
type Catalog struct {
	// fields belong to the implementation
}

// Open finds the dataset's shards, reads the stored index where it still holds,
// indexes what is new or changed, stores the result, and returns the catalog
// with the storage that it opened (the caller closes both).
func Open(ctx context.Context, c Config) (*Catalog, storage.Storage, error) {
	return nil, nil, errNotBuilt
}

func (c *Catalog) Close() error { return nil }

// Root is the dataset's root directory, absolute.
func (c *Catalog) Root() string { panic(errNotBuilt) }

// Format is how shards are cut, with auto resolved and defaults filled in.
func (c *Catalog) Format() spec.Format { panic(errNotBuilt) }

// Unpacker is the format's implementation.
func (c *Catalog) Unpacker() unpack.Format { panic(errNotBuilt) }

// StreamExtension is the ending of stream names, with the dot.
func (c *Catalog) StreamExtension() string { panic(errNotBuilt) }

// Fingerprint as ORDER.md defines it.
func (c *Catalog) Fingerprint() string { panic(errNotBuilt) }

func (c *Catalog) Records() uint64   { panic(errNotBuilt) }
func (c *Catalog) Shards() int       { panic(errNotBuilt) }
func (c *Catalog) Shard(i int) Shard { panic(errNotBuilt) }

// StreamBytes is the sum of all records' sizes.
func (c *Catalog) StreamBytes() int64 { panic(errNotBuilt) }

// Damaged lists what was left out.
func (c *Catalog) Damaged() []Damage { panic(errNotBuilt) }

// PassedOver counts files below the root that are no shards.
func (c *Catalog) PassedOver() int { panic(errNotBuilt) }

// Extents fills dst[i] with the extent of records[i]; lengths must be equal.
func (c *Catalog) Extents(records []uint64, dst []Extent) { panic(errNotBuilt) }

// Sizes fills dst[i] with the stream size in bytes of records[i], the equal-key
// rule aside. O(1) a record, no allocation.
func (c *Catalog) Sizes(records []uint64, dst []int64) { panic(errNotBuilt) }

// KeyHashes fills dst[i] with the key hash of records[i]. It returns false, and
// fills nothing, when the format has no keys.
func (c *Catalog) KeyHashes(records []uint64, dst []uint64) bool { panic(errNotBuilt) }

// Growth is by how many bytes a record grows under the equal-key rule at a
// position of a stream.
func (c *Catalog) Growth(record, position uint64) int64 { panic(errNotBuilt) }

// ChunkStarts gives the number of the first record of each chunk, ascending,
// and Records() at the end (ORDER.md, Chunks).
func (c *Catalog) ChunkStarts(chunkBytes, chunkRecords uint64) []uint64 { panic(errNotBuilt) }

// PieceStarts is ChunkStarts as if every record were an entry point: for
// shards without compression the same, for others the portions in which a
// chunk too large to hold is decoded.
func (c *Catalog) PieceStarts(chunkBytes, chunkRecords uint64) []uint64 { panic(errNotBuilt) }

// Entry is the last place of a compressed shard, at or before ordinal, where
// decoding can start: the first byte of a member, and the record that begins
// there. For a shard's first records it is the start of the file, where
// RecordOffset may lie behind DecodedBytes. It must not be called for shards
// without a codec.
func (c *Catalog) Entry(shard int, ordinal uint64) Entry { panic(errNotBuilt) }

// Entry is a place where decoding can start.
type Entry struct {
	Ordinal      uint64 // the first record that lies behind it
	DecodedBytes int64  // offset in the decoded shard
	RawBytes     int64  // offset in the file
}

var errNotBuilt = errors.New("not built yet")
