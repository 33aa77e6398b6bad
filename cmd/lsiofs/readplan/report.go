package readplan

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/inspect"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// Report is the result of plan.
type Report struct {
	Dataset string `json:"dataset"`
	Shards  int    `json:"shards"`
	opening.Selection
	Epoch       uint64        `json:"epoch"`
	Worker      uint64        `json:"worker"`
	Workers     uint64        `json:"workers"`
	RecordsLeft uint64        `json:"records_left"`
	Records     uint64        `json:"records"`
	RecordBytes int64         `json:"record_bytes"`
	Storages    []storagePlan `json:"storages"`
	// Service is what a whole epoch requires of a service; nil for a file system.
	Service *Service `json:"service,omitempty"`
	// Crops is what is decoded for crops of arrays in the spec's epoch, in this order and in others.
	// It is nil for other records.
	Crops *inspect.Crops `json:"crops,omitempty"`
}

type storagePlan struct {
	Kind   string `json:"kind"`
	Root   string `json:"root"`
	Reason string `json:"reason"` // for the plan in use
	// Likes are the sizes, depth and gaps of reads from this storage.
	Likes storage.Profile `json:"profile"`
	Plans []StrategyPlan  `json:"plans"`
}

// StrategyPlan is what a strategy reads.
type StrategyPlan struct {
	Strategy      string  `json:"strategy"`
	InUse         bool    `json:"in_use"`
	Reads         uint64  `json:"reads"`
	ReadBytes     int64   `json:"read_bytes"`
	Amplification float64 `json:"amplification"` // bytes read per byte of the records
	Estimated     bool    `json:"estimated"`
	Pieces        uint64  `json:"pieces,omitempty"`         // for scan
	KeptBytes     int64   `json:"kept_bytes,omitempty"`     // for scan: the most kept at a time for later records
	FitsMemory    *bool   `json:"fits_memory,omitempty"`    // for scan: each piece is read once
	DecodedBytes  int64   `json:"decoded_bytes,omitempty"`  // for scan and spool: what decoders of compressed shards produce; for crops: of chunks
	Chunks        uint64  `json:"chunks_decoded,omitempty"` // for crops, as often as that is
	// CountedRecords is the number of records that were counted, if the figures are extrapolated
	// from these; else 0.
	CountedRecords uint64       `json:"counted_records,omitempty"`
	GapBytes       int64        `json:"gap_bytes,omitempty"`   // for gather: bytes read and discarded
	SpoolBytes     int64        `json:"spool_bytes,omitempty"` // for spool: bytes that a mount reserves
	Histogram      []ReadBucket `json:"read_bytes_histogram"`
	Notes          []string     `json:"notes"`
}

// ReadBucket counts reads of FromBytes ≤ size < ToBytes.
type ReadBucket struct {
	FromBytes int64  `json:"from_bytes"`
	ToBytes   int64  `json:"to_bytes"`
	Reads     uint64 `json:"reads"`
}

// New predicts what the next records of a worker's stream read from a position on; 0 records means
// all that are left.
func New(ctx context.Context, d *pipeline.Dataset, position checkpoint.Position, worker, records uint64) (Report, error) {
	set, err := d.Set(ctx, position.Epoch, position.Done, d.Spec().Deal)
	if err != nil {
		return Report{}, exit.With(exit.Checkpoint, err)
	}
	left := set.View().Count(worker)
	if records == 0 {
		records = left
	}
	r, err := reportOf(ctx, d, set, worker, records)
	if err != nil {
		return Report{}, err
	}
	s := d.Spec()
	r.Dataset, r.Epoch = s.Dataset, position.Epoch
	r.Shards, r.Selection = d.Catalog().Shards(), opening.SelectionOf(d.Catalog().Selection())
	r.Worker, r.Workers, r.RecordsLeft = worker, s.Deal.Workers, left
	return r, nil
}

