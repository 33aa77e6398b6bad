package pipeline

import (
	"context"
	"fmt"
	"math/bits"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/fetch"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/plan"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

// Forecast is what the first records of a worker's stream would read, with
// nothing in memory and no other reader.
type Forecast struct {
	Records     uint64
	RecordBytes int64 // of these
	Storages    []StorageForecast
}

// StorageForecast is what would be read of one storage. There is one today:
// local files.
type StorageForecast struct {
	Kind   string // "local"
	Root   string
	Likes  profile.Profile
	Scan   ScanForecast
	Gather *GatherForecast // nil where compressed shards rule it out
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

// ScanForecast is what package fetch does.
type ScanForecast struct {
	ReadsForecast
	Pieces      uint64
	KeptBytes   int64 // most that is kept at a time for those that read on
	MemoryBytes int64 // the budget
	Fits        bool  // each piece is read once; else perhaps again
	Estimated   bool  // there are compressed shards: numbers are close, not exact
	Compressed  uint64
	Passes      uint64 // of decoders through these, or parts of them
}

// GatherForecast is what reading exactly the records would take, planned by
// package plan a window at a time.
type GatherForecast struct {
	ReadsForecast
	GapBytes int64 // read and thrown away
	Config   plan.Config
}

// A window of gather is what fetch looks ahead for one reader at most.
const (
	gatherWindowRecords = 32 << 10
	gatherWindowBytes   = 32 << 20
)

// Forecast says what the first n records of worker w of a view would read.
// It reads no data.
func (d *Dataset) Forecast(ctx context.Context, v *order.View, w, n uint64) (Forecast, error) {
	seq := workerSequence{v, w}
	f := Forecast{Records: min(n, seq.Len())}
	s := StorageForecast{Kind: "local", Root: d.catalog.Root(), Likes: d.profile}
	scan, err := d.fetcher.Forecast(ctx, seq, f.Records, s.Scan.add)
	if err != nil {
		return f, err
	}
	s.Scan.Pieces, s.Scan.KeptBytes, s.Scan.Fits, s.Scan.Estimated = scan.Pieces, scan.KeptBytes, scan.Fits, scan.Estimated
	s.Scan.Compressed, s.Scan.Passes = scan.Compressed, scan.Passes
	s.Scan.MemoryBytes = d.spec.MemoryBytes
	g, err := newGathering(d.catalog, fetch.PlanConfig(d.profile))
	if err != nil {
		return f, err
	}
	if err := g.run(ctx, seq, f.Records); err != nil {
		return f, err
	}
	if f.RecordBytes = g.recordBytes; !scan.Estimated {
		s.Gather = &g.forecast
	}
	f.Storages = []StorageForecast{s}
	return f, nil
}

// workerSequence is a worker's records.
type workerSequence struct {
	view   *order.View
	worker uint64
}

func (s workerSequence) Len() uint64 { return s.view.Count(s.worker) }

func (s workerSequence) Records(k uint64, dst []uint64) int {
	return s.view.Records(s.worker, k, dst)
}

// gathering plans records window by window.
type gathering struct {
	catalog     *catalog.Catalog
	planner     *plan.Planner
	request     plan.Request
	windowBytes int64
	recordBytes int64
	forecast    GatherForecast
}

func newGathering(c *catalog.Catalog, p plan.Config) (*gathering, error) {
	g := &gathering{catalog: c, forecast: GatherForecast{Config: p}}
	g.request.ObjectBytes = make([]int64, c.Shards())
	for i := range g.request.ObjectBytes {
		g.request.ObjectBytes[i] = c.Shard(i).DecodedBytes
	}
	var err error
	g.planner, err = plan.New(g.forecast.Config)
	return g, err
}

func (g *gathering) run(ctx context.Context, seq workerSequence, n uint64) error {
	const block = 1024
	numbers, extents := make([]uint64, block), make([]catalog.Extent, block)
	for k := uint64(0); k < n; {
		if err := ctx.Err(); err != nil {
			return err
		}
		m := seq.Records(k, numbers[:min(n-k, block)])
		if m == 0 {
			break
		}
		g.catalog.Extents(numbers[:m], extents[:m])
		for _, x := range extents[:m] {
			if err := g.want(x); err != nil {
				return err
			}
		}
		k += uint64(m)
	}
	return g.plan()
}

// want adds a record, and plans when the window is full.
func (g *gathering) want(x catalog.Extent) error {
	g.recordBytes += x.SizeBytes
	g.windowBytes += x.SizeBytes
	// A last line's missing newline is not in the shard.
	size := min(x.SizeBytes, g.request.ObjectBytes[x.Shard]-x.OffsetBytes)
	g.request.Want = append(g.request.Want, plan.Range{Object: x.Shard, OffsetBytes: x.OffsetBytes, SizeBytes: size})
	if len(g.request.Want) < gatherWindowRecords && g.windowBytes < gatherWindowBytes {
		return nil
	}
	return g.plan()
}

func (g *gathering) plan() error {
	p, err := g.planner.Plan(g.request)
	if err != nil {
		return fmt.Errorf("the catalog's records can't be planned: %w", err)
	}
	for _, r := range p.Reads {
		g.forecast.add(r.SizeBytes)
	}
	g.forecast.GapBytes += p.Totals.GapBytes
	g.request.Want, g.windowBytes = g.request.Want[:0], 0
	return nil
}
