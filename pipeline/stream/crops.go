package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format/npy"
)

// Locate writes to dst the position from which a record, named by its ordinal in a shard, was cut
// in the given epoch. It is called by one goroutine at a time.
type Locate func(dst []int64, shard int, ordinal, epoch uint64)

// crops makes the files of kind Crops: an npy array of int64 with one row per record.
type crops struct {
	rows    npy.Rows
	numbers int // per row
	open    func() Locate
}

// SetCrops declares that the records are crops, so that workers have files of kind Crops. These
// have the given count of numbers for each record, written by a Locate that open returns. It must
// be called before the first set is made.
func (s *Source) SetCrops(numbers int, open func() Locate) error {
	rows, err := npy.NewRows("'<i8'", []int64{int64(numbers)})
	if err != nil {
		return err
	}
	s.crops = crops{rows, numbers, open}
	return nil
}

// sizeBytes returns the size of a file of n records.
func (c *crops) sizeBytes(n uint64) (int64, error) {
	if c.open == nil {
		return 0, errors.New("internal error: records are not crops")
	}
	row := c.rows.RowBytes()
	if n > uint64((math.MaxInt64-math.MaxUint16)/row) {
		return 0, fmt.Errorf("%d records are too many for a file of where they were cut from", n)
	}
	return int64(len(c.rows.Prologue(n))) + int64(n)*row, nil
}

// rowsBefore returns the number of whole rows before offset mark in a file of n records.
func (c *crops) rowsBefore(n uint64, mark int64) uint64 {
	if c.open == nil {
		return 0
	}
	return uint64(max(mark-int64(len(c.rows.Prologue(n))), 0) / c.rows.RowBytes())
}

// crops fills r with n bytes of the positions from which records were cut, starting at off.
func (h *Handle) crops(r *Reply, off int64, n int) {
	dst := r.space(n, n)
	if head := int64(len(h.before)); off < head {
		m := copy(dst, h.before[off:])
		dst, off = dst[m:], head
	}
	if len(dst) == 0 {
		return
	}
	off -= int64(len(h.before))
	c, epoch := &h.set.source.crops, h.set.view.Epoch().Number()
	var (
		records [walkRecords]uint64
		extents [walkRecords]catalog.Extent
		numbers = make([]int64, c.numbers)
		row     = make([]byte, 0, c.rows.RowBytes())
		locate  = c.open()
		k       = uint64(off / c.rows.RowBytes())
		skip    = int(off % c.rows.RowBytes())
	)
	for len(dst) > 0 {
		m := min(walkRecords, (skip+len(dst)+cap(row)-1)/cap(row))
		m = h.set.view.Records(h.w, k, records[:m])
		h.set.source.records.Extents(records[:m], extents[:m])
		for _, e := range extents[:m] {
			locate(numbers, e.Shard, e.Ordinal, epoch)
			row = row[:0]
			for _, x := range numbers {
				row = binary.LittleEndian.AppendUint64(row, uint64(x))
			}
			dst = dst[copy(dst, row[skip:]):]
			skip = 0
		}
		k += uint64(m)
	}
}
