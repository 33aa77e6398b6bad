package stream

import (
	"fmt"
	"math"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// sampleRecords is the distance of the records whose offsets a layout keeps:
// a seek walks half of it on average, some 60 µs.
const sampleRecords = 4096

// layout is where the records of each worker's stream lie. Offsets count from
// the end of the prologue.
type layout struct {
	bytes   []int64   // of all records of a worker, after the equal-key rule
	samples [][]int64 // samples[w][i]: where record i·sampleRecords of worker w begins
}

// computeLayout sweeps the view once.
func computeLayout(s *Source, v *order.View) (*layout, error) {
	workers := v.Deal().Workers
	l := &layout{bytes: make([]int64, workers), samples: make([][]int64, workers)}
	d := newDealer(v)
	renames := s.renamer != nil
	var previous []uint64 // key hash of the record that each worker got last
	if renames {
		previous = make([]uint64, workers)
	}
	var sizes []int64
	var hashes []uint64
	var err error
	v.Sweep(func(_ uint64, records []uint64) bool {
		select {
		case <-s.stop:
			err = ErrClosed
			return false
		default:
		}
		sizes = resize(sizes, len(records))
		s.records.Sizes(records, sizes)
		if renames {
			hashes = resize(hashes, len(records))
			renames = s.records.KeyHashes(records, hashes)
		}
		for i, record := range records {
			w, k := d.next()
			size := sizes[i]
			if renames {
				if k > 0 && previous[w] == hashes[i] {
					size += s.records.Growth(record, k)
				}
				previous[w] = hashes[i]
			}
			if k%sampleRecords == 0 {
				l.samples[w] = append(l.samples[w], l.bytes[w])
			}
			if size > math.MaxInt64/2-l.bytes[w] {
				err = fmt.Errorf("the stream of worker %d is larger than a file can be: use more workers", w)
				return false
			}
			l.bytes[w] += size
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// dealer says whose the next index of G′ is, as View.Owner does, without a
// division an index.
type dealer struct {
	view     *order.View
	deal     spec.Deal
	w        uint64
	inBatch  uint64   // records of worker w's batch that have been dealt
	received []uint64 // by each worker
}

func newDealer(v *order.View) *dealer {
	return &dealer{view: v, deal: v.Deal(), received: make([]uint64, v.Deal().Workers)}
}

// next gives the worker of the next index, and which of its records that is.
func (d *dealer) next() (w, k uint64) {
	if d.deal.Dealing == spec.DealContiguous {
		for d.received[d.w] == d.view.Count(d.w) {
			d.w++
		}
	} else if d.inBatch == d.deal.Batch {
		d.inBatch = 0
		if d.w++; d.w == d.deal.Workers {
			d.w = 0
		}
	}
	w, k = d.w, d.received[d.w]
	d.received[w]++
	d.inBatch++
	return w, k
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
