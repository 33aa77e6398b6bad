package storage

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
)

// Kind is the kind of device below a file system, or of service that has the dataset.
type Kind string

const (
	KindDisk    Kind = "disk"    // rotating disks
	KindSSD     Kind = "ssd"     // solid state disks, NVMe or SATA
	KindVirtual Kind = "virtual" // a disk that a hypervisor or a cloud emulates
	KindMemory  Kind = "memory"  // tmpfs, ramfs
	KindNetwork Kind = "network" // NFS, SMB, Lustre, Ceph, FUSE and the like
	KindObject  Kind = "object"  // S3 buckets and similar
	KindWeb     Kind = "web"     // web servers
	KindUnknown Kind = "unknown"
)

// Kinds are all kinds.
var Kinds = []Kind{KindDisk, KindSSD, KindVirtual, KindMemory, KindNetwork, KindObject, KindWeb, KindUnknown}

// Profile describes which reads a storage is fast at: how large, how many at a time, and over which
// gaps. There are defaults for each kind of storage; measurements of lsiofs tune replace them
// (package filesystem). A profile affects only speed: the bytes that are read don't depend on it.
// It is a plain value.
type Profile struct {
	Kind Kind `json:"kind"`
	// GapBytes is the largest gap of unwanted bytes that is read and discarded to save a
	// request: reading and copying that many bytes costs as much as a request.
	GapBytes int64 `json:"gap_bytes"`
	// ReadBytes is the size above which reads get no faster. Larger ranges are split into reads of
	// this size, which run in parallel.
	ReadBytes int64 `json:"read_bytes"`
	// Depth and InFlightBytes are enough to keep the storage busy: that many small reads, or that
	// many bytes of large ones, whichever is reached first. More would only make the first reads
	// wait.
	Depth         int   `json:"depth"`
	InFlightBytes int64 `json:"in_flight_bytes"`
	// AlignBytes divides the offsets at which a range is split. It is a power of two that divides
	// ReadBytes.
	AlignBytes int64 `json:"align_bytes"`
	// Apart means that each record is a separate read, of the whole record. It is computed, not
	// stored.
	Apart bool `json:"-"`
	// Pass and Ahead are not measured by lsiofs tune. Fields that are not set get the default of
	// the kind (Or).
	Pass  Pass  `json:"pass,omitzero"`
	Ahead Ahead `json:"ahead,omitzero"`
	// Tuned is the time of the measurement; zero for defaults.
	Tuned time.Time `json:"tuned,omitzero"`
}

// Bounds of a profile's numbers.
const (
	MaxGapBytes    = 64 << 20
	MinReadBytes   = 4 << 10
	MaxReadBytes   = 64 << 20
	MaxInFlight    = 1 << 30 // bytes
	MaxDepth       = 4096
	MaxAlignBytes  = 1 << 20
	MinHeaderBytes = 1 << 10
	MaxAheadBytes  = 4 << 30
)

// defaultAlign is a page, and a block of almost all file systems.
const defaultAlign = 4 << 10