// reportOf returns a report without the fields that depend on the position.
func reportOf(ctx context.Context, d *pipeline.Dataset, set *stream.Set, worker, records uint64) (Report, error) {
	crops, err := inspect.CropsOf(ctx, d)
	if err != nil {
		return Report{}, err
	}
	f, err := d.Forecast(ctx, set.View(), worker, records)
	if err != nil {
		return Report{}, err
	}
	r := newReport(f)
	if r.Crops = crops; crops != nil {
		return r, nil
	}
	r.Service, err = NewService(ctx, d)
	return r, err
}

// newReport converts a forecast.
func newReport(f pipeline.Forecast) Report {
	r := Report{Records: f.Records, RecordBytes: f.RecordBytes}
	for _, s := range f.Storages {
		p := storagePlan{Kind: s.Kind, Root: s.Root, Reason: s.Reason, Likes: s.Likes}
		if s.Gather == nil || s.Gather.Crops == nil {
			scan := newStrategyPlan("scan", s.Scan.ReadsForecast, f)
			scan.Estimated, scan.Notes = scan.Estimated || s.Scan.Estimated || !s.Scan.Fits, scanNotes(s.Scan)
			scan.Pieces, scan.KeptBytes, scan.FitsMemory, scan.DecodedBytes = s.Scan.Pieces, s.Scan.KeptBytes, &s.Scan.Fits, s.Scan.DecodedBytes
			p.Plans = append(p.Plans, scan)
		}
		if g := s.Gather; g != nil && g.Crops != nil {
			gather := newStrategyPlan("gather", g.ReadsForecast, f)
			gather.Estimated, gather.Chunks, gather.DecodedBytes = true, g.Crops.Chunks, g.Crops.DecodedBytes
			gather.Notes = []string{fmt.Sprintf("computes each crop by itself; decodes %s, to %s; the reads are those of chunks, and of indexes of shards",
				terminal.Plural(g.Crops.Chunks, "chunk"), terminal.Bytes(g.Crops.DecodedBytes))}
			p.Plans = append(p.Plans, gather)
		} else if g != nil {
			gather := newStrategyPlan("gather", g.ReadsForecast, f)
			gather.GapBytes = g.GapBytes
			gather.Notes = []string{fmt.Sprintf("merges reads of records up to %s apart, up to %s per read; %s read and discarded",
				terminal.Bytes(g.Config.MergeGapBytes), terminal.Bytes(g.Config.MaxReadBytes), terminal.Bytes(g.GapBytes))}
			p.Plans = append(p.Plans, gather)
		}
		if sp := s.Spool; sp != nil {
			spool := newStrategyPlan("spool", sp.ReadsForecast, f)
			spool.SpoolBytes, spool.Estimated, spool.DecodedBytes = sp.SpoolBytes, true, sp.DecodedBytes
			spool.Notes = []string{fmt.Sprintf("decodes %s completely into a spool of %s", terminal.Plural(sp.Shards, "compressed shard"), terminal.Bytes(sp.SpoolBytes))}
			if sp.FewerLanes != "" {
				spool.Notes = append(spool.Notes, sp.FewerLanes)
			}
			p.Plans = append(p.Plans, spool)
		}
		for i := range p.Plans {
			x := &p.Plans[i]
			x.InUse = x.Strategy == string(s.Strategy)
			if x.CountedRecords > 0 {
				x.Notes = append(x.Notes, fmt.Sprintf("counted for the first %s records, and extrapolated to all", terminal.Count(x.CountedRecords)))
			}
		}
		r.Storages = append(r.Storages, p)
	}
	return r
}

func newStrategyPlan(name string, reads pipeline.ReadsForecast, f pipeline.Forecast) StrategyPlan {
	p := StrategyPlan{
		Strategy: name, Reads: reads.Reads, ReadBytes: reads.ReadBytes, Histogram: []ReadBucket{},
		CountedRecords: reads.CountedRecords, Estimated: reads.CountedRecords > 0,
	}
	if f.RecordBytes > 0 {
		p.Amplification = float64(reads.ReadBytes) / float64(f.RecordBytes)
	}
	for _, b := range inspect.Histogram(reads.ByLength[:]) {
		p.Histogram = append(p.Histogram, ReadBucket{b.FromBytes, b.ToBytes, b.Records})
	}
	return p
}

