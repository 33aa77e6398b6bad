package readtest

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sort"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format"
)

// Index is a catalog that keeps everything in slices, for a dataset whose files were written by
// Make, or by a test.
type Index struct {
	Format      format.Format
	ShardTable  []catalog.Shard
	EntryTable  [][]format.Entry // of each shard, ascending
	PointTable  [][]format.Point // of each shard, if there are any
	ExtentTable []catalog.Extent
}

func (x *Index) Records() uint64           { return uint64(len(x.ExtentTable)) }
func (x *Index) Shards() int               { return len(x.ShardTable) }
func (x *Index) Shard(i int) catalog.Shard { return x.ShardTable[i] }
func (x *Index) Unpacker() format.Format   { return x.Format }

func (x *Index) Extents(records []uint64, dst []catalog.Extent) {
	for i, r := range records {
		dst[i] = x.ExtentTable[r]
	}
}

func (x *Index) PieceStarts(chunkBytes, chunkRecords, _ uint64) []uint64 {
	var starts []uint64
	var n, size uint64
	for r, e := range x.ExtentTable {
		if r == 0 || e.Shard != x.ExtentTable[r-1].Shard || size >= chunkBytes || n >= chunkRecords {
			starts = append(starts, uint64(r))
			n, size = 0, 0
		}
		n++
		size += uint64(e.SizeBytes)
	}
	return append(starts, x.Records())
}

func (x *Index) Entry(shard int, decodedBytes int64) format.Entry {
	e := x.EntryTable[shard]
	return e[sort.Search(len(e), func(i int) bool { return e[i].DecodedBytes > decodedBytes })-1]
}

func (x *Index) Point(shard, number int) format.Point { return x.PointTable[shard][number-1] }

func (x *Index) NextPoint(shard int, decodedBytes int64) (format.Point, bool) {
	if x.PointTable == nil {
		return format.Point{}, false
	}
	p := x.PointTable[shard]
	i := sort.Search(len(p), func(i int) bool { return p[i].DecodedBytes > decodedBytes })
	if i == len(p) {
		return format.Point{}, false
	}
	return p[i], true
}

func (x *Index) Part(int, int64) catalog.Part { panic("no shard is made of parts") }

func (x *Index) RecordsBefore(shard int, decodedBytes int64) (n uint64) {
	for _, e := range x.ExtentTable {
		if e.Shard == shard && e.OffsetBytes < decodedBytes {
			n++
		}
	}
	return n
}

// crcFormat is a format whose records end with their CRC.
type crcFormat struct{ format.Format }

var _ format.Verifier = crcFormat{}

func (crcFormat) Verify(record []byte) error {
	if n := len(record) - 4; crc32.ChecksumIEEE(record[:n]) != binary.LittleEndian.Uint32(record[n:]) {
		return fmt.Errorf("checksum mismatch")
	}
	return nil
}

func (crcFormat) NewCheck() format.Check { panic("records are fetched whole") }

// Some is the part with the records that are true.
type Some []bool

func (p Some) Has(record uint64) bool { return p[record] }

func (p Some) Count(from, to uint64) (n uint64) {
	for _, has := range p[from:to] {
		if has {
			n++
		}
	}
	return n
}

// Of returns a sequence without the records of other parts.
func (p Some) Of(seq List) (left List) {
	for _, record := range seq {
		if p[record] {
			left = append(left, record)
		}
	}
	return left
}

// Parts returns subsets of a dataset's records: most, few, and every other shard.
func Parts(x *Index) map[string]Some {
	rng := rand.New(rand.NewPCG(5, 6))
	most, few, shards := make(Some, x.Records()), make(Some, x.Records()), make(Some, x.Records())
	for i := range most {
		most[i], few[i] = rng.IntN(10) > 0, rng.IntN(10) == 0
		shards[i] = x.ExtentTable[i].Shard%2 == 1
	}
	return map[string]Some{"most": most, "few": few, "every other shard": shards}
}