// DefaultProfile returns the values for a storage that was not measured. The gap is the number of
// bytes that cost as much to read and to copy as a request does, as in lsiofs tune.
//
// For ssd and memory it is measured (plan.DefaultConfig). From the page cache, a pread of 4 KiB
// takes 0.8 µs, and large ones reach 17 GiB/s. So a request costs as much as about 10 KiB more. The
// others follow from the usual properties of such storages:
//
//	disk     4 ms for half a turn, or a short seek × 150 MB/s: 0.5 MiB; a deep queue
//	         lets it sort
//	virtual  16 KiB: on the one that was measured 11 to 13 µs ÷ (0.3 to 0.4 ns to
//	         read + 0.1 ns to copy) are 27 KiB, but records of 1.2 KiB were fastest with
//	         gaps of 4 to 8 KiB, and those of 12 KiB with any from 8 to 32
//	network  0.1 ms of a server that does several at a time ÷ (1 ns + 0.4 ns): 64 KiB
//	object,  a request takes 70 to 220 µs of a core, and 25 ms; 128 KiB take 40 to
//	web      110 µs of a core, and 0.13 ms of a link of 1 GB/s. 128 requests at a time
//	         are 1.1 GB/s of 256 KiB
func DefaultProfile(k Kind) Profile {
	p := Profile{Kind: k, GapBytes: 8 << 10, ReadBytes: 1 << 20, Depth: 64, InFlightBytes: 32 << 20, AlignBytes: defaultAlign}
	switch k {
	case KindDisk:
		p.GapBytes, p.ReadBytes, p.Depth = 512<<10, 4<<20, 32
	case KindVirtual:
		p.GapBytes = 16 << 10
	case KindNetwork:
		p.GapBytes = 64 << 10
	case KindObject, KindWeb:
		p.GapBytes, p.ReadBytes, p.Depth, p.InFlightBytes = 128<<10, 8<<20, 128, 256<<20
		p.Pass, p.Ahead = remotePass, remoteAhead
		return p
	case KindSSD, KindMemory:
	default:
		p.Kind = KindUnknown
	}
	p.Pass, p.Ahead = defaultPass, defaultAhead
	return p
}

// Or returns p with zero fields of Pass and Ahead replaced by the defaults of its kind. If p is the
// zero value, it returns the defaults of an unknown storage.
func (p Profile) Or() Profile {
	if p == (Profile{}) {
		return DefaultProfile(KindUnknown)
	}
	d := DefaultProfile(p.Kind)
	p.Pass, p.Ahead = p.Pass.or(d.Pass), p.Ahead.or(d.Ahead)
	return p
}

// WithoutDefaults returns p with zeros in place of the fields of Pass and Ahead that have the
// default of its kind: Or undoes it.
func (p Profile) WithoutDefaults() Profile {
	d := DefaultProfile(p.Kind)
	p.Pass, p.Ahead = p.Pass.without(d.Pass), p.Ahead.without(d.Ahead)
	return p
}

// Validate reports all problems at once.
func (p Profile) Validate() error {
	var errs []error
	bounds := func(name string, v, low, high int64) {
		if v < low || v > high {
			errs = append(errs, fmt.Errorf("%s (%d) must be between %d and %d", name, v, low, high))
		}
	}
	known := false
	for _, k := range Kinds {
		known = known || p.Kind == k
	}
	if !known {
		errs = append(errs, fmt.Errorf("kind (%q) must be one of %v", p.Kind, Kinds))
	}
	bounds("gap_bytes", p.GapBytes, 0, MaxGapBytes)
	bounds("read_bytes", p.ReadBytes, MinReadBytes, MaxReadBytes)
	bounds("depth", int64(p.Depth), 1, MaxDepth)
	bounds("in_flight_bytes", p.InFlightBytes, max(p.ReadBytes, MinReadBytes), MaxInFlight)
	bounds("align_bytes", p.AlignBytes, 1, MaxAlignBytes)
	if a := p.AlignBytes; a > 0 && (a&(a-1) != 0 || p.ReadBytes%a != 0) {
		errs = append(errs, fmt.Errorf("align_bytes (%d) must be a power of two that divides read_bytes (%d)", a, p.ReadBytes))
	}
	p.Pass.validate(bounds)
	p.Ahead.validate(bounds)
	if h := p.Pass.HeaderBytes; h > 0 && h&(h-1) != 0 {
		errs = append(errs, fmt.Errorf("pass.header_bytes (%d) must be a power of two", h))
	}
	return errors.Join(errs...)
}

// Source returns where the values come from, such as "default for ssd" or "tuned 2026-11-21".
func (p Profile) Source() string {
	if p.Tuned.IsZero() {
		return "default for " + string(p.Kind)
	}
	return "tuned " + p.Tuned.Format(time.DateOnly)
}

// String describes the profile for users: kind, values and their source.
func (p Profile) String() string {
	return fmt.Sprintf("%s, %s: reads of up to %s, %d or %s at a time, across gaps of up to %s",
		p.Kind, p.Source(), size(p.ReadBytes), p.Depth, size(p.InFlightBytes), size(p.GapBytes))
}

