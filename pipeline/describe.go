package pipeline

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/printable"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// maxDescribedDamage bounds the damaged shards that dataset.json lists.
const maxDescribedDamage = 100

// describe is Dataset.Describe, for an epoch that orders the selection of.
func (g *generation) describe(of *selection) ([]byte, error) {
	s, c := g.spec, g.catalog
	document := description{
		Fingerprint: c.Fingerprint(), Root: c.Root(), Dataset: s.Dataset,
		Format:    describedFormat{s.Format.Name, c.Kind(), s.Format.RecordBytes, s.Format.StrideBytes, s.Format.HeaderBytes, s.Format.Lc0Check, nil},
		Extension: c.StreamExtension(),
		Shards:    c.Shards(), Records: g.recordsOf(of), Chunks: len(of.starts) - 1, RecordBytes: g.bytesOf(of),
		Order: describedOrder{
			s.Order.Seed, string(s.Order.Shuffle), s.Order.SizeRecords, s.Order.Lanes, s.Order.Groups,
			s.Order.Batch, s.Order.ChunkBytes, s.Order.ChunkRecords, nil, nil, s.Order.Length,
		},
		Deal:    describedDeal{s.Deal.Workers, s.Deal.Batch, string(s.Deal.Dealing), string(s.Deal.Tail)},
		Damaged: len(c.Damaged()),
	}
	for _, a := range s.Format.Arrays {
		document.Format.Arrays = append(document.Format.Arrays, describedArray(a))
	}
	if p, ok := c.Unpacker().(format.Presenter); ok {
		descr, remark := p.RowType()
		document.Rows = &describedRows{string(s.Format.As), c.RowBytes(), descr, remark}
	}
	if s.Order.Split != (spec.Split{}) {
		document.Order.Split = &describedSplit{s.Order.Split.Part.String(), s.Order.Split.Seed, string(s.Order.Split.By)}
	}
	if g.sampled() {
		document.Order.Sample = &describedSample{s.Order.Sample.Of, s.Order.Sample.Seed}
	}
	for _, x := range g.mixedSources() {
		document.Sources = append(document.Sources, describedSource{x.Name, spec.WeightText(x.Weight), x.Dataset, x.Fingerprint, x.Records, x.Bytes, x.Passes})
	}
	if of.part != nil {
		document.Whole = &describedWhole{c.Records(), c.StreamBytes()}
	}
	for _, found := range c.Damaged()[:min(len(c.Damaged()), maxDescribedDamage)] {
		one := describedDamage{Shard: found.Path, Reason: found.Errors[0].Error()}
		if n := found.Count(); n > 1 {
			one.Damages = n
		}
		document.Damage = append(document.Damage, one)
	}
	crops, err := g.describeCrops(context.Background())
	if err != nil {
		return nil, fmt.Errorf("dataset.json: %w", err)
	}
	document.Zarr = crops
	document.Reasons = g.damages()
	document.Directories, document.Omitted = g.directories()
	b, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("dataset.json: %w", err)
	}
	return append(printable.JSON(b), '\n'), nil
}

// damages counts what was left out, by reason; nil if nothing was.
func (g *generation) damages() map[string]uint64 {
	var m map[string]uint64
	for _, r := range g.catalog.DamageReasons() {
		if m == nil {
			m = map[string]uint64{}
		}
		m[r.Text] = r.Count
	}
	return m
}
