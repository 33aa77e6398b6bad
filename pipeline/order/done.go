package order

import (
	"fmt"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Done is one application of the resume rule: len(Consumed) workers took Consumed[w] records each,
// assigned in batches of Batch by Dealing. An empty Dealing means interleaved. With contiguous
// dealing the batch has no effect, and Batch is 1. In an order of several groups, Batch is the
// order's batch.
type Done struct {
	Batch    uint64
	Dealing  spec.Dealing
	Consumed []uint64
}

// Taken returns the number of records that all workers took together.
func (d Done) Taken() uint64 {
	var n uint64
	for _, c := range d.Consumed {
		n += c
	}
	return n
}

// Check returns an error if d is impossible for remaining records.
func (d Done) Check(remaining uint64, o spec.Order) error {
	if d.Dealing != "" && d.Dealing != spec.DealInterleaved && d.Dealing != spec.DealContiguous {
		return fmt.Errorf("deal (%q) must be %s or %s", d.Dealing, spec.DealInterleaved, spec.DealContiguous)
	}
	workers := uint64(len(d.Consumed))
	if workers < 1 || workers > spec.MaxWorkers {
		return fmt.Errorf("consumed has %d numbers, but there are between 1 and %d workers", workers, spec.MaxWorkers)
	}
	switch {
	case o.Groups > 1 && d.Batch != o.Batch:
		return fmt.Errorf("batch (%d) must be the order's batch (%d), because the order has groups", d.Batch, o.Batch)
	case o.Groups <= 1 && d.Dealing == spec.DealContiguous && d.Batch != 1:
		return fmt.Errorf("batch (%d) must be 1 with the deal contiguous", d.Batch)
	case d.Batch < 1 || d.Batch > MaxRecords:
		return fmt.Errorf("batch (%d) must be between 1 and %d", d.Batch, uint64(MaxRecords))
	}
	t := d.table(remaining)
	for w, c := range d.Consumed {
		if had := t.count(uint64(w)); c > had {
			return fmt.Errorf("worker %d of %d took %d records, but was dealt %d", w, workers, c, had)
		}
	}
	return nil
}

// table returns how remaining positions were dealt. A batch larger than remaining deals like one of
// exactly that size.
func (d Done) table(remaining uint64) table {
	t := table{
		workers: uint64(len(d.Consumed)), batch: max(1, min(d.Batch, remaining)),
		contiguous: d.Dealing == spec.DealContiguous, positions: remaining,
	}
	return t.alone()
}

// prefix reports whether the workers took exactly the first records.
func (d Done) prefix(remaining uint64) bool {
	t, taken := d.table(remaining), d.Taken()
	for w, c := range d.Consumed {
		if c != t.countBelow(uint64(w), taken) {
			return false
		}
	}
	return true
}

// Simplify returns the canonical form of done. total is T.
//
//   - Entries of zeros are dropped.
//   - An entry that took a prefix becomes {batch 1, [n]} (with groups > 1: the order's
//     batch).
//   - Two such entries in a row become one.
//
// For an impossible entry it returns an error with the entry's number, counted from 1. The result
// shares no memory with done.
func Simplify(total uint64, o spec.Order, done []Done) ([]Done, error) {
	remaining := total
	var simple []Done
	joins := false // the last entry of simple is a prefix
	for i, d := range done {
		if err := d.Check(remaining, o); err != nil {
			return nil, fmt.Errorf("entry %d of done: %w", i+1, err)
		}
		taken := d.Taken()
		switch prefix := d.prefix(remaining); {
		case taken == 0:
		case prefix && joins:
			simple[len(simple)-1].Consumed[0] += taken
		case prefix:
			simple, joins = append(simple, First(taken, o)), true
		default:
			d.Consumed = slices.Clone(d.Consumed)
			if d.Dealing == "" {
				d.Dealing = spec.DealInterleaved
			}
			simple, joins = append(simple, d), false
		}
		remaining -= taken
	}
	return simple, nil
}

// First returns the entry that takes the first n of the remaining records.
func First(n uint64, o spec.Order) Done {
	d := Done{Batch: 1, Dealing: spec.DealInterleaved, Consumed: []uint64{n}}
	if o.Groups > 1 {
		d.Batch = o.Batch
	}
	return d
}

// Given returns the entry for workers that took consumed records each, after remaining records were
// assigned to them by d. The entry keeps consumed.
//
// An entry has no field for the tail rule. With contiguous dealing, if the number of records is not
// a multiple of the number of workers, the tail rule moves the borders between workers. Given
// represents that case as an interleaved deal with one batch per worker.
func Given(o spec.Order, remaining uint64, d spec.Assignment, consumed []uint64) Done {
	entry := Done{Batch: d.Batch, Dealing: spec.DealInterleaved, Consumed: consumed}
	if d.Dealing != spec.DealContiguous {
		return entry
	}
	if t := dealt(remaining, d); t.positions != remaining && o.Groups <= 1 {
		entry.Batch = max(1, t.positions/t.workers)
		return entry
	}
	entry.Dealing = spec.DealContiguous
	if o.Groups <= 1 {
		entry.Batch = 1
	}
	return entry
}