func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// Pass is how indexing and verifying read whole shards, one after another.
type Pass struct {
	// ReadBytes is the size that sequential reads grow to.
	ReadBytes int64 `json:"read_bytes,omitzero"`
	// SkipBytes matters if only headers are needed. Up to this mean number of bytes between two
	// headers, everything is read. Above it each header is read on its own, up to the next multiple
	// of HeaderBytes, a power of two.
	SkipBytes   int64 `json:"skip_bytes,omitzero"`
	HeaderBytes int64 `json:"header_bytes,omitzero"`
	// InFlightBytes is how much is in flight for all shards together, if every byte is
	// read.
	InFlightBytes int64 `json:"in_flight_bytes,omitzero"`
	// Shards is how many shards are read at a time; 0 means one per core.
	Shards int `json:"shards,omitzero"`
	// StreamBytes, if it is not 0, makes storages that have streams (storage.Caps) read a
	// shard as one stream; it is how much is read from a stream at a time. Up to SkipBytes between
	// two headers are then read and dropped; beyond that, the stream is closed and the next header
	// is requested.
	StreamBytes int64 `json:"stream_bytes,omitzero"`
}

// Ahead is how far ahead of its readers a storage is read. The memory budget is a further limit.
type Ahead struct {
	// Bytes is how much is read ahead for one reader.
	Bytes int64 `json:"bytes,omitzero"`
	// QueuedBytes bounds how much of that may be requested and not yet received, for all readers
	// together. Twice Profile.InFlightBytes is a further limit.
	QueuedBytes int64 `json:"queued_bytes,omitzero"`
	// FirstStretchBytes and StretchBytes are how much gather plans at a time: for a reader that has
	// just begun to read sequentially, and for one that has done so for a while.
	FirstStretchBytes int64 `json:"first_stretch_bytes,omitzero"`
	StretchBytes      int64 `json:"stretch_bytes,omitzero"`
	// DecodeBytes is the size of the reads for a decoder of a compressed shard, which reads one of
	// them ahead.
	DecodeBytes int64 `json:"decode_bytes,omitzero"`
}

// Defaults of file systems, whatever device they are on. In file order, reads of 1 MiB are as fast
// as larger ones. If only headers are needed, reading one on its own takes 6 to 25 µs of a core
// through an engine, and 12 KiB of a large read take 3 µs (10⁶ tar samples of 12 KiB), so gaps of
// up to 24 KiB are read. 64 MiB queued are twice what an engine submits to the kernel at a time.
// Stretches larger than 8 MiB merge hardly more.
var (
	defaultPass  = Pass{ReadBytes: 1 << 20, SkipBytes: 24 << 10, HeaderBytes: 4 << 10, InFlightBytes: 16 << 20}
	defaultAhead = Ahead{Bytes: 32 << 20, QueuedBytes: 64 << 20, FirstStretchBytes: 256 << 10, StretchBytes: 8 << 20, DecodeBytes: 128 << 10}
)

// Defaults of services, which answer after 25 ms and deliver 85 MB/s per connection: 32 shards at a
// time are 2.7 GB/s as streams, and 1.3 GB/s in reads of 2 MiB. Skipping 1 MiB costs half as much
// as a request for the next header, and headers come with the data that follows them. A stream is
// read in pieces of 512 KiB: with 64 KiB the kernel announces free buffer space to the sender so
// often that a GiB took 1.0 s of processor time, with 256 KiB 0.86 and with 1 MiB 0.66. Decoders
// and readers wait less the more they have ahead.
var (
	remotePass  = Pass{ReadBytes: 2 << 20, SkipBytes: 1 << 20, HeaderBytes: 64 << 10, InFlightBytes: 256 << 20, Shards: 32, StreamBytes: 512 << 10}
	remoteAhead = Ahead{Bytes: 128 << 20, QueuedBytes: 256 << 20, FirstStretchBytes: 4 << 20, StretchBytes: 64 << 20, DecodeBytes: 8 << 20}
)