func scanNotes(s pipeline.ScanForecast) []string {
	notes := []string{fmt.Sprintf("reads %s whole, each once, and keeps up to %s for later records", terminal.Plural(s.Pieces, "piece"), terminal.Bytes(s.KeptBytes))}
	if !s.Fits {
		notes[0] = fmt.Sprintf("reads %s whole, each at least once", terminal.Plural(s.Pieces, "piece"))
		notes = append(notes, fmt.Sprintf("--memory %s is too little for the %s that have to be kept: pieces are dropped and read again",
			terminal.Size(uint64(s.MemoryBytes)), terminal.Bytes(s.KeptBytes)))
	}
	if s.Compressed > 0 {
		times := "once each, as far as needed"
		if s.Passes > s.Compressed {
			times = fmt.Sprintf("in about %s passes", terminal.Count(s.Passes))
		}
		notes = append(notes, fmt.Sprintf("decodes %s %s, to %s; the bytes read are those of the files", terminal.Plural(s.Compressed, "compressed shard"), times, terminal.Bytes(s.DecodedBytes)))
	}
	return notes
}

// Print writes a plan for people.
func (r Report) Print(u *terminal.UI) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s) of %s left for worker %d of %d in epoch %d of %s\n",
		terminal.Plural(r.Records, "record"), terminal.Bytes(r.RecordBytes), terminal.Count(r.RecordsLeft), r.Worker, r.Workers, r.Epoch, r.Dataset)
	for _, s := range r.Storages {
		fmt.Fprintf(&b, "\nstorage %s %s (%s)\n", s.Kind, s.Root, s.Likes)
		s.table(&b)
		for _, p := range s.Plans {
			notes := p.Notes
			if p.InUse && s.Reason != "" {
				notes = append([]string{"in use (" + s.Reason + ")"}, notes...)
			}
			fmt.Fprintf(&b, "\n%s: %s\n", p.Strategy, strings.Join(notes, "\n  "))
			var buckets []inspect.Bucket
			for _, k := range p.Histogram {
				buckets = append(buckets, inspect.Bucket{FromBytes: k.FromBytes, ToBytes: k.ToBytes, Records: k.Reads})
			}
			b.WriteString(inspect.HistogramText(buckets))
		}
		if !slices.ContainsFunc(s.Plans, func(p StrategyPlan) bool { return p.Strategy == "gather" }) {
			b.WriteString("\ngather: not possible, because these shards are compressed\n")
		}
	}
	if r.Crops != nil {
		b.WriteString("\n" + r.Crops.Text())
		return u.Printf("%s", b.String())
	}
	if r.Service != nil {
		r.Service.write(&b)
	}
	if r.Workers > 1 {
		b.WriteString("\nWorkers that read at the same time share pieces, so scan's amplification is lower for all of them together.\n")
	}
	return u.Printf("%s", b.String())
}

func (s storagePlan) table(b *strings.Builder) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "  strategy\treads\tbytes\tamplification\tbytes per read\n")
	for _, p := range s.Plans {
		name := p.Strategy
		if p.InUse {
			name += " (in use)"
		}
		mean := int64(0)
		if p.Reads > 0 {
			mean = p.ReadBytes / int64(p.Reads)
		}
		fmt.Fprintf(w, "  %s\t%s%s\t%s%s\t%.2f\t%s\n", name, about(p.Estimated), terminal.Count(p.Reads), about(p.Estimated), terminal.Bytes(p.ReadBytes), p.Amplification, terminal.Bytes(mean))
	}
	// Writing to memory does not fail.
	_ = w.Flush()
}
