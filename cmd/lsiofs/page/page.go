package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sort"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/build"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/inspect"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/readplan"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/order/quality"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Bounds of a page.
const (
	// pageRecords bounds the records that each picture and figure of a shuffle is made from. Each
	// takes a fifth of a second.
	pageRecords = 1 << 21
	// pageColumns and pageRows bound a picture, at about what a phone and a desktop show without
	// scaling it down.
	pageColumns, pageRows = 400, 100
	// pageReads is the number of records for which a mount's reads are counted.
	pageReads = 1 << 20
	// pageDamages bounds the lists of what was left out.
	pageDamages = 100
)

// page is the data that Render writes.
type page struct {
	inspect.Report
	Name        string // the dataset's name for people
	Spec        spec.Spec
	Flags       string // the flags that were given, for a mount with the same order
	Chart       shardChart
	Shuffles    []shuffleRow
	RecordSizes []sizeRow
	Reads       *readplan.Report
	NoReads     string // the reason if Reads is nil
	ReadSizes   []sizeRow
	Reasons     []reasonRow
	Build       build.Info
}

// shuffleRow is a shuffle, and its picture if it has one.
type shuffleRow struct {
	Name, Note string
	Mix        quality.Mix
	Picture    *picture
}

// sizeRow is one bar of a histogram.
type sizeRow struct {
	From, To string
	Count    uint64
	Share    float64 // of the total
	Percent  float64 // of the longest bar's length
}

// reasonRow is a reason for leaving something out, and how often it applied.
type reasonRow struct {
	Text  string
	Count uint64
}

// New gathers the results of inspect and plan. flags produce a mount with the same order.
func New(ctx context.Context, d *pipeline.Dataset, i inspect.Report, flags string, program build.Info) (*page, error) {
	p := &page{
		Report: i, Name: filepath.Base(i.Root), Spec: d.Spec(), Flags: flags, Chart: newShardChart(d.Catalog()),
		RecordSizes: sizeRows(i.Histogram), Build: program,
	}
	if err := p.compare(ctx, d); err != nil {
		return nil, err
	}
	start := checkpoint.Position{Epoch: d.Spec().Epoch}
	plan, err := readplan.New(ctx, d, start, 0, min(pageReads, max(d.Records(), 1)))
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		p.NoReads = err.Error()
	default:
		p.Reads = &plan
		for _, storage := range plan.Storages[:min(1, len(plan.Storages))] { // crops have none
			for _, s := range storage.Plans {
				if s.InUse {
					p.ReadSizes = readSizeRows(s.Histogram)
				}
			}
		}
	}
	for _, text := range slices.Sorted(maps.Keys(i.Damages)) {
		p.Reasons = append(p.Reasons, reasonRow{text, i.Damages[text]})
	}
	sort.SliceStable(p.Reasons, func(i, j int) bool { return p.Reasons[i].Count > p.Reasons[j].Count })
	return p, nil
}

// compare draws the order next to others.
func (p *page) compare(ctx context.Context, d *pipeline.Dataset) error {
	s := d.Spec()
	e, err := d.Epoch(s.Epoch)
	if err != nil {
		return err
	}
	subject := quality.Subject{ShardStarts: inspect.ShardStarts(d), Part: d.Part(), ChunkStarts: d.ChunkStarts}
	compared, err := quality.Compare(e, s.Order, s.Epoch, subject,
		quality.Resolution{LimitRecords: pageRecords, Columns: pageColumns, Rows: pageRows}, func() bool { return ctx.Err() == nil })
	if err != nil || ctx.Err() != nil {
		return cmp.Or(ctx.Err(), err)
	}
	for i, c := range compared {
		row := shuffleRow{Name: c.Shuffle, Note: shuffleNotes[min(i, len(shuffleNotes)-1)], Mix: c.Mix}
		if row.Picture, err = newPicture(c.Picture); err != nil {
			return err
		}
		p.Shuffles = append(p.Shuffles, row)
	}
	return nil
}

// shuffleNotes describe the pictures, in the order of quality.Compare.
var shuffleNotes = []string{
	"a mount with these settings",
	"a loader that opens shards in random order and shuffles in a buffer",
	"--shuffle full: every record drawn independently",
}

