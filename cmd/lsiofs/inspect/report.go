package inspect

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/order/quality"
	"github.com/lsiofs/lsiofs/pipeline/rows"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Report is the result of inspect.
type Report struct {
	Dataset          string `json:"dataset"`
	Root             string `json:"root"`
	Format           string `json:"format"`
	Kind             string `json:"kind,omitempty"` // for formats whose shards must all be of one kind
	Rows             *Rows  `json:"rows,omitempty"` // what streams contain for records, if not their bytes
	Fingerprint      string `json:"fingerprint"`
	Shards           int    `json:"shards"`
	CompressedShards int    `json:"compressed_shards"`
	opening.Selection
	// Files lists all files if requested.
	Files   []discover.Verdict `json:"files,omitempty"`
	Damaged []string           `json:"damaged"`
	// Damages counts what was left out, by reason.
	Damages      map[string]uint64 `json:"damages_by_reason,omitempty"`
	Games        *Games            `json:"games,omitempty"`  // for lc0
	Tokens       *Tokens           `json:"tokens,omitempty"` // with --pack
	Crops        *Crops            `json:"crops,omitempty"`  // for zarr
	Records      uint64            `json:"records"`          // after split and sample, in the epoch
	Split        *splitInfo        `json:"split,omitempty"`  // nil: none
	Sample       *sampleInfo       `json:"sample,omitempty"` // nil: none
	EntryPoints  uint64            `json:"entry_points"`
	RawBytes     int64             `json:"raw_bytes"`
	DecodedBytes int64             `json:"decoded_bytes"`
	StreamBytes  int64             `json:"stream_bytes"` // of these records
	RecordBytes  Spread            `json:"record_bytes"`
	Histogram    []Bucket          `json:"record_bytes_histogram"`
	Chunks       uint64            `json:"chunks"`
	ChunkBytes   Spread            `json:"chunk_bytes"`
	ChunkRecords Spread            `json:"chunk_records"`
	Shuffle      spec.Shuffle      `json:"shuffle"`
	Workers      uint64            `json:"workers"`
	Mixing       Mixing            `json:"mixing,omitzero"`   // omitted for a mixture of datasets
	Sources      []Source          `json:"sources,omitempty"` // of a mixture of datasets
	// Storage determines the reads that a mount would make.
	Storage storage.Profile `json:"storage"`
}

// Tokens are those of lists that are packed. Rest are those after the last record of each shard,
// which are left out.
type Tokens struct {
	All  int64 `json:"all"`
	Rest int64 `json:"left_out"`
}

// add adds the tokens of a shard.
func (t *Tokens) add(p rows.Pack, decodedBytes, tokenBytes int64) {
	n := decodedBytes / tokenBytes
	t.All += n
	t.Rest += p.Rest(n)
}

// Rows describes the rows that streams contain in place of records.
type Rows struct {
	As     string `json:"as"`
	Bytes  int64  `json:"row_bytes"`
	Descr  string `json:"descr"` // in NumPy's notation
	Remark string `json:"remark,omitempty"`
}

// Text formats the rows' description for people.
func (r *Rows) Text() string {
	return fmt.Sprintf("%s, %d bytes each: %s; %s", r.As, r.Bytes, r.Descr, r.Remark)
}

// splitInfo is a split and the totals of its dataset.
type splitInfo struct {
	Part         string       `json:"part"`
	Seed         uint64       `json:"seed"`
	By           spec.SplitBy `json:"by"`
	WholeRecords uint64       `json:"whole_records"`
	WholeBytes   int64        `json:"whole_stream_bytes"`
}

// sampleInfo is a sample, the inspected epoch, and the totals of its dataset.
type sampleInfo struct {
	Of           uint64 `json:"of"`
	Seed         uint64 `json:"seed"`
	Epoch        uint64 `json:"epoch"`
	WholeRecords uint64 `json:"whole_records"`
	WholeBytes   int64  `json:"whole_stream_bytes"`
}

// Bucket counts records of FromBytes ≤ size < ToBytes.
type Bucket struct {
	FromBytes int64  `json:"from_bytes"`
	ToBytes   int64  `json:"to_bytes"`
	Records   uint64 `json:"records"`
}

// Spread is the minimum, the maximum and the mean of some values.
type Spread struct {
	Min  int64   `json:"min"`
	Max  int64   `json:"max"`
	Mean float64 `json:"mean"`

	sum, count int64
}

