// Package spec is the user's configuration of a dataset and its streams: plain data with defaults,
// and a validation that reports every problem at once. It imports nothing else of lsiofs, so every
// other package may use it.
//
//	flags ──► Spec ──Validate──► pipeline.Open
//
// A Spec has four parts: what is read (Dataset, Format), the order of records (Order, Epoch), how
// records are assigned to workers (Deal), and the resources that may be used (MemoryBytes, IO,
// Direct, ReadTimeout). Only the first three affect the bytes of a stream.
package spec

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

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

// Tail is the treatment of records that do not fill a round of batches.
type Tail string

const (
	TailKeep Tail = "keep" // nothing is done: streams may differ in length
	TailDrop Tail = "drop" // cut to a multiple of workers × batch
	TailPad  Tail = "pad"  // extended to such a multiple, with records from the start of G
)

// OnCorrupt is the treatment of damaged records that indexing finds.
type OnCorrupt string

const (
	CorruptFail OnCorrupt = "fail" // reject the dataset, naming shard, record and offset
	CorruptSkip OnCorrupt = "skip" // skip damaged records, and list them
)

// IO names an I/O engine.
type IO string

const (
	IOAuto  IO = "auto"  // uring if the kernel permits it, else pread
	IOUring IO = "uring" // io_uring, or an error
	IOPread IO = "pread" // pread on a bounded pool of threads
)

// Direct is when reads bypass the page cache (O_DIRECT).
type Direct string

const (
	DirectAuto Direct = "auto" // large cold reads of a dataset that does not fit into memory
	DirectOn   Direct = "on"   // all reads, if the file system permits it
	DirectOff  Direct = "off"  // none
)

// Hedge is when a second request is made because a service's response takes far longer than usual.
type Hedge string

const (
	HedgeAuto Hedge = "auto" // for data that readers wait for, at most 5 % of requests
	HedgeOff  Hedge = "off"  // never
)

// Read names a read strategy. All give the same bytes.
type Read string

const (
	ReadAuto   Read = "auto"   // the strategy that reads no byte repeatedly within MemoryBytes
	ReadScan   Read = "scan"   // whole pieces of shards when they are needed, cached in memory
	ReadGather Read = "gather" // exactly the records that come next; for uncompressed shards
	ReadSpool  Read = "spool"  // compressed shards decoded once each into a local file
)

// Remainder is the treatment of the last bytes of a fixed shard if they fill no record.
type Remainder string

const (
	RemainderCorrupt Remainder = "corrupt"
	RemainderDrop    Remainder = "drop"
)

// Format is how shards are divided into records (pipeline/format/RECORDS.md).
type Format struct {
	// Name is "auto" or the name of a format (format/formats).
	Name string
	// RecordBytes, StrideBytes and HeaderBytes are N, S and H of format fixed. StrideBytes 0 means
	// RecordBytes. HeaderBytes is also for tokens.
	RecordBytes, StrideBytes, HeaderBytes int64
	Remainder                             Remainder
	// Lc0Check makes format lc0 check every frame, and treat impossible ones as damaged.
	Lc0Check bool
	// As is the form of each record in a stream.
	As As
	// Arrays are read together, with one row of each forming a record. It is empty if shards have
	// whole records.
	Arrays []Array
	// Zarr selects the crops of arrays that are the records of format zarr.
	Zarr Zarr
	// Rows selects what is read of tables (format parquet), and how tokens become records.
	Rows Rows `json:",omitzero"`
	// MaxRowBytes bounds a presented row, and the pages that are decoded for it: Spec.MaxRecordBytes,
	// for packages that have only the format. It is not a parameter of the format: a shard within
	// the bound has the same records with any bound.
	MaxRowBytes int64 `json:"-"`
}