// Shown returns the lines of Damaged that the page contains.
func (p *page) Shown() []string { return p.Damaged[:min(len(p.Damaged), pageDamages)] }

// ReasonsShown returns the Reasons that the page contains.
func (p *page) ReasonsShown() []reasonRow { return p.Reasons[:min(len(p.Reasons), pageDamages)] }

// Order returns how well the given order mixes.
func (p *page) Order() quality.Mix { return p.Shuffles[0].Mix }

// RecordMean returns the mean size of a record, in bytes.
func (p *page) RecordMean() int64 { return int64(p.RecordBytes.Mean) }

// Quoted returns the dataset as a word of a command line.
func (p *page) Quoted() string { return terminal.Quote(p.Dataset) }

// Grade returns how good the mix is, as a CSS class.
func (p *page) Grade() string {
	switch m := p.Order(); {
	case m.Batches == 0:
		return "soft"
	case m.Value <= quality.Good:
		return "good"
	case m.Value <= quality.Poor:
		return "fair"
	}
	return "poor"
}

// Verdict describes how well the order mixes.
func (p *page) Verdict() string {
	m := p.Order()
	switch {
	case m.Batches == 0:
		return "nothing to measure: one shard, or fewer than 256 records"
	case m.Value <= (1+quality.Good)/2.0:
		return "as good as independent sampling"
	case m.Value <= quality.Good:
		return "good"
	case m.Value <= quality.Poor:
		return "fair"
	}
	return "poor: batches come from few shards"
}

// Advice describes what would mix better, or returns "".
func (p *page) Advice() string {
	switch {
	case len(p.Mixing.Advice) > 0:
		return inspect.AdviceText(p.Mixing.Advice)
	case p.Mixing.Poor() && p.Shuffle != spec.ShuffleNone:
		return inspect.AdviceText(nil)
	}
	return ""
}

// Settings returns the settings of the order, of the deal and of reading.
func (p *page) Settings() [][2]string {
	s := p.Spec
	rows := [][2]string{
		{"seed", fmt.Sprint(s.Order.Seed)},
		{"epoch", fmt.Sprint(s.Epoch)},
		{"shuffle", fmt.Sprintf("%s, %s", s.Order.Shuffle, terminal.Plural(s.Order.SizeRecords, "record"))},
		{"lanes", fmt.Sprintf("%d in %s", s.Order.Lanes, terminal.Plural(s.Order.Groups, "group"))},
		{"chunks", fmt.Sprintf("up to %s or %s", terminal.Size(s.Order.ChunkBytes), terminal.Plural(s.Order.ChunkRecords, "record"))},
		{"workers", fmt.Sprintf("%d, dealt %s, %s, tail %s", s.Deal.Workers, s.Deal.Dealing, terminal.Plural(s.Deal.Batch, "record")+" at a time", s.Deal.Tail)},
		{"memory", terminal.Size(uint64(s.MemoryBytes))},
		{"reading", fmt.Sprintf("--read %s, --io %s, --direct %s", s.Read, s.IO, s.Direct)},
		{"damaged input", string(s.OnCorrupt)},
	}
	if p.Split != nil {
		rows = append(rows, [2]string{"split", inspect.SplitText(s.Order.Split)})
	}
	if p.Sample != nil {
		rows = append(rows, [2]string{"sample", inspect.SampleText(s.Order.Sample)})
	}
	return rows
}

func sizeRows(buckets []inspect.Bucket) []sizeRow {
	most, all := uint64(0), uint64(0)
	for _, k := range buckets {
		most, all = max(most, k.Records), all+k.Records
	}
	rows := make([]sizeRow, len(buckets))
	for i, k := range buckets {
		rows[i] = sizeRow{From: terminal.Bytes(k.FromBytes), To: terminal.Bytes(k.ToBytes), Count: k.Records,
			Share: float64(k.Records) / float64(max(all, 1)), Percent: 100 * float64(k.Records) / float64(max(most, 1))}
	}
	return rows
}

func readSizeRows(buckets []readplan.ReadBucket) []sizeRow {
	list := make([]inspect.Bucket, len(buckets))
	for i, k := range buckets {
		list[i] = inspect.Bucket{FromBytes: k.FromBytes, ToBytes: k.ToBytes, Records: k.Reads}
	}
	return sizeRows(list)
}
