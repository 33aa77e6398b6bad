package main

import (
	"context"
	"fmt"
	"math/bits"
	"slices"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/order/quality"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

// inspection is what inspect finds out.
type inspection struct {
	Dataset          string   `json:"dataset"`
	Root             string   `json:"root"`
	Format           string   `json:"format"`
	Kind             string   `json:"kind,omitempty"` // of formats whose shards must be of one
	Fingerprint      string   `json:"fingerprint"`
	Shards           int      `json:"shards"`
	CompressedShards int      `json:"compressed_shards"`
	PassedOver       int      `json:"files_passed_over"`
	Damaged          []string `json:"damaged"`
	// Damages counts what was left out, by reason.
	Damages      map[string]uint64 `json:"damages_by_reason,omitempty"`
	Games        *games            `json:"games,omitempty"` // of lc0
	Records      uint64            `json:"records"`         // that the split leaves
	Split        *splitInfo        `json:"split,omitempty"` // nil: none
	EntryPoints  uint64            `json:"entry_points"`
	RawBytes     int64             `json:"raw_bytes"`
	DecodedBytes int64             `json:"decoded_bytes"`
	StreamBytes  int64             `json:"stream_bytes"` // of Records
	RecordBytes  spread            `json:"record_bytes"`
	Histogram    []bucket          `json:"record_bytes_histogram"`
	Chunks       uint64            `json:"chunks"`
	ChunkBytes   spread            `json:"chunk_bytes"`
	ChunkRecords spread            `json:"chunk_records"`
	Shuffle      spec.Shuffle      `json:"shuffle"`
	Workers      uint64            `json:"workers"`
	Mixing       mixing            `json:"mixing"`
	// Storage says which reads a mount would make.
	Storage profile.Profile `json:"storage"`
}

// splitInfo is a split, and the dataset that it is of.
type splitInfo struct {
	Part         string       `json:"part"`
	Seed         uint64       `json:"seed"`
	By           spec.SplitBy `json:"by"`
	WholeRecords uint64       `json:"whole_records"`
	WholeBytes   int64        `json:"whole_stream_bytes"`
}

// bucket counts records of FromBytes ≤ size < ToBytes.
type bucket struct {
	FromBytes int64  `json:"from_bytes"`
	ToBytes   int64  `json:"to_bytes"`
	Records   uint64 `json:"records"`
}

// spread is the least, the greatest and the mean of a number of values.
type spread struct {
	Min  int64   `json:"min"`
	Max  int64   `json:"max"`
	Mean float64 `json:"mean"`

	sum, count int64
}

func (s *spread) add(v int64) {
	if s.count == 0 || v < s.Min {
		s.Min = v
	}
	s.Max = max(s.Max, v)
	s.sum += v
	s.count++
	s.Mean = float64(s.sum) / float64(s.count)
}

func (s spread) text() string {
	return fmt.Sprintf("%s to %s, mean %s", terminal.Bytes(s.Min), terminal.Bytes(s.Max), terminal.Bytes(int64(s.Mean)))
}

func inspect(ctx context.Context, d *pipeline.Dataset) (inspection, error) {
	c, s := d.Catalog(), d.Spec()
	i := inspection{
		Dataset: s.Dataset, Root: c.Root(), Format: c.Format().Name, Kind: c.Kind(), Fingerprint: c.Fingerprint(),
		Shards: c.Shards(), PassedOver: c.PassedOver(), Damaged: damageList(c.Damaged()),
		Records: d.Records(), StreamBytes: d.StreamBytes(),
		Shuffle: s.Order.Shuffle, Workers: s.Deal.Workers, Storage: d.Status().Storage,
	}
	if split := s.Order.Split; d.Part() != nil {
		i.Split = &splitInfo{split.Part.String(), split.Seed, split.By, c.Records(), c.StreamBytes()}
	}
	for n := range c.Shards() {
		shard := c.Shard(n)
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
	if i.Format == "lc0" {
		i.Games = gamesOf(c)
	}
	if err := i.sizes(ctx, d); err != nil {
		return i, err
	}
	var err error
	i.Mixing, err = measureMixing(ctx, d, quality.Good)
	return i, err
}

// sizes goes through the sizes of all records that the split leaves once, in
// dataset order.
func (i *inspection) sizes(ctx context.Context, d *pipeline.Dataset) error {
	const block = 4096
	o := d.Spec().Order
	chunkStarts := d.ChunkStarts(o.ChunkBytes, o.ChunkRecords)
	var buckets [65]uint64 // by the bit length of the size
	records, sizes := make([]uint64, block), make([]int64, block)
	chunk, chunkBytes := 0, int64(0)
	for first := uint64(0); first < d.Records(); first += block {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := int(min(block, d.Records()-first))
		for k := range n {
			records[k] = first + uint64(k)
		}
		d.Part().Numbers(records[:n])
		d.Catalog().Sizes(records[:n], sizes[:n])
		for k, size := range sizes[:n] {
			buckets[bits.Len64(uint64(size))]++
			i.RecordBytes.add(size)
			chunkBytes += size
			if end := chunkStarts[chunk+1]; first+uint64(k)+1 == end {
				i.ChunkBytes.add(chunkBytes)
				i.ChunkRecords.add(int64(end - chunkStarts[chunk]))
				chunk, chunkBytes = chunk+1, 0
			}
		}
	}
	i.Chunks = uint64(chunk)
	i.Histogram = histogram(buckets[:])
	return nil
}

// histogram makes buckets of counts by bit length: length l holds the sizes
// from 2^(l-1) to 2^l - 1. Empty buckets at both ends are left out.
func histogram(byLength []uint64) []bucket {
	list := []bucket{}
	for l, n := range byLength[:63] {
		from := int64(0)
		if l > 0 {
			from = 1 << (l - 1)
		}
		if n > 0 || len(list) > 0 {
			list = append(list, bucket{from, 1 << l, n})
		}
	}
	last := len(list)
	for last > 0 && list[last-1].Records == 0 {
		last--
	}
	return slices.Clip(list[:last])
}