// Rows is how rows of tables become records, in the notation of the flags; "" if a flag was not
// given.
type Rows struct {
	Columns string // items separated by commas: PATH, NAME=PATH, *
	Pack    string // L or L+1 tokens in a record
	EOS     string // the token after each list
	Dtype   string // of the tokens: u2, u4, i4, i8
	Groups  bool   // only the first row of each row group is an entry point
}

// WithDefaults fills in omitted settings: for fixed the stride and the handling of a remainder, for
// packed tokens their presentation. Arrays that are read together have format npy.
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
	if f.Name == "parquet" && f.Rows.Pack != "" && f.As == "" {
		f.As = AsNPY
	}
	return f
}

// Order is everything that determines G, the global order of an epoch, apart from the dataset and
// the epoch's number. Equal values give equal orders.
type Order struct {
	Seed        uint64
	Shuffle     Shuffle
	SizeRecords uint64 // of the shuffle buffer, over all lanes
	Lanes       uint64
	Groups      uint64
	// Batch is the batch size that the order itself depends on: 1 unless Groups > 1.
	Batch        uint64
	ChunkBytes   uint64
	ChunkRecords uint64
	Split        Split     `json:",omitzero"` // selects the records of the dataset that are ordered
	Sample       Subsample `json:",omitzero"` // of these, the share in each epoch
	Length       uint64    `json:",omitzero"` // positions of a mixture's epoch; 0 if there is none, or if Mix determines it
}

// Assignment is how G′, the remainder of G, is assigned to workers.
type Assignment struct {
	Workers uint64
	Batch   uint64
	Dealing Dealing
	Tail    Tail
}

// Spec is a user's whole configuration of a dataset and its streams.
type Spec struct {
	// Dataset is a directory, a file, or a pattern with ** and {000..146}; or the same at a
	// service, such as s3://BUCKET/PREFIX or https://HOST/{000..146}.tar.
	Dataset string
	// Mix has the sources of a mixture, which replaces Dataset.
	Mix Mix
	// Exclude has patterns, relative to each dataset, of files that are excluded from it.
	Exclude []string
	Format  Format
	Order   Order
	Deal    Assignment
	Epoch   uint64

	OnCorrupt OnCorrupt
	// IndexDir holds stored indexes. If empty, it is DATASET/.lsiofs if that exists,
	// else lsiofs in the user's cache directory.
	IndexDir string

	// MemoryBytes bounds all data in memory.
	MemoryBytes int64
	// MaxRecordBytes bounds the size of a record; 0 means no bound. A record is held whole while it
	// is read, and a few bytes of a compressed shard can decode to any size.
	MaxRecordBytes int64
	IO             IO
	Direct         Direct
	ReadTimeout    time.Duration
	Read           Read
	// SpoolDir is where compressed shards are spooled. If empty, it is the directory
	// spool next to the stored index.
	SpoolDir string
	// SpoolMaxBytes bounds the spool; 0 means what the order needs.
	SpoolMaxBytes int64
	// Lookahead is how many bytes ahead of the readers the upcoming reads are announced to services
	// and disk caches, for all readers together; 0 derives it from the readers' rates.
	Lookahead int64
	Remote    Remote
	Cache     Cache
	Grow      Grow
}

// Addressing is how requests name a bucket.
type Addressing string

const (
	AddressingAuto    Addressing = "auto"    // as configured in the profile, else virtual at Amazon and path elsewhere
	AddressingPath    Addressing = "path"    // https://HOST/BUCKET/KEY
	AddressingVirtual Addressing = "virtual" // https://BUCKET.HOST/KEY
)

// Remote is how datasets are read from services: buckets and web servers. It has no secrets: these
// come from the environment and from files.
type Remote struct {
	Region        string // region of the bucket; "": from the environment or the service
	Endpoint      string // https://HOST of an S3-compatible service; "" for Amazon's
	Addressing    Addressing
	Anonymous     bool // requests are not signed
	RequesterPays bool
	AuthFile      string // tokens and headers for web servers, one per line
	CAFile        string // trusted certificates, in addition to the system's
	Unversioned   bool   // objects without ETag and date are identified by size alone
	Connections   int    // maximum number of concurrent requests
	Hedge         Hedge  // a second request if one takes far longer than usual
}

