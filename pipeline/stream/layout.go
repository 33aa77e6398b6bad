package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/lsiofs/lsiofs/pipeline/order"
)

// sampleRecords is the distance between the records whose offsets a layout stores: a seek walks
// over half of it on average, in about 60 µs.
const sampleRecords = 4096

// maxStreamBytes bounds the total size of a worker's records: together with prologue and epilogue
// it must fit into a file offset.
const maxStreamBytes = math.MaxInt64 / 2

// layout has the sizes and sampled offsets of the workers' streams. Offsets count from the end of
// the prologue.
type layout struct {
	bytes   []int64   // total size of each worker's records, after the equal-key rule
	samples [][]int64 // samples[w][i]: offset of record i·sampleRecords of worker w
}

func newLayout(workers uint64) *layout {
	return &layout{bytes: make([]int64, workers), samples: make([][]int64, workers)}
}

// memoryBytes returns the memory that the layout takes.
func (l *layout) memoryBytes() int64 {
	n := int64(len(l.bytes)) * int64(unsafe.Sizeof(l.bytes[0])+unsafe.Sizeof(l.samples[0]))
	for _, s := range l.samples {
		n += int64(cap(s)) * 8
	}
	return n
}

// samplesOf returns the number of samples of worker w.
func samplesOf(v *order.View, w uint64) uint64 {
	return (v.Count(w) + sampleRecords - 1) / sampleRecords
}

// encodedBytes returns the size of the encoded layout of a view.
func encodedBytes(v *order.View) int {
	n := 1 + v.Deal().Workers
	for w := range v.Deal().Workers {
		n += samplesOf(v, w)
	}
	return int(8 * n)
}

// encode returns the layout as bytes: sampleRecords, and for each worker its size and its samples,
// all u64, little-endian.
func (l *layout) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, sampleRecords)
	for w, size := range l.bytes {
		b = binary.LittleEndian.AppendUint64(b, uint64(size))
		for _, s := range l.samples[w] {
			b = binary.LittleEndian.AppendUint64(b, uint64(s))
		}
	}
	return b
}

var errNotALayout = errors.New("not the layout of these streams")

// decodeLayout decodes what encode made of a layout of the same view. It returns an error for bytes
// that can't be such a layout.
func decodeLayout(b []byte, v *order.View) (*layout, error) {
	if len(b) != encodedBytes(v) {
		return nil, fmt.Errorf("%w: %d bytes, not %d", errNotALayout, len(b), encodedBytes(v))
	}
	next := func() int64 {
		n := int64(binary.LittleEndian.Uint64(b))
		b = b[8:]
		return n
	}
	if next() != sampleRecords {
		return nil, fmt.Errorf("%w: it has other samples", errNotALayout)
	}
	l := newLayout(v.Deal().Workers)
	for w := range l.bytes {
		l.bytes[w] = next()
		l.samples[w] = make([]int64, samplesOf(v, uint64(w)))
		last := int64(0)
		for i := range l.samples[w] {
			s := next()
			if s < last || i == 0 && s != 0 {
				return nil, fmt.Errorf("%w: samples do not ascend", errNotALayout)
			}
			l.samples[w][i], last = s, s
		}
		if l.bytes[w] < last || l.bytes[w] > maxStreamBytes || len(l.samples[w]) == 0 && l.bytes[w] != 0 {
			return nil, fmt.Errorf("%w: %d bytes can't be", errNotALayout, l.bytes[w])
		}
	}
	return l, nil
}
