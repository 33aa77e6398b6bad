// Package spec is the user's configuration of a dataset and its streams: plain data with
// defaults, and a validation that reports every problem at once. It imports nothing of
// lsiofs, so every other package may use it.
//
//	flags ──► Spec ──Validate──► pipeline.Open
//
// A Spec has four parts: what is read (Dataset, Format), which record comes when (Order,
// Epoch), how records are assigned to workers (Deal), and what the machine may spend
// (MemoryBytes, IO, Direct, ReadTimeout). Only the first three affect the bytes of a
// stream.
package spec

import "time"

// Shuffle names one of the shuffles (pipeline/order/ORDER.md).
type Shuffle string

const (
	ShuffleNone      Shuffle = "none"      // dataset order
	ShuffleReservoir Shuffle = "reservoir" // a buffer for each lane: one record out for one in
	ShuffleBlock     Shuffle = "block"     // each lane is cut into blocks, and each block permuted
	ShuffleFull      Shuffle = "full"      // one permutation of all records
)

// Dealing names a way to assign the records of G′ to workers.
type Dealing string

const (
	DealInterleaved Dealing = "interleaved" // workers get batches in turn; the default
	DealContiguous  Dealing = "contiguous"  // each worker gets one run of G′
)

// Tail says what happens to records that do not fill a round of batches.
type Tail string

const (
	TailKeep Tail = "keep" // nothing: streams may differ in length
	TailDrop Tail = "drop" // cut to a multiple of workers × batch
	TailPad  Tail = "pad"  // extended to such a multiple, with records from the start of G
)

// OnCorrupt says what happens to damaged records that indexing finds.
type OnCorrupt string

const (
	CorruptFail OnCorrupt = "fail" // refuse the dataset, naming shard, record and offset
	CorruptSkip OnCorrupt = "skip" // leave out what is damaged, and list it
)

// IO names an I/O engine.
type IO string

const (
	IOAuto  IO = "auto"  // uring if the kernel permits it, else pread
	IOUring IO = "uring" // io_uring, or an error
	IOPread IO = "pread" // pread on a bounded pool of threads
)

// Direct says when reads bypass the page cache (O_DIRECT).
type Direct string

const (
	DirectAuto Direct = "auto" // large cold reads of a dataset that does not fit into memory
	DirectOn   Direct = "on"   // all reads, if the file system permits it
	DirectOff  Direct = "off"  // none
)

// Hedge says when a second request is made for what a service answers far later than
// usual.
type Hedge string

const (
	HedgeAuto Hedge = "auto" // for what somebody waits for, at most 5 % of requests
	HedgeOff  Hedge = "off"  // never
)

// Read names a read strategy. All give the same bytes.
type Read string

const (
	ReadAuto   Read = "auto"   // the strategy that reads no byte repeatedly within MemoryBytes
	ReadScan   Read = "scan"   // whole pieces of shards when they are needed, kept in memory
	ReadGather Read = "gather" // exactly the records that come next; for uncompressed shards
	ReadSpool  Read = "spool"  // compressed shards decoded once each into a local file
)

// Remainder says what happens to the last bytes of a fixed shard that fill no record.
type Remainder string

const (
	RemainderCorrupt Remainder = "corrupt"
	RemainderDrop    Remainder = "drop"
)

// Format says how shards are cut into records (RECORDS.md).
type Format struct {
	// Name is "auto" or one of Formats.
	Name string
	// RecordBytes, StrideBytes and HeaderBytes are N, S and H of format fixed.
	// StrideBytes 0 means RecordBytes.
	RecordBytes, StrideBytes, HeaderBytes int64
	Remainder                             Remainder
	// Lc0Check makes lc0 check every frame, and treat impossible ones as damaged.
	Lc0Check bool
	// As says what a stream has of each record.
	As As
	// Arrays are read together, with a row of each as one record. It is empty if shards
	// hold whole records.
	Arrays []Array
	// Zarr says which crops of arrays are the records of format zarr.
	Zarr Zarr
}

// WithDefaults fills in what was left out: for fixed the stride and the handling of a
// remainder. Arrays that are read together have format npy.
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

// Order is everything that determines G, the global order of an epoch, besides the
// dataset and the epoch's number. Equal values give equal orders.
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
	Split        Split  `json:",omitzero"` // selects the records of the dataset that are ordered
	Sample       Sample `json:",omitzero"` // of these, the share that each epoch has
	Length       uint64 `json:",omitzero"` // positions of a mixture's epoch; 0 where there is none, or as Mix says
}

