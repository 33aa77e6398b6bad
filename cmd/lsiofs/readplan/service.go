package readplan

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Service is what an epoch requires of the service that stores the dataset.
type Service struct {
	Name        string       `json:"name"`
	GetDollars  float64      `json:"get_dollars,omitempty"` // list price of a request; 0 if unknown
	Requests    uint64       `json:"requests"`
	Bytes       int64        `json:"bytes"`
	Estimated   bool         `json:"estimated"` // Requests and Bytes
	Dollars     float64      `json:"dollars,omitempty"`
	MemoryBytes int64        `json:"memory_bytes"` // the value of --memory
	NeedsMemory int64        `json:"needs_memory_bytes"`
	NeedsDisk   int64        `json:"needs_disk_bytes"`
	Compressed  int          `json:"compressed_shards"`
	Chunks      []ChunkPlan  `json:"chunks"`
	Nodes       []NodesShare `json:"nodes,omitempty"`
	Notes       []string     `json:"notes"`
}

// ChunkPlan is what an epoch requires with chunks of one size.
type ChunkPlan struct {
	ChunkBytes  uint64  `json:"chunk_bytes"`
	InUse       bool    `json:"in_use"`
	Chunks      uint64  `json:"chunks"`
	Requests    uint64  `json:"requests"`
	Bytes       int64   `json:"bytes"`
	Estimated   bool    `json:"estimated"` // Requests and Bytes
	Dollars     float64 `json:"dollars,omitempty"`
	Mixing      float64 `json:"mixing,omitempty"` // approximate χ²/df of batches of 256
	NeedsMemory int64   `json:"needs_memory_bytes"`
	NeedsDisk   int64   `json:"needs_disk_bytes"`
}

// NodesShare is the share of the chunks that each node fetches, for a number of nodes.
type NodesShare struct {
	Nodes  uint64  `json:"nodes"`
	Groups uint64  `json:"groups"`
	Share  float64 `json:"share"`
}

// The rows and columns of the nodes' table, if the groups divide the lanes.
var (
	nodesShown  = []uint64{1, 2, 4, 8, 16, 32}
	groupsShown = []uint64{1, 2, 4, 8, 16, 32}
)

// NewService returns what an epoch of a dataset requires of its service, or nil for a file system.
func NewService(ctx context.Context, d *pipeline.Dataset) (*Service, error) {
	f, err := d.ForecastService(ctx)
	if f == nil || err != nil {
		return nil, err
	}
	return newService(f, d.Spec()), nil
}

func newService(f *pipeline.ServiceForecast, s spec.Spec) *Service {
	p := &Service{Name: f.Name, GetDollars: f.GetDollars, MemoryBytes: s.MemoryBytes, Compressed: f.Compressed, Notes: []string{}}
	var used pipeline.ChunkForecast
	for _, c := range f.Chunks {
		p.Chunks = append(p.Chunks, ChunkPlan{
			ChunkBytes: c.ChunkBytes, InUse: c.InUse, Chunks: c.Chunks, Requests: c.Requests, Bytes: c.Bytes, Estimated: c.Estimated, Dollars: float64(c.Requests) * f.GetDollars,
			Mixing: c.Mixing, NeedsMemory: c.MemoryBytes, NeedsDisk: c.DiskBytes,
		})
		if c.InUse {
			used = c
		}
	}
	p.Requests, p.Bytes, p.Estimated, p.Dollars = used.Requests, used.Bytes, used.Estimated, float64(used.Requests)*f.GetDollars
	p.NeedsMemory, p.NeedsDisk = used.MemoryBytes, used.DiskBytes
	if s.Deal.Dealing == spec.DealInterleaved && s.Order.Shuffle != spec.ShuffleNone && f.Compressed == 0 {
		p.share(used.Records, s.Order.Lanes, s.Order.Groups)
	}
	for _, c := range f.Refused {
		p.Notes = append(p.Notes, fmt.Sprintf("--chunk-bytes %s is refused: %v", terminal.Size(c.ChunkBytes), c.Why))
	}
	if f.Bounded {
		p.Notes = append(p.Notes, fmt.Sprintf("other values of --chunk-bytes give the same chunks as a listed one: chunks also end after --chunk-records (%s) or with the shard", terminal.Count(s.Order.ChunkRecords)))
	}
	if f.Compressed > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%s: those that are decoded again are requested again, and counted again", terminal.Plural(uint64(f.Compressed), "compressed shard")))
	}
	return p
}

