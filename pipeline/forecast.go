package pipeline

import (
	"context"
	"math"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/plan"
	"github.com/lsiofs/lsiofs/pipeline/read"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
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
	Likes    storage.Profile // the reads that the storage is fast at
	Strategy spec.Read       // the strategy that a mount would use
	Reason   string          // why, in words
	Scan     ScanForecast    // zero if the records are crops, which are computed one by one
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
	read.ReadCounts
	// CountedRecords is the number of records that were counted, if the counts are extrapolated from
	// these to all; else 0.
	CountedRecords uint64
}

func readsOf(f *read.Forecast) ReadsForecast { return ReadsForecast{f.ReadCounts, f.CountedRecords} }

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
	// DecodedBytes is what decoders of compressed shards give, also those that nobody wants.
	DecodedBytes int64
}

// GatherForecast is the cost of reading exactly the records.
type GatherForecast struct {
	ReadsForecast
	GapBytes int64 // read and discarded
	Config   plan.Config
	// Crops is what is decoded for crops, whose reads are those of stored chunks; nil for other
	// records.
	Crops *DecodedCrops
}

// DecodedCrops counts what is decoded for crops.
type DecodedCrops struct {
	Chunks       uint64 // decoded, whole or in part, as often as that is
	DecodedBytes int64
}

// SpoolForecast is the cost of decoding each compressed shard once, into a spool.
type SpoolForecast struct {
	ReadsForecast
	Shards uint64 // shards to decode, as often as that is
	// DecodedBytes is what their decoders give.
	DecodedBytes int64
	SpoolBytes   int64  // disk space that a mount reserves
	FewerLanes   string // what fewer lanes would need, in words; "" if that is not less
}

// forecast is Dataset.Forecast.
func (g *generation) forecast(ctx context.Context, v *order.View, w, n uint64) (f Forecast, err error) {
	seq := workerSequence{v, w}
	f = Forecast{Records: min(n, seq.Len())}
	survey, err := g.survey.AsRead()
	if err != nil {
		return f, err
	}
	choice, err := survey.Choose(g.spec.Read)
	if err != nil {
		return f, err
	}
	if f.RecordBytes, err = g.recordBytes(ctx, seq, f.Records); err != nil {
		return f, err
	}
	s := StorageForecast{Kind: g.mount.scheme.name, Root: g.catalog.Root(), Likes: survey.Profile(), Strategy: choice.Strategy, Reason: choice.Reason, Epoch: survey.Needs(), Warning: choice.Warning}
	e := v.Epoch()
	run := func(how read.Choice) (read.Forecast, error) {
		return survey.DryRun(ctx, seq, read.Subset{Number: e.Phase(), Part: e.Part()}, f.Records, how)
	}
	if g.cubes != nil {
		err = s.dryRunCrops(&choice, run)
	} else {
		err = s.dryRun(&choice, run, g.spec.MemoryBytes)
	}
	if err != nil {
		return f, err
	}
	f.Storages = []StorageForecast{s}
	return f, nil
}

// dryRun runs dry through each way of reading that is possible, and the one that is chosen.
func (s *StorageForecast) dryRun(choice *read.Choice, run func(read.Choice) (read.Forecast, error), memoryBytes int64) error {
	scan, err := run(read.Choice{Strategy: spec.ReadScan})
	if err != nil {
		return err
	}
	s.Scan = ScanForecast{
		ReadsForecast: readsOf(&scan), Pieces: scan.Pieces, KeptBytes: scan.KeptBytes, MemoryBytes: memoryBytes, Fits: scan.Fits,
		Estimated: scan.Estimated, Compressed: scan.Compressed, Passes: scan.Passes, DecodedBytes: scan.DecodedBytes,
	}
	if scan.Compressed == 0 {
		how := read.Choice{Strategy: spec.ReadGather}
		if choice.Strategy == spec.ReadGather {
			how = *choice
		}
		gather, err := run(how)
		if err != nil {
			return err
		}
		s.Gather = &GatherForecast{ReadsForecast: readsOf(&gather), GapBytes: gather.GapBytes, Config: gather.Plan}
	}
	if choice.Strategy == spec.ReadSpool {
		spool, err := run(*choice)
		if err != nil {
			return err
		}
		s.Spool = &SpoolForecast{ReadsForecast: readsOf(&spool), Shards: spool.Spooled, DecodedBytes: spool.DecodedBytes, SpoolBytes: choice.SpoolBytes, FewerLanes: choice.FewerLanes}
	}
	return nil
}

// dryRunCrops runs dry through the way in which crops are read.
func (s *StorageForecast) dryRunCrops(choice *read.Choice, run func(read.Choice) (read.Forecast, error)) error {
	x, err := run(*choice)
	if err != nil {
		return err
	}
	s.Gather = &GatherForecast{ReadsForecast: readsOf(&x), Config: x.Plan, Crops: &DecodedCrops{x.Chunks, x.DecodedBytes}}
	return nil
}

// recordBytes is the size of a sequence's first n records.
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

// ChunkRecords counts chunks by their number of records.
type ChunkRecords map[uint64]uint64

// NodeShare is the fraction of all chunks that each of several nodes fetches in an epoch. It
// assumes that node n reads the workers w with w mod nodes = n, that records are assigned in turn
// (--deal interleaved) from a buffer larger than a chunk, and that the number of workers is
// divisible by nodes and by groups.
//
// A worker reads from a single group, w mod groups. So with g the greatest common divisor of nodes
// and groups, a node reads the chunks of every g-th group, which are 1/g of all, and shares them
// with nodes/g − 1 other nodes. A node gets none of a chunk's r records with probability (1 −
// g/nodes)^r, since the buffer scatters them:
//
//	share = mean over chunks of (1 − (1 − g/nodes)^r) / g
//
// It is pure. Without chunks, or with 0 nodes or groups, it is 0.
func NodeShare(nodes, groups uint64, chunks ChunkRecords) float64 {
	if nodes == 0 || groups == 0 {
		return 0
	}
	g := float64(commonDivisor(nodes, groups))
	none := 1 - g/float64(nodes)
	sum, all := 0.0, 0.0
	for records, n := range chunks {
		sum += float64(n) * (1 - math.Pow(none, float64(records)))
		all += float64(n)
	}
	if all == 0 {
		return 0
	}
	return sum / all / g
}

func commonDivisor(a, b uint64) uint64 {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}