// Add adds a value.
func (s *Spread) Add(v int64) {
	if s.count == 0 || v < s.Min {
		s.Min = v
	}
	s.Max = max(s.Max, v)
	s.sum += v
	s.count++
	s.Mean = float64(s.sum) / float64(s.count)
}

// Values returns the number of values.
func (s Spread) Values() int64 { return s.count }

// Text formats a spread of bytes for people.
func (s Spread) Text() string {
	return fmt.Sprintf("%s to %s, mean %s", terminal.Bytes(s.Min), terminal.Bytes(s.Max), terminal.Bytes(int64(s.Mean)))
}

// Dataset inspects an open dataset.
func Dataset(ctx context.Context, d *pipeline.Dataset) (Report, error) {
	c, s := d.Catalog(), d.Spec()
	i := Report{
		Dataset: s.Dataset, Root: c.Root(), Format: c.Format().Name, Kind: c.Kind(), Fingerprint: c.Fingerprint(),
		Shards: c.Shards(), Selection: opening.SelectionOf(c.Selection()), Damaged: opening.DamageList(c.Damaged()),
		Records: d.Records(), StreamBytes: d.StreamBytes(),
		Shuffle: s.Order.Shuffle, Workers: s.Deal.Workers, Storage: d.Status().Storage,
	}
	if split := s.Order.Split; split.Or() != (spec.Split{}) {
		i.Split = &splitInfo{split.Part.String(), split.Seed, split.By, c.Records(), c.StreamBytes()}
	}
	if sample := s.Order.Sample; sample.Or() != (spec.Subsample{}) {
		i.Sample = &sampleInfo{sample.Of, sample.Seed, s.Epoch, c.Records(), c.StreamBytes()}
	}
	pack, err := rows.ParsePack(c.Format().Rows.Pack)
	tokenBytes := int64(0)
	if packed := err == nil; packed {
		i.Tokens = &Tokens{}
		var size [1]int64
		c.Sizes([]uint64{0}, size[:])
		tokenBytes = size[0] / pack.Tokens()
	}
	for n := range c.Shards() {
		shard := c.Shard(n)
		if i.Tokens != nil {
			i.Tokens.add(pack, max(shard.DecodedBytes-c.Format().HeaderBytes, 0), tokenBytes)
		}
		i.RawBytes += shard.Object.SizeBytes
		i.DecodedBytes += shard.DecodedBytes
		i.EntryPoints += shard.EntryPoints
		if shard.Codec != nil {
			i.CompressedShards++
		}
	}
	for _, r := range c.DamageReasons() {
		if i.Damages == nil {
			i.Damages = map[string]uint64{}
		}
		i.Damages[r.Text] = r.Count
	}
	if p, ok := c.Unpacker().(format.Presenter); ok {
		descr, remark := p.RowType()
		i.Rows = &Rows{string(s.Format.As), c.RowBytes(), descr, remark}
	}
	if i.Format == "lc0" {
		i.Games = gamesOf(c)
	}
	if i.Crops, err = CropsOf(ctx, d); err != nil {
		return i, err
	}
	if err := i.sizes(ctx, d); err != nil {
		return i, err
	}
	if i.Sources = sourcesOf(d); i.Sources != nil {
		return i, nil // sources show the shares, and a mixture is not meant to be even
	}
	i.Mixing, err = MeasureMixing(ctx, d, quality.Good)
	return i, err
}

// sizes passes once over the sizes of all records left by the split, in dataset order.
func (i *Report) sizes(ctx context.Context, d *pipeline.Dataset) error {
	const block = 4096
	o := d.Spec().Order
	chunkStarts := d.ChunkStarts(o.ChunkBytes, o.ChunkRecords)
	var buckets [65]uint64 // by the bit length of the size
	records, sizes := make([]uint64, block), make([]int64, block)
	chunk, chunkBytes := 0, int64(0)
	total := chunkStarts[len(chunkStarts)-1] // a mixture's epoch has a different number of positions
	for first := uint64(0); first < total; first += block {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := int(min(block, total-first))
		for k := range n {
			records[k] = first + uint64(k)
		}
		d.Part().Numbers(records[:n])
		d.Catalog().Sizes(records[:n], sizes[:n])
		for k, size := range sizes[:n] {
			buckets[bits.Len64(uint64(size))]++
			i.RecordBytes.Add(size)
			chunkBytes += size
			if end := chunkStarts[chunk+1]; first+uint64(k)+1 == end {
				i.ChunkBytes.Add(chunkBytes)
				i.ChunkRecords.Add(int64(end - chunkStarts[chunk]))
				chunk, chunkBytes = chunk+1, 0
			}
		}
	}
	i.Chunks = uint64(chunk)
	i.Histogram = Histogram(buckets[:])
	return nil
}

