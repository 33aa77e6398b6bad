package bench

import (
	"context"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

const (
	// maxScopeBytes and maxScopeRecords bound what rows read repeatedly.
	maxScopeBytes   = 4 << 30
	maxScopeRecords = 8 << 20
)

// extent is the position of a record.
type extent struct {
	offset int64
	shard  int32
	size   int32 // of its part in the shard, at most maxExtentBytes
}

// maxExtentBytes bounds how much of a record is read at a time.
const maxExtentBytes = 1 << 30

// Scope is the part of a dataset that is measured: all of it or, if that is too much for the page
// cache, the beginning of an epoch.
type Scope struct {
	records     uint64  // of the dataset, after a split
	streamBytes int64   // of the dataset, after a split
	recordBytes float64 // mean
	Compressed  bool    // at least one shard is
	Codec       string  // of the first shard, "" for none
	Files       bool    // shards are directories
	Games       bool    // shards are lc0's, and streams consist of their frames
	Tables      bool    // shards are tables, and streams consist of their rows
	Whole       bool
	bytes       int64    // of the measured part
	extents     []extent // of the epoch's records, in its order; empty if compressed
	Shards      []string // paths of all shards
	shardBytes  []int64
	codecs      []format.Codec // of the shards, nil for none
	// decodedBytes are the sizes of the decoded shards.
	decodedBytes []int64
	allDecoded   int64  // their sum
	pointBytes   int64  // size in the index of places inside members
	extension    string // of streams
}

// newScope examines an open dataset. memory is the available size of the page cache.
func newScope(ctx context.Context, d *pipeline.Dataset, memory int64) (*Scope, error) {
	c := d.Catalog()
	s := &Scope{records: d.Records(), streamBytes: d.StreamBytes(), extension: c.StreamExtension()}
	_, s.Files = c.Unpacker().(format.Foldered)
	s.Games = c.Format().Name == "lc0" && c.Format().As == ""
	s.Tables = c.Format().Name == "parquet"
	if s.records == 0 {
		return nil, fmt.Errorf("--split %s and --sample %s leave no records: there is nothing to measure", d.Spec().Order.Split.Part, d.Spec().Order.Sample)
	}
	if c.Format().Name == "zarr" {
		return nil, fmt.Errorf("bench compares with plain reads of the shards, but crops are not contiguous in any file: in the sources of lsiofs, go run ./integration/bench --check --only zarr measures crops of arrays that it makes")
	}
	if len(c.Format().Arrays) > 0 {
		return nil, fmt.Errorf("bench compares with plain reads of the shards, but with --array a record comes from several files: measure one of the arrays")
	}
	s.recordBytes = float64(s.streamBytes) / float64(s.records)
	for i := range c.Shards() {
		shard := c.Shard(i)
		s.Shards = append(s.Shards, filepath.Join(c.Root(), shard.Object.Path))
		s.shardBytes = append(s.shardBytes, shard.Object.SizeBytes)
		s.decodedBytes = append(s.decodedBytes, shard.DecodedBytes)
		s.codecs = append(s.codecs, shard.Codec)
		s.pointBytes += c.PointBytes(i)
		s.allDecoded += shard.DecodedBytes
		s.Compressed = s.Compressed || shard.Codec != nil
		if i == 0 && shard.Codec != nil {
			s.Codec = shard.Codec.Name()
		}
	}
	limit := min(memory, maxScopeBytes)
	s.Whole = s.streamBytes <= limit && s.records <= maxScopeRecords
	s.bytes = s.streamBytes
	if s.Compressed {
		if !s.Whole {
			return nil, fmt.Errorf("the dataset has %.1f GiB, decoded, but compressed shards are measured whole, up to %.1f GiB on this machine: name some of them with a pattern, as in '/data/shard-{000..009}.tar.zst'",
				GiB(s.streamBytes), GiB(limit))
		}
		return s, nil
	}
	return s, s.walk(ctx, d, limit)
}

// walk goes through the epoch as far as the limits permit.
func (s *Scope) walk(ctx context.Context, d *pipeline.Dataset, limit int64) error {
	set, err := d.Set(ctx, 0, nil, spec.Assignment{Workers: 1, Batch: 1, Dealing: spec.DealInterleaved, Tail: spec.TailKeep})
	if err != nil {
		return err
	}
	const block = 4096
	numbers, extents := make([]uint64, block), make([]catalog.Extent, block)
	bytes := int64(0)
	for k := uint64(0); bytes < limit && len(s.extents) < maxScopeRecords; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := set.View().Records(0, k, numbers)
		if n == 0 {
			break
		}
		d.Catalog().Extents(numbers[:n], extents[:n])
		for _, x := range extents[:n] {
			// If the last line lacks a newline, the stream has it but the shard does not.
			size := min(x.SizeBytes, s.shardBytes[x.Shard]-x.OffsetBytes, maxExtentBytes)
			s.extents = append(s.extents, extent{x.OffsetBytes, int32(x.Shard), int32(size)})
			bytes += size
		}
		k += uint64(n)
	}
	if !s.Whole {
		s.bytes = bytes
	}
	return nil
}

// pageCacheBytes returns how much memory the page cache can use for the measured data, in addition
// to what servers and this process hold.
func pageCacheBytes(heldBytes int64) (int64, error) {
	free, err := availableMemory()
	if err != nil {
		return 0, err
	}
	left := (free - heldBytes) / 2
	if left < 64<<20 {
		return 0, fmt.Errorf("only %d MiB of memory are available, and the data that is kept takes %d MiB: give a lower --memory", free>>20, heldBytes>>20)
	}
	return left, nil
}

// empty drops the shards from the page cache. written means that no page of them is dirty any more.
func (s *Scope) empty(ctx context.Context, written bool) error {
	for _, path := range s.Shards {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := dropPages(path, written); err != nil {
			return err
		}
	}
	return nil
}

func dropPages(path string, written bool) (err error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	if !written {
		// Dirty pages would stay. An error is ignored: some file systems can't sync.
		_ = unix.Fsync(fd)
	}
	if err := unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("drop %s from the page cache: %w", path, err)
	}
	return nil
}
