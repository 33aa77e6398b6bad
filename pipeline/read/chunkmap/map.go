package chunkmap

import "github.com/lsiofs/lsiofs/pipeline/catalog"

// Index locates shards and records.
type Index interface {
	Shards() int
	Shard(i int) catalog.Shard
	Extents(records []uint64, dst []catalog.Extent)
}

// Part is a subset of the records: the others are never asked for.
type Part interface {
	Has(record uint64) bool
	// Count returns how many of the records from … to-1 are in the part.
	Count(from, to uint64) uint64
}

// Map locates pieces in their shards. It is immutable.
type Map struct {
	Index Index
	Table Table
	Part  Part
	// Unaligned means that pieces need not begin and end at whole pages, which has no advantage if
	// bytes come from a service.
	Unaligned bool
}

// PiecesOf returns the first and the last piece of a shard, which must have records.
func (p *Map) PiecesOf(shard int) (first, last int) {
	s := p.Index.Shard(shard)
	return p.Table.Of(s.First), p.Table.Of(s.First + s.Records - 1)
}

// StartBytes returns where a piece begins in its decoded shard.
func (p *Map) StartBytes(piece int) int64 {
	var x [1]catalog.Extent
	p.Index.Extents(p.Table.Starts[piece:piece+1], x[:])
	return x[0].OffsetBytes
}

// DecodedBytes returns the size of a decoded shard.
func (p *Map) DecodedBytes(shard int) int64 { return p.Index.Shard(shard).DecodedBytes }

// AnyFrom reports whether any record of the part is in the given piece of the shard, or after it in
// the shard.
func (p *Map) AnyFrom(shard, piece int) bool {
	s := p.Index.Shard(shard)
	from, end := p.Table.Starts[piece], s.First+s.Records
	return from < end && p.Part.Count(from, end) > 0
}

// Shards returns the number of shards.
func (p *Map) Shards() int { return p.Index.Shards() }

// Records returns the number of a shard's records, and of those in the part.
func (p *Map) Records(shard int) (all, wanted uint64) {
	s := p.Index.Shard(shard)
	return s.Records, p.Part.Count(s.First, s.First+s.Records)
}

// Path returns the name of a shard.
func (p *Map) Path(shard int) string { return p.Index.Shard(shard).Object.Path }

// Wants reports whether any record of a piece is in the part.
func (p *Map) Wants(piece int) bool {
	return p.Part.Count(p.Table.Starts[piece], p.Table.Starts[piece+1]) > 0
}