// Fill is whether a cache is filled with data that no reader has requested yet.
type Fill string

const (
	FillAuto Fill = "auto" // with the bandwidth that readers leave, once they have started
	FillOff  Fill = "off"
)

// Cache is where and how data that was read from a service, or from a network file system, is
// stored on a local disk. No byte of a stream depends on it.
type Cache struct {
	// Off disables the cache.
	Off bool
	// Dir is the directory; "" for lsiofs/data in the user's cache directory.
	Dir string
	// SizeBytes bounds the size of the cache on its disk, including all other datasets there;
	// SizePercent is the same as a percentage of the file system. If both are 0, it has room for
	// the dataset, provided that half of the free space suffices.
	SizeBytes   int64
	SizePercent float64
	// ReserveBytes of the file system stay free; below 0: a tenth, at most 20 GiB.
	ReserveBytes int64
	Fill         Fill
	// Warm fills the cache before anything is read.
	Warm bool
}

// Asked reports whether the user explicitly asked for a cache: then it is an error if there can't
// be one.
func (c Cache) Asked() bool {
	return !c.Off && (c.Dir != "" || c.SizeBytes > 0 || c.SizePercent > 0 || c.Warm)
}

// MaxConnections bounds Remote.Connections: each takes a descriptor and about 100 KiB.
const MaxConnections = 1024

// MaxLookahead bounds Spec.Lookahead.
const MaxLookahead = 1 << 40

// Limits of counts (pipeline/order/ORDER.md, Numbers).
const (
	MaxWorkers = 65536
	MaxLanes   = 65536
)

