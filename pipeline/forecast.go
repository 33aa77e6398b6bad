package pipeline

import (
	"context"
	"math/bits"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/plan"
	"github.com/lsiofs/lsiofs/pipeline/read"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

// Forecast is what the first records of a worker's stream would read, starting from empty memory
// and without other readers.
type Forecast struct {
	Records     uint64
	RecordBytes int64 // total size of these records
	Storages    []StorageForecast
}

// StorageForecast is what would be read from one storage. Today there is one: local files. Strategy
// is the one of Scan, Gather and Spool that a mount would use.
type StorageForecast struct {
	Kind     string // "local"
	Root     string
	Likes    profile.Profile // the reads that the storage is fast at
	Strategy spec.Read       // the strategy that a mount would use
	Reason   string          // why, in words
	Scan     ScanForecast
	Gather   *GatherForecast // nil if there are compressed shards
	Spool    *SpoolForecast  // nil if a mount would not spool
	// Epoch is what a whole epoch costs that reads each chunk once, and the memory or disk cache
	// needed for that. It is approximate, and matters for services.
	Epoch read.Needs
	// Warning is what a mount would warn about; "" for nothing.
	Warning string
}

// ReadsForecast counts reads.
type ReadsForecast struct {
	Reads     uint64
	ReadBytes int64
	ByLength  [65]uint64 // reads by the bit length of their size in bytes
}

func (r *ReadsForecast) add(n int64) {
	r.Reads++
	r.ReadBytes += n
	r.ByLength[bits.Len64(uint64(n))]++
}

// ScanForecast is the cost of reading whole pieces and keeping their records.
type ScanForecast struct {
	ReadsForecast
	Pieces      uint64
	KeptBytes   int64 // the most kept at a time for sequential readers
	MemoryBytes int64 // the budget
	Fits        bool  // each piece is read once; if false, some may be read again
	Estimated   bool  // true with compressed shards: the numbers are close, not exact
	Compressed  uint64
	Passes      uint64 // decoder runs over compressed shards or parts of them
}

// GatherForecast is the cost of reading exactly the records, for a reader that asks for them one
// after the other. A mount that assembles a stream ahead of its reader sometimes reads in two
// places at once. Its plans then begin and end at other records, so it merges slightly more or
// fewer reads than forecast.
type GatherForecast struct {
	ReadsForecast
	GapBytes int64 // read and discarded
	Config   plan.Config
}

// SpoolForecast is the cost of decoding each compressed shard once, into a spool.
type SpoolForecast struct {
	ReadsForecast
	Shards     uint64 // shards to decode
	SpoolBytes int64  // disk space that a mount reserves
	FewerLanes string // what fewer lanes would need, in words; "" if that is not less
}

// forecast is Dataset.Forecast.
func (g *generation) forecast(ctx context.Context, v *order.View, w, n uint64, asked spec.Read) (Forecast, error) {
	seq := workerSequence{v, w}
	f := Forecast{Records: min(n, seq.Len())}
	choice, err := g.fetcher.Choose(asked)
	if err != nil {
		return f, err
	}
	if f.RecordBytes, err = g.recordBytes(ctx, seq, f.Records); err != nil {
		return f, err
	}
	s := StorageForecast{Kind: g.mount.scheme.name, Root: g.catalog.Root(), Likes: g.mount.profile, Strategy: choice.Strategy, Reason: choice.Reason, Epoch: g.fetcher.Needs(), Warning: choice.Warning}
	scan, err := g.fetcher.ForecastPhase(ctx, seq, v.Epoch().Part(), f.Records, read.Choice{}, s.Scan.add)
	if err != nil {
		return f, err
	}
	s.Scan.Pieces, s.Scan.KeptBytes, s.Scan.Fits, s.Scan.Estimated = scan.Pieces, scan.KeptBytes, scan.Fits, scan.Estimated
	s.Scan.Compressed, s.Scan.Passes = scan.Compressed, scan.Passes
	s.Scan.MemoryBytes = g.spec.MemoryBytes
	if !scan.Estimated {
		s.Gather = new(GatherForecast)
		gather, err := g.fetcher.ForecastGather(ctx, seq, f.Records, s.Gather.add)
		if err != nil {
			return f, err
		}
		s.Gather.GapBytes, s.Gather.Config = gather.GapBytes, gather.Config
	}
	if choice.Strategy == spec.ReadSpool {
		s.Spool = &SpoolForecast{SpoolBytes: choice.SpoolBytes, FewerLanes: choice.FewerLanes}
		spool, err := g.fetcher.ForecastPhase(ctx, seq, v.Epoch().Part(), f.Records, choice, s.Spool.add)
		if err != nil {
			return f, err
		}
		s.Spool.Shards = spool.Spooled
	}
	f.Storages = []StorageForecast{s}
	return f, nil
}

// recordBytes is the total size of a sequence's first n records.
func (g *generation) recordBytes(ctx context.Context, seq workerSequence, n uint64) (sum int64, err error) {
	numbers, sizes := make([]uint64, 1024), make([]int64, 1024)
	for k := uint64(0); k < n && ctx.Err() == nil; {
		m := seq.Records(k, numbers[:min(n-k, uint64(len(numbers)))])
		if m == 0 {
			break
		}
		g.catalog.Sizes(numbers[:m], sizes[:m])
		for _, size := range sizes[:m] {
			sum += size
		}
		k += uint64(m)
	}
	return sum, ctx.Err()
}

// workerSequence is the sequence of a worker's records.
type workerSequence struct {
	view   *order.View
	worker uint64
}

func (s workerSequence) Len() uint64 { return s.view.Count(s.worker) }

func (s workerSequence) Records(k uint64, dst []uint64) int {
	return s.view.Records(s.worker, k, dst)
}