// ShardsAtATime returns how many shards are read at a time on a machine with that many cores.
func (p Pass) ShardsAtATime(cores int) int { return cmp.Or(p.Shards, cores) }

func (p Pass) or(d Pass) Pass {
	return Pass{
		ReadBytes: cmp.Or(p.ReadBytes, d.ReadBytes), SkipBytes: cmp.Or(p.SkipBytes, d.SkipBytes),
		HeaderBytes:   cmp.Or(p.HeaderBytes, d.HeaderBytes),
		InFlightBytes: cmp.Or(p.InFlightBytes, d.InFlightBytes), Shards: cmp.Or(p.Shards, d.Shards),
		StreamBytes: cmp.Or(p.StreamBytes, d.StreamBytes),
	}
}

func (p Pass) without(d Pass) Pass {
	return Pass{
		ReadBytes: unless(p.ReadBytes, d.ReadBytes), SkipBytes: unless(p.SkipBytes, d.SkipBytes),
		HeaderBytes:   unless(p.HeaderBytes, d.HeaderBytes),
		InFlightBytes: unless(p.InFlightBytes, d.InFlightBytes), Shards: unless(p.Shards, d.Shards),
		StreamBytes: unless(p.StreamBytes, d.StreamBytes),
	}
}

func (p Pass) validate(bounds func(name string, v, low, high int64)) {
	bounds("pass.read_bytes", p.ReadBytes, MinReadBytes, MaxReadBytes)
	bounds("pass.skip_bytes", p.SkipBytes, 1, MaxGapBytes)
	bounds("pass.header_bytes", p.HeaderBytes, MinHeaderBytes, MaxReadBytes)
	bounds("pass.in_flight_bytes", p.InFlightBytes, MinReadBytes, MaxInFlight)
	bounds("pass.shards", int64(p.Shards), 0, MaxDepth)
	if p.StreamBytes != 0 { // 0: no streams
		bounds("pass.stream_bytes", p.StreamBytes, MinHeaderBytes, MaxReadBytes)
	}
}

func (a Ahead) or(d Ahead) Ahead {
	return Ahead{
		Bytes: cmp.Or(a.Bytes, d.Bytes), QueuedBytes: cmp.Or(a.QueuedBytes, d.QueuedBytes),
		FirstStretchBytes: cmp.Or(a.FirstStretchBytes, d.FirstStretchBytes), StretchBytes: cmp.Or(a.StretchBytes, d.StretchBytes),
		DecodeBytes: cmp.Or(a.DecodeBytes, d.DecodeBytes),
	}
}

func (a Ahead) without(d Ahead) Ahead {
	return Ahead{
		Bytes: unless(a.Bytes, d.Bytes), QueuedBytes: unless(a.QueuedBytes, d.QueuedBytes),
		FirstStretchBytes: unless(a.FirstStretchBytes, d.FirstStretchBytes), StretchBytes: unless(a.StretchBytes, d.StretchBytes),
		DecodeBytes: unless(a.DecodeBytes, d.DecodeBytes),
	}
}

func (a Ahead) validate(bounds func(name string, v, low, high int64)) {
	bounds("ahead.bytes", a.Bytes, MinReadBytes, MaxAheadBytes)
	bounds("ahead.queued_bytes", a.QueuedBytes, MinReadBytes, 2*MaxInFlight)
	bounds("ahead.stretch_bytes", a.StretchBytes, MinReadBytes, MaxReadBytes)
	bounds("ahead.first_stretch_bytes", a.FirstStretchBytes, MinReadBytes, max(a.StretchBytes, MinReadBytes))
	bounds("ahead.decode_bytes", a.DecodeBytes, MinReadBytes, MaxReadBytes)
}

// unless returns v, or zero if it is the default.
func unless[T comparable](v, otherwise T) (zero T) {
	if v == otherwise {
		return zero
	}
	return v
}