// Histogram makes buckets from counts by bit length: length l holds sizes from 2^(l-1) to 2^l - 1.
// Empty buckets at both ends are left out.
func Histogram(byLength []uint64) []Bucket {
	list := []Bucket{}
	for l, n := range byLength[:63] {
		from := int64(0)
		if l > 0 {
			from = 1 << (l - 1)
		}
		if n > 0 || len(list) > 0 {
			list = append(list, Bucket{from, 1 << l, n})
		}
	}
	last := len(list)
	for last > 0 && list[last-1].Records == 0 {
		last--
	}
	return slices.Clip(list[:last])
}

// mixingLimit bounds the number of records whose order is computed to measure a shuffle. It takes
// one or two tenths of a second, whatever the size of the dataset.
const mixingLimit = 1 << 21

// Mixing is how well shards are mixed, and what would improve it.
type Mixing struct {
	Global quality.Estimate `json:"global"`
	Worker quality.Estimate `json:"worker"`
	Advice []quality.Advice `json:"advice"`
}

// Poor reports whether the mixing deserves a warning.
func (m Mixing) Poor() bool {
	return m.Global.Value > quality.Poor || m.Worker.Value > quality.Poor
}

// MeasureMixing measures the order of the spec's epoch from its start, and looks for advice if it
// is worse than good. Shuffle none gets no advice, because the user asked for it.
func MeasureMixing(ctx context.Context, d *pipeline.Dataset, good float64) (Mixing, error) {
	s := d.Spec()
	starts := ShardStarts(d)
	whole := spec.Assignment{Workers: 1, Batch: s.Order.Batch, Dealing: spec.DealInterleaved, Tail: spec.TailKeep}
	m := Mixing{Advice: []quality.Advice{}}
	var err error
	if m.Global, err = measureWorker(ctx, d, whole, starts); err != nil {
		return m, err
	}
	m.Worker = m.Global
	if s.Deal.Workers > 1 {
		deal := s.Deal
		deal.Tail = spec.TailKeep
		if m.Worker, err = measureWorker(ctx, d, deal, starts); err != nil {
			return m, err
		}
	}
	if max(m.Global.Value, m.Worker.Value) <= good {
		return m, nil
	}
	advice, err := quality.Advise(quality.Subject{ShardStarts: starts, Part: d.Part(), ChunkStarts: d.ChunkStarts}, s.Order, s.Epoch, good)
	if advice != nil {
		m.Advice = advice
	}
	return m, err
}

// measureWorker measures the stream of a deal's first worker.
func measureWorker(ctx context.Context, d *pipeline.Dataset, deal spec.Assignment, starts []uint64) (quality.Estimate, error) {
	s := d.Spec()
	set, err := d.Set(ctx, s.Epoch, nil, deal)
	if err != nil {
		return quality.Estimate{}, err
	}
	return quality.OfWorker(set.View(), 0, s.Order.SizeRecords, mixingLimit, starts), nil
}

// ShardStarts returns the numbers of the shards' first records, followed by the number of all
// records.
func ShardStarts(d *pipeline.Dataset) []uint64 {
	c := d.Catalog()
	starts := make([]uint64, 0, c.Shards()+1)
	for i := range c.Shards() {
		starts = append(starts, c.Shard(i).First)
	}
	return append(starts, c.Records())
}

// AdviceText describes what would improve the mixing.
func AdviceText(advice []quality.Advice) string {
	if len(advice) == 0 {
		return "no shuffle setting improves it"
	}
	parts := make([]string, len(advice))
	for i, a := range advice {
		parts[i] = fmt.Sprintf("%s %s gives %.1f", a.Flag, a.Value, a.Chi)
		if a.Value == string(spec.ShuffleFull) {
			parts[i] += " (but takes one read per record)"
		}
	}
	return strings.Join(parts, "; ")
}
