package read

import "github.com/lsiofs/lsiofs/pipeline/catalog"

// Start is what has to be decoded before the first bytes of a stream can be read, if they are in
// compressed shards.
type Start struct {
	Shards      int   `json:"shards"`       // compressed, that have some of the first records
	DecodeBytes int64 `json:"decode_bytes"` // to decode before and including these records
	// Seconds is about how long that takes, at assumed rates, on all processors that were available
	// when the fetcher was made.
	Seconds float64 `json:"seconds"`
}

// decodedBytesPerSecond returns the rate of decoding on one processor: JSON text, by this module's
// decoders, on a server of 2026.
func decodedBytesPerSecond(codec string) float64 {
	switch codec {
	case "zstd", "lz4":
		return 1.2e9
	}
	return 400e6
}

// Start returns what has to be decoded for the first n records of a sequence: they are needed at
// about the same time, since readers look that far ahead.
func (f *Fetcher) Start(seq Sequence, n int) Start {
	if f.scanner == nil {
		return Start{} // no shard is compressed
	}
	type stretch struct{ from, to int64 }
	shards := map[int]stretch{}
	numbers := make([]uint64, max(n, 1))
	numbers = numbers[:seq.Records(0, numbers)]
	extents := make([]catalog.Extent, len(numbers))
	f.o.Index.Extents(numbers, extents)
	for _, x := range extents {
		if f.o.Index.Shard(x.Shard).Codec == nil {
			continue
		}
		from := int64(0)
		if !f.o.Choice.Spools(x.Shard) {
			from = f.o.Index.Entry(x.Shard, x.OffsetBytes).DecodedBytes
		}
		s, ok := shards[x.Shard]
		if !ok {
			s.from = from
		}
		shards[x.Shard] = stretch{min(s.from, from), max(s.to, x.OffsetBytes+x.SizeBytes)}
	}
	var s Start
	longest := 0.0 // a shard is decoded on one processor
	for i, x := range shards {
		seconds := float64(x.to-x.from) / decodedBytesPerSecond(f.o.Index.Shard(i).Codec.Name())
		s.Shards++
		s.DecodeBytes += x.to - x.from
		s.Seconds += seconds
		longest = max(longest, seconds)
	}
	s.Seconds = max(s.Seconds/float64(f.scanner.Cores()), longest)
	return s
}
