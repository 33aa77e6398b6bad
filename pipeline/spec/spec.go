// Package spec is the user's configuration of a dataset and its streams: plain
// data with defaults and a validation that reports every problem at once. It
// imports nothing of lsiofs, so that every other package may use its values.
//
// A Spec says what is read (Dataset, Format), which record comes when (Order,
// Epoch), how records are dealt to workers (Deal), and how much the machine may
// spend on it (MemoryBytes, IO, Direct, ReadTimeout). Only the first three have an
// influence on the bytes of a stream.
package spec

import "time"

// Shuffle names one of the shuffles of ORDER.md.
type Shuffle string

const (
	ShuffleNone      Shuffle = "none"      // dataset order
	ShuffleReservoir Shuffle = "reservoir" // a buffer a lane, one record out for one in
	ShuffleBlock     Shuffle = "block"     // blocks of a lane, each permuted
	ShuffleFull      Shuffle = "full"      // one permutation of all records
)

// Dealing names one of the ways in which records of G′ go to workers.
type Dealing string

const (
	DealInterleaved Dealing = "interleaved" // batches in turn; the default
	DealContiguous  Dealing = "contiguous"  // one run of G′ a worker
)

// Tail says what becomes of records that do not fill a round of batches.
type Tail string

const (
	TailKeep Tail = "keep" // lengths as they fall
	TailDrop Tail = "drop" // cut to a multiple of workers × batch
	TailPad  Tail = "pad"  // extended to such a multiple with G from its start
)

// OnCorrupt says what becomes of damaged records found while indexing.
type OnCorrupt string

const (
	CorruptFail OnCorrupt = "fail" // refuse the dataset, naming shard, record and offset
	CorruptSkip OnCorrupt = "skip" // leave out what is damaged, and list it
)

// IO names an io engine.
type IO string

const (
	IOAuto  IO = "auto"  // uring where the kernel permits it, else pread
	IOUring IO = "uring" // io_uring, or an error
	IOPread IO = "pread" // pread on a pool of threads
)

// Direct says when reads bypass the page cache (O_DIRECT).
type Direct string

const (
	DirectAuto Direct = "auto" // large cold reads of a dataset that does not fit into memory
	DirectOn   Direct = "on"   // all reads, where the file system permits it
	DirectOff  Direct = "off"  // none
)

// Read names a strategy of reading. All give the same bytes.
type Read string

const (
	ReadAuto   Read = "auto"   // what reads no byte again and again in so much memory
	ReadScan   Read = "scan"   // pieces of shards as they are wanted, kept in memory
	ReadGather Read = "gather" // exactly the records that come next; shards that are not compressed
	ReadSpool  Read = "spool"  // compressed shards decoded once each into a local file
)

// Remainder says what becomes of the bytes of a fixed shard that fill no record.
type Remainder string

const (
	RemainderCorrupt Remainder = "corrupt"
	RemainderDrop    Remainder = "drop"
)

// Format is how shards are cut into records (RECORDS.md).
type Format struct {
	// Name is "auto" or one of Formats.
	Name string
	// RecordBytes, StrideBytes and HeaderBytes are fixed's N, S and H. A
	// StrideBytes of 0 stands for RecordBytes.
	RecordBytes, StrideBytes, HeaderBytes int64
	Remainder                             Remainder
	// Lc0Check has lc0 look at every frame, and take those that can't be for damaged.
	Lc0Check bool
	// Arrays are read together, a row of each as one record; none for shards that are
	// whole by themselves.
	Arrays []Array
}

// WithDefaults is the format with what was left out put in: of fixed the stride, and
// what becomes of a remainder. Arrays that are read together are of format npy.
func (f Format) WithDefaults() Format {
	if f.Name == "fixed" && f.StrideBytes == 0 {
		f.StrideBytes = f.RecordBytes
	}
	if len(f.Arrays) > 0 {
		f.Name = "npy"
	}
	if f.Remainder == "" {
		f.Remainder = RemainderCorrupt
	}
	return f
}

// Order is all that decides G, the global order of an epoch, beside the
// dataset and the epoch's number. Two equal values give equal orders.
type Order struct {
	Seed        uint64
	Shuffle     Shuffle
	SizeRecords uint64 // of the shuffle buffer, over all lanes
	Lanes       uint64
	Groups      uint64
	// Batch is the batch that the order itself depends on: 1 unless Groups > 1.
	Batch        uint64
	ChunkBytes   uint64
	ChunkRecords uint64
	Split        Split `json:",omitzero"` // of the dataset; what is left is ordered
}

// Deal is how G′, what is left of G, is dealt to workers.
type Deal struct {
	Workers uint64
	Batch   uint64
	Dealing Dealing
	Tail    Tail
}

// Spec is everything that a user says about a dataset and its streams.
type Spec struct {
	// Dataset is a directory, a file, or a pattern with ** and {000..146}; or what a
	// service has of these, as s3://BUCKET/PREFIX and https://HOST/{000..146}.tar.
	Dataset string
	Format  Format
	Order   Order
	Deal    Deal
	Epoch   uint64

	OnCorrupt OnCorrupt
	// IndexDir holds stored indexes; empty for DATASET/.lsiofs where that
	// exists, else lsiofs in the user's cache directory.
	IndexDir string

	// MemoryBytes bounds everything that is kept of the data.
	MemoryBytes int64
	// MaxRecordBytes bounds the size of a record, 0 for no bound: one that is read
	// is held whole, and few bytes of a compressed shard can stand for any number.
	MaxRecordBytes int64
	IO             IO
	Direct         Direct
	ReadTimeout    time.Duration
	Read           Read
	// SpoolDir is where compressed shards are spooled; empty for the directory
	// spool beside the stored index.
	SpoolDir string
	// SpoolMaxBytes bounds the spool, 0 for what the order needs.
	SpoolMaxBytes int64
	Remote        Remote
}

// Remote is how services are read that have a dataset: buckets and web servers. None of
// it is a secret: these come from the environment and from files.
type Remote struct {
	Region        string // of the bucket; "" for what environment and service say
	Endpoint      string // https://HOST of a service that answers as S3 does; "" for Amazon's
	Anonymous     bool   // requests are not signed
	RequesterPays bool
	CAFile        string // certificates that are trusted beside the system's
	Unversioned   bool   // objects without ETag and date are told apart by size alone
	Connections   int    // requests that are under way at most
}

// MaxConnections bounds Remote.Connections: each takes a descriptor and some 100 KiB.
const MaxConnections = 1024

// Limits of ORDER.md's counts, from DESIGN.md ("W and L are at most 65536").
const (
	MaxWorkers = 65536
	MaxLanes   = 65536
)

// Default gives the values that the command line documents as its defaults.
func Default() Spec {
	return Spec{
		Format: Format{Name: "auto", Remainder: RemainderCorrupt},
		Order: Order{
			Shuffle: ShuffleReservoir, SizeRecords: 16384, Lanes: 32, Groups: 1,
			Batch: 1, ChunkBytes: 256 << 10, ChunkRecords: 128,
		},
		Deal:        Deal{Workers: 1, Batch: 1, Dealing: DealInterleaved, Tail: TailKeep},
		OnCorrupt:   CorruptFail,
		MemoryBytes: 1 << 30, MaxRecordBytes: 1 << 30,
		IO:          IOAuto,
		Direct:      DirectAuto,
		ReadTimeout: 5 * time.Minute,
		Read:        ReadAuto,
		Remote:      Remote{Connections: 128},
	}
}
