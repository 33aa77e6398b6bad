package order

import (
	"fmt"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// table describes how positions are assigned to workers. The product of workers and batch fits 64
// bits: workers is at most 2^16, batch at most 2^32 or positions.
type table struct {
	workers    uint64
	batch      uint64
	contiguous bool
	positions  uint64
}

// share is the assignment of one position: it is record number k of worker w, and w also has the
// run-1 positions after it.
type share struct {
	w, k, run uint64
}

// count returns the number of positions of worker w.
func (t *table) count(w uint64) uint64 { return t.countBelow(w, t.positions) }

// countBelow returns the number of worker w's positions below p.
func (t *table) countBelow(w, p uint64) uint64 {
	if t.contiguous {
		first, size := t.stretch(w)
		return min(size, p-min(p, first))
	}
	cycle := t.workers * t.batch
	rest := p % cycle
	return p/cycle*t.batch + min(t.batch, rest-min(rest, w*t.batch))
}

// stretch returns the positions of worker w in a contiguous deal: the first, and their number.
func (t *table) stretch(w uint64) (first, size uint64) {
	each, more := t.positions/t.workers, t.positions%t.workers
	size = each
	if w < more {
		size++
	}
	return w*each + min(w, more), size
}

// position returns the position of worker w's record k, which must exist.
func (t *table) position(w, k uint64) uint64 {
	if t.contiguous {
		first, _ := t.stretch(w)
		return first + k
	}
	return (k/t.batch*t.workers+w)*t.batch + k%t.batch
}

// at returns the share of position p < positions.
func (t *table) at(p uint64) share {
	if t.contiguous {
		each, more := t.positions/t.workers, t.positions%t.workers
		w := p / (each + 1)
		if w >= more {
			w = more + (p-more*(each+1))/max(each, 1)
		}
		first, size := t.stretch(w)
		return share{w: w, k: p - first, run: first + size - p}
	}
	turn, rest := p/t.batch, p%t.batch
	return share{w: turn % t.workers, k: turn/t.workers*t.batch + rest, run: min(t.batch-rest, t.positions-p)}
}

// after returns the share of position p, which directly follows the run of s.
func (t *table) after(s share, p uint64) share {
	s.k += s.run
	s.w++
	if t.contiguous {
		_, size := t.stretch(s.w)
		return share{w: s.w, run: size}
	}
	if s.w == t.workers {
		s.w = 0
	} else {
		s.k -= t.batch
	}
	s.run = min(t.batch, t.positions-p)
	return s
}

// alone turns a deal to a single worker into one batch: an equal deal with longer runs.
func (t table) alone() table {
	if t.workers == 1 {
		t.batch = max(1, t.positions)
	}
	return t
}

// dealt returns the table for dealing remaining positions, after the tail rule.
func dealt(remaining uint64, d spec.Assignment) table {
	t := table{workers: d.Workers, batch: d.Batch, contiguous: d.Dealing == spec.DealContiguous, positions: remaining}
	round := t.workers
	if !t.contiguous {
		round *= t.batch
	}
	switch d.Tail {
	case spec.TailDrop:
		t.positions -= remaining % round
	case spec.TailPad:
		t.positions = (remaining + round - 1) / round * round
	}
	return t.alone()
}

// checkDeal rejects deals that are impossible, or that a checkpoint can't represent.
func checkDeal(o spec.Order, d spec.Assignment) error {
	switch {
	case d.Workers < 1 || d.Workers > spec.MaxWorkers:
		return fmt.Errorf("order: workers (%d) must be between 1 and %d", d.Workers, spec.MaxWorkers)
	case d.Batch < 1 || d.Batch > maxOrderBatch:
		return fmt.Errorf("order: batch (%d) must be between 1 and %d", d.Batch, uint64(maxOrderBatch))
	case o.Groups > 1 && d.Batch != o.Batch:
		return fmt.Errorf("order: batch (%d) must be the order's batch (%d) when groups is above 1", d.Batch, o.Batch)
	}
	switch d.Dealing {
	case spec.DealInterleaved, spec.DealContiguous:
	default:
		return fmt.Errorf("order: unknown deal %q", d.Dealing)
	}
	switch d.Tail {
	case spec.TailKeep, spec.TailDrop, spec.TailPad:
	default:
		return fmt.Errorf("order: unknown tail %q", d.Tail)
	}
	if o.Groups > 1 && d.Dealing == spec.DealContiguous && d.Tail != spec.TailKeep {
		// See Given: with groups, the batch of an entry is fixed.
		return fmt.Errorf("order: tail %s with the deal contiguous could not be resumed when groups is above 1: choose tail keep, or groups 1", d.Tail)
	}
	return nil
}