// Default returns the values that the command line documents as defaults.
func Default() Spec {
	return Spec{
		Format: Format{Name: "auto", Remainder: RemainderCorrupt},
		Order: Order{
			Shuffle: ShuffleReservoir, SizeRecords: 16384, Lanes: 32, Groups: 1,
			Batch: 1, ChunkBytes: 256 << 10, ChunkRecords: 128,
		},
		Deal:        Assignment{Workers: 1, Batch: 1, Dealing: DealInterleaved, Tail: TailKeep},
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

// Bounds of the default of MemoryBytes and MaxRecordBytes: at most mostMemory, less for a process
// that may use less than four times as much, but at least leastMemory.
const (
	mostMemory  = 1 << 30
	leastMemory = 16 << 20
)

// MemoryWithin returns the default of MemoryBytes, and of MaxRecordBytes, for a process that may
// use allowedBytes: a quarter of it, because tables, decoders and the page cache need memory too.
func MemoryWithin(allowedBytes int64) int64 {
	return min(max(allowedBytes/4&^(1<<20-1), leastMemory), mostMemory)
}

// Validate reports every problem of s at once, one error per line, each naming the flag, the value
// and the bound. It does no I/O. Whether there is a format of that name is not known here: callers
// use formats.Validate, which checks it in addition.
func (s Spec) Validate() error {
	var p problems
	if s.Dataset == "" && !s.Mix.Asked() {
		p.addf("no dataset given: name a directory, a file or a quoted pattern")
	}
	s.validateMix(&p)
	s.Format.validate(&p)
	s.Order.validate(&p)
	s.Deal.validate(&p)
	if s.Order.Groups > 1 && s.Order.Batch != s.Deal.Batch {
		p.addf("--batch (%d) must be the order's batch (%d) when --groups is above 1", s.Deal.Batch, s.Order.Batch)
	}
	if s.Order.Groups > 1 && s.Deal.Dealing == DealContiguous && s.Deal.Tail != TailKeep {
		// An entry of a checkpoint can't represent what workers took of such a deal: the tail moves
		// the borders between them, and with groups every entry has the order's batch.
		p.addf("--deal contiguous with --tail %s can't be combined with --groups (%d) above 1: use --tail keep", s.Deal.Tail, s.Order.Groups)
	}
	oneOf(&p, "--on-corrupt", s.OnCorrupt, CorruptFail, CorruptSkip)
	oneOf(&p, "--io", s.IO, IOAuto, IOUring, IOPread)
	oneOf(&p, "--direct", s.Direct, DirectAuto, DirectOn, DirectOff)
	oneOf(&p, "--read", s.Read, ReadAuto, ReadScan, ReadGather, ReadSpool)
	if s.SpoolMaxBytes < 0 {
		p.addf("--spool-max (%d bytes) must be at least 0; 0 is what the order needs", s.SpoolMaxBytes)
	}
	if n := s.Lookahead; n < 0 || n > MaxLookahead {
		p.addf("--lookahead (%d bytes) must be between 0 and 1TiB; 0 adapts it to the readers' rates", n)
	}
	if s.MemoryBytes < 1<<20 {
		p.addf("--memory (%d bytes) must be at least 1MiB", s.MemoryBytes)
	}
	if s.MaxRecordBytes < 0 {
		p.addf("--max-record (%d bytes) must be at least 0; 0 is no bound", s.MaxRecordBytes)
	}
	if n := s.Remote.Connections; n < 1 || n > MaxConnections {
		p.addf("--connections (%d) must be between 1 and %d", n, MaxConnections)
	}
	oneOf(&p, "--addressing", cmp.Or(s.Remote.Addressing, AddressingAuto), AddressingAuto, AddressingPath, AddressingVirtual)
	oneOf(&p, "--hedge", s.Remote.Hedge, HedgeAuto, HedgeOff)
	oneOf(&p, "--cache-fill", s.Cache.Fill, FillAuto, FillOff)
	if c := s.Cache; c.SizeBytes < 0 || c.SizePercent < 0 || c.SizePercent > 100 {
		p.addf("--cache-size (%d bytes, %v %%) must be auto, off, a number of bytes, or at most 100%% of the file system", c.SizeBytes, c.SizePercent)
	}
	if s.Cache.Off && s.Cache.Warm {
		p.addf("--warm and --cache-size off can't be combined: leave one of them out")
	}
	s.validateGrow(&p)
	if s.ReadTimeout <= 0 {
		p.addf("--read-timeout (%v) must be above 0", s.ReadTimeout)
	}
	return errors.Join(p...)
}

func (f Format) validate(p *problems) {
	f.validateZarr(p)
	if f.Lc0Check && f.Name != "lc0" && f.Name != "auto" {
		p.addf("--lc0-check needs --format lc0, not %q", f.Name)
	}
	f.validateAs(p)
	f.validateArrays(p)
	oneOf(p, "--remainder", f.Remainder, RemainderCorrupt, RemainderDrop)
	if f.Name != "fixed" {
		if f.RecordBytes != 0 || f.StrideBytes != 0 || f.HeaderBytes != 0 && f.Name != "tokens" {
			p.addf("--record-bytes, --stride-bytes and --header-bytes need --format fixed, not %q", f.Name)
		}
		f.validateHeader(p)
		return
	}
	if f.RecordBytes <= 0 {
		p.addf("--record-bytes (%d) must be at least 1 for --format fixed", f.RecordBytes)
	}
	if f.StrideBytes < 0 {
		p.addf("--stride-bytes (%d) must be at least 1", f.StrideBytes)
	}
	f.validateHeader(p)
}

func (f Format) validateHeader(p *problems) {
	if f.HeaderBytes < 0 {
		p.addf("--header-bytes (%d) must be at least 0", f.HeaderBytes)
	}
}

func (o Order) validate(p *problems) {
	oneOf(p, "--shuffle", o.Shuffle, ShuffleReservoir, ShuffleBlock, ShuffleFull, ShuffleNone)
	bounds(p, "--lanes", o.Lanes, 1, MaxLanes)
	bounds(p, "--groups", o.Groups, 1, MaxLanes)
	if o.Groups >= 1 && o.Lanes%o.Groups != 0 {
		p.addf("--groups (%d) must divide --lanes (%d)", o.Groups, o.Lanes)
	}
	bounds(p, "--chunk-bytes", o.ChunkBytes, 1, 1<<40)
	bounds(p, "--chunk-records", o.ChunkRecords, 1, 1<<32)
	bounds(p, "--shuffle-size", o.SizeRecords, 0, 1<<40)
	if o.Groups <= 1 && o.Batch != 1 {
		p.addf("the order's batch (%d) must be 1 when --groups is 1", o.Batch)
	}
	if o.Groups > 1 {
		bounds(p, "--batch", o.Batch, 1, 1<<32)
	}
	o.Split.validate(p)
	o.Sample.validate(p)
}

func (d Assignment) validate(p *problems) {
	bounds(p, "--workers", d.Workers, 1, MaxWorkers)
	bounds(p, "--batch", d.Batch, 1, 1<<32)
	oneOf(p, "--deal", d.Dealing, DealInterleaved, DealContiguous)
	oneOf(p, "--tail", d.Tail, TailKeep, TailDrop, TailPad)
}

type problems []error

func (p *problems) addf(format string, args ...any) { *p = append(*p, fmt.Errorf(format, args...)) }

func bounds(p *problems, flag string, v, low, high uint64) {
	if v < low || v > high {
		p.addf("%s (%d) must be between %d and %d", flag, v, low, high)
	}
}

func oneOf[T ~string](p *problems, flag string, v T, allowed ...T) {
	if slices.Contains(allowed, v) {
		return
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	p.addf("%s (%q) must be one of %s", flag, v, strings.Join(names, ", "))
}

// Unsupported is a common dataset format that lsiofs does not read.
type Unsupported struct {
	Name  string // name in --format; also the extension of its files
	Title string
	// python converts the files below the working directory to JSON lines. If possible, the lines
	// of each file are written next to it, with .jsonl added to the name.
	python [2]string
}

const eachTo = `for f in glob.glob("**/*.%s", recursive=True): %s`

// unsupported has the conversion programs according to the documentation of their libraries.
var unsupported = []Unsupported{
	{"arrow", "Arrow", [2]string{"import datasets, glob", fmt.Sprintf(eachTo, "arrow", `datasets.Dataset.from_file(f).to_json(f + ".jsonl")`)}},
	{"feather", "Feather", [2]string{"import glob, pandas", fmt.Sprintf(eachTo, "feather", `pandas.read_feather(f).to_json(f + ".jsonl", orient="records", lines=True)`)}},
	{"mds", "MosaicML's MDS", [2]string{`import json, streaming; d = streaming.LocalDataset(".")`, `with open("all.jsonl", "w") as f: f.writelines(json.dumps(d[i]) + "\n" for i in range(len(d)))`}},
}

// UnsupportedFile returns the unsupported format that a file's name indicates, compressed or not.
func UnsupportedFile(path string) (Unsupported, bool) {
	for _, codec := range []string{".gz", ".zst", ".zstd", ".lz4", ".br", ".bz2", ".snappy"} {
		path = strings.TrimSuffix(path, codec)
	}
	i := slices.IndexFunc(unsupported, func(u Unsupported) bool { return strings.HasSuffix(path, "."+u.Name) })
	if i < 0 {
		return Unsupported{}, false
	}
	return unsupported[i], true
}

// Convert returns instructions for converting data to a supported format.
func (u Unsupported) Convert() string {
	return fmt.Sprintf("convert it to JSON lines, with these two lines of Python in its directory, and mount that with --format jsonl; records with bytes in them, such as images, need .tar or .npy (see lsiofs help formats)\n    %s\n    %s",
		u.python[0], u.python[1])
}