// Deal says how G′, what is left of G, is assigned to workers.
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
	// Mix are the sources of a mixture, in the place of Dataset.
	Mix Mix
	// Exclude are patterns, relative to each dataset, of what is left out of it.
	Exclude []string
	Format  Format
	Order   Order
	Deal    Deal
	Epoch   uint64

	OnCorrupt OnCorrupt
	// IndexDir holds stored indexes. If empty, it is DATASET/.lsiofs if that exists,
	// else lsiofs in the user's cache directory.
	IndexDir string

	// MemoryBytes bounds all data that is kept in memory.
	MemoryBytes int64
	// MaxRecordBytes bounds the size of a record; 0 means no bound. A record is held
	// whole while it is read, and a few bytes of a compressed shard can decode to any
	// number.
	MaxRecordBytes int64
	IO             IO
	Direct         Direct
	ReadTimeout    time.Duration
	Read           Read
	// SpoolDir is where compressed shards are spooled. If empty, it is the directory
	// spool beside the stored index.
	SpoolDir string
	// SpoolMaxBytes bounds the spool; 0 means what the order needs.
	SpoolMaxBytes int64
	// Lookahead is how many bytes ahead of their readers services and disk caches are told
	// what comes, of all readers together; 0 means as far as their rates ask for.
	Lookahead int64
	Remote    Remote
	Cache     Cache
	Grow      Grow
}

// Addressing says where requests name a bucket.
type Addressing string

const (
	AddressingAuto    Addressing = "auto"    // as the profile says, else virtual at Amazon's and path elsewhere
	AddressingPath    Addressing = "path"    // https://HOST/BUCKET/KEY
	AddressingVirtual Addressing = "virtual" // https://BUCKET.HOST/KEY
)

// Remote is how services are read that have a dataset: buckets and web servers. None of
// it is a secret: these come from the environment and from files.
type Remote struct {
	Region        string // of the bucket; "" for what environment and service say
	Endpoint      string // https://HOST of a service that answers as S3 does; "" for Amazon's
	Addressing    Addressing
	Anonymous     bool // requests are not signed
	RequesterPays bool
	AuthFile      string // tokens and headers for web servers, a line each
	CAFile        string // certificates that are trusted beside the system's
	Unversioned   bool   // objects without ETag and date are told apart by size alone
	Connections   int    // requests that are under way at most
	Hedge         Hedge  // a second request for what takes far longer than usual
}

// Fill says whether a cache is filled with what nobody has read yet.
type Fill string

const (
	FillAuto Fill = "auto" // with what readers leave of the network, once they have begun
	FillOff  Fill = "off"
)

// Cache is where and how what was read of a service, or of a network file system, is kept on
// a local disk. No byte of a stream depends on it.
type Cache struct {
	// Off says that nothing is kept.
	Off bool
	// Dir is "" for lsiofs/data in the user's cache directory.
	Dir string
	// SizeBytes bounds what it takes on its disk, with all that other datasets have there;
	// SizePercent does so as a part of the file system. Where both are 0, it has room
	// for the dataset, if half of what is free is enough for that.
	SizeBytes   int64
	SizePercent float64
	// ReserveBytes is left free of the file system; below 0: a tenth, at most 20 GiB.
	ReserveBytes int64
	Fill         Fill
	// Warm fills it before anything is read.
	Warm bool
}

// Asked says whether the user has asked for a cache in particular: then it is an error that
// there can't be one.
func (c Cache) Asked() bool {
	return !c.Off && (c.Dir != "" || c.SizeBytes > 0 || c.SizePercent > 0 || c.Warm)
}

// MaxConnections bounds Remote.Connections: each takes a descriptor and some 100 KiB.
const MaxConnections = 1024

// MaxLookahead bounds Spec.Lookahead.
const MaxLookahead = 1 << 40

// Limits of counts (pipeline/order/ORDER.md, Numbers).
const (
	MaxWorkers = 65536
	MaxLanes   = 65536
)

// Default gives the values that the command line documents as defaults.
func Default() Spec {
	return Spec{
		Format: Format{Name: "auto", Remainder: RemainderCorrupt},
		Order: Order{
			Shuffle: ShuffleReservoir, SizeRecords: 16384, Lanes: 32, Groups: 1,
			Batch: 1, ChunkBytes: 256 << 10, ChunkRecords: 128,
		},
		Deal:        Deal{Workers: 1, Batch: 1, Dealing: DealInterleaved, Tail: TailKeep},
		OnCorrupt:   CorruptFail,
		MemoryBytes: mostMemory, MaxRecordBytes: mostMemory,
		IO:          IOAuto,
		Direct:      DirectAuto,
		ReadTimeout: 5 * time.Minute,
		Read:        ReadAuto,
		Remote:      Remote{Addressing: AddressingAuto, Connections: 128, Hedge: HedgeAuto},
		Cache:       Cache{ReserveBytes: -1, Fill: FillOff},
	}
}

// Defaults of MemoryBytes and MaxRecordBytes: mostMemory, or less where the process may not have four
// times as much, and leastMemory all the same.
const (
	mostMemory  = 1 << 30
	leastMemory = 16 << 20
)

// MemoryWithin returns the default of MemoryBytes, and of MaxRecordBytes, for a process that may have so
// many bytes: a quarter, for tables, decoders and the page cache take some, too.
func MemoryWithin(allowedBytes int64) int64 {
	return min(max(allowedBytes/4&^(1<<20-1), leastMemory), mostMemory)
}
