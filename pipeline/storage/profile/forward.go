package profile

import "cmp"

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