func (p *Service) share(records pipeline.ChunkRecords, lanes, groups uint64) {
	shown := append([]uint64{groups}, groupsShown...)
	slices.Sort(shown)
	shown = slices.Compact(shown)
	for _, n := range nodesShown {
		for _, k := range shown {
			if lanes%k == 0 {
				p.Nodes = append(p.Nodes, NodesShare{Nodes: n, Groups: k, Share: pipeline.NodeShare(n, k, records)})
			}
		}
	}
}

// write writes the plan for people.
func (p *Service) write(b *strings.Builder) {
	fmt.Fprintf(b, "\nan epoch of %s takes %s%s%s, %s%s", p.Name, about(p.Estimated), terminal.Plural(p.Requests, "request"), p.price(p.Dollars), about(p.Estimated), terminal.Bytes(p.Bytes))
	if p.GetDollars == 0 {
		b.WriteString("; the price of its requests is not known")
	}
	b.WriteString("\n")
	if p.NeedsDisk > 0 {
		enough := "which --memory (" + terminal.Bytes(p.MemoryBytes) + ") holds"
		if p.NeedsMemory > p.MemoryBytes {
			enough = "more than --memory (" + terminal.Bytes(p.MemoryBytes) + "): raise it, or use a disk cache"
		}
		fmt.Fprintf(b, "  without a disk cache: up to %s are kept in memory, %s\n", terminal.Bytes(p.NeedsMemory), enough)
		fmt.Fprintf(b, "  with a disk cache: up to %s of it are in use at a time; any space beyond that saves requests from the second epoch on\n", terminal.Bytes(p.NeedsDisk))
	}
	b.WriteString("\n")
	p.chunkTable(b)
	if len(p.Chunks) > 1 {
		b.WriteString("  changing --chunk-bytes changes the order; χ²/df is for batches of 256, 1 is independent sampling\n")
	}
	for _, note := range p.Notes {
		fmt.Fprintf(b, "  %s\n", note)
	}
	if len(p.Nodes) > 0 {
		b.WriteString("\n")
		p.nodeTable(b)
	}
}

// about returns what is written before a number that may be estimated.
func about(estimated bool) string {
	if estimated {
		return "about "
	}
	return ""
}

func (p *Service) price(dollars float64) string {
	if p.GetDollars == 0 {
		return ""
	}
	return " (" + dollarText(dollars) + " at S3's list price)"
}

func dollarText(dollars float64) string {
	if dollars > 0 && dollars < 0.0001 {
		return "under $0.0001"
	}
	return fmt.Sprintf("about $%.4f", dollars)
}

func (p *Service) chunkTable(b *strings.Builder) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	head := "  --chunk-bytes\trequests\tbytes per request\tχ²/df\tin memory\tin a disk cache"
	if p.GetDollars > 0 {
		head += "\tprice"
	}
	fmt.Fprintln(w, head)
	for _, c := range p.Chunks {
		name, mixing := terminal.Size(c.ChunkBytes), "-"
		if c.InUse {
			name += " (in use)"
		}
		if c.Mixing > 0 {
			mixing = fmt.Sprintf("%.2f", c.Mixing)
		}
		fmt.Fprintf(w, "  %s\t%s%s\t%s\t%s\t%s\t%s", name, about(c.Estimated), terminal.Count(c.Requests), terminal.Bytes(c.Bytes/max(int64(c.Requests), 1)), mixing,
			terminal.Bytes(c.NeedsMemory), terminal.Bytes(c.NeedsDisk))
		if p.GetDollars > 0 {
			fmt.Fprintf(w, "\t%s", dollarText(c.Dollars))
		}
		fmt.Fprintln(w)
	}
	// Writing to memory does not fail.
	_ = w.Flush()
}

func (p *Service) nodeTable(b *strings.Builder) {
	b.WriteString("share of the chunks that each node fetches, if node n of N reads the workers w with w mod N = n\n")
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "nodes\t")
	row := p.Nodes[0].Nodes
	for _, s := range p.Nodes {
		if s.Nodes == row {
			fmt.Fprintf(w, "--groups %d\t", s.Groups)
		}
	}
	for i, s := range p.Nodes {
		if i == 0 || s.Nodes != p.Nodes[i-1].Nodes {
			fmt.Fprintf(w, "\n%d\t", s.Nodes)
		}
		fmt.Fprintf(w, "%.1f %%\t", 100*s.Share)
	}
	fmt.Fprintln(w)
	_ = w.Flush()
	b.WriteString("above 1/N, nodes fetch the same chunks more than once; changing --groups changes the order\n")
}
