package gather

import (
	"cmp"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
)

// take returns memory for n bytes. A batch that a reader waits for always gets it: other readers
// drop what they have read, beginning with those that have been idle longest.
func (g *Gatherer) take(r *Reader, n int64, u budget.Urgency) (budget.Block, error) {
	b, err := g.pool.Take(n, false)
	if err != budget.ErrNoRoom {
		return b, err
	}
	if g.o.Ask() {
		if b, err = g.pool.Take(n, false); err != budget.ErrNoRoom {
			return b, err
		}
	}
	g.sweep()
	g.reclaim(r, n, u)
	return g.pool.Take(n, u == budget.Demand)
}

// idleCalls is after how many calls of others a reader's memory may be used to read ahead for them.
const idleCalls = 256

// reclaim makes other readers drop what they hold, until there is room for n bytes: first what they
// do not need now and then, for a reader that waits, anything.
func (g *Gatherer) reclaim(r *Reader, n int64, u budget.Urgency) {
	r.dropOthers()
	if u == budget.Demand {
		r.dropPassed()
	}
	g.mu.Lock()
	others := slices.Clone(g.readers)
	g.mu.Unlock()
	slices.SortFunc(others, func(a, b *Reader) int { return cmp.Compare(a.called.Load(), b.called.Load()) })
	now := g.calls.Load()
	for _, all := range [...]bool{false, true} {
		if all && u != budget.Demand {
			return
		}
		for _, o := range others {
			if g.pool.Room(n) {
				return
			}
			idle := o.called.Load()+idleCalls < now
			if o == r || u != budget.Demand && !idle || !o.mu.TryLock() {
				continue
			}
			if idle || all {
				o.dropAll()
			} else {
				o.giveUp()
			}
			o.mu.Unlock()
		}
	}
}

func (g *Gatherer) giveBlock(b budget.Block) {
	if err := g.pool.Give(b); err != nil {
		g.o.Note(err)
	}
}

// newBatch returns an empty batch with the given memory.
func (g *Gatherer) newBatch(m budget.Block, from uint64) *batch {
	g.mu.Lock()
	var b *batch
	if n := len(g.batches); n > 0 {
		b, g.batches = g.batches[n-1], g.batches[:n-1]
	}
	g.mu.Unlock()
	if b == nil {
		b = new(batch)
	}
	b.init(m, int64(len(m.Mem)), from)
	return b
}

// drop takes a batch that is no longer in a run. Reads that are for no other batch and have not
// begun are cancelled, and its memory is freed when it is no longer pinned.
func (g *Gatherer) drop(b *batch) {
	b.dropped.Store(true)
	if b.pins.Kill() {
		g.recycle(b)
		return
	}
	g.mu.Lock()
	g.leaving = append(g.leaving, b)
	g.mu.Unlock()
}

// sweep frees dropped batches that are no longer pinned.
func (g *Gatherer) sweep() {
	g.mu.Lock()
	var gone []*batch
	g.leaving = slices.DeleteFunc(g.leaving, func(b *batch) bool {
		if !b.pins.Kill() {
			return false
		}
		gone = append(gone, b)
		return true
	})
	g.mu.Unlock()
	for _, b := range gone {
		g.recycle(b)
	}
}

// recycle frees a dead batch.
func (g *Gatherer) recycle(b *batch) {
	g.giveBlock(b.block)
	b.block, b.failed = budget.Block{}, nil
	b.faults.Store(0)
	b.pins.Reset(0)
	g.mu.Lock()
	g.batches = append(g.batches, b)
	g.mu.Unlock()
}

func (g *Gatherer) newStretch() *stretch {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := len(g.stretches)
	if n == 0 {
		return &stretch{g: g}
	}
	st := g.stretches[n-1]
	g.stretches = g.stretches[:n-1]
	return st
}

func (g *Gatherer) freeStretch(st *stretch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stretches = append(g.stretches, st)
}
