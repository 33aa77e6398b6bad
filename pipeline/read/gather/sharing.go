package gather

import (
	"cmp"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
)

var _ budget.Member = (*Gatherer)(nil)

// Allow implements budget.Member: the pool gets what Options.BesideBytes leaves, but at least
// half.
func (g *Gatherer) Allow(bytes int64) {
	g.pool.Allow(min(max(bytes-g.o.BesideBytes(), bytes/2), g.pool.MostBytes()))
}

// Held implements budget.Member.
func (g *Gatherer) Held() int64 { return g.pool.Held() + g.o.BesideBytes() }

// Lent implements budget.Member.
func (g *Gatherer) Lent() int64 { return int64(g.counts.bytesOut.Load()) }

// Readers implements budget.Member.
func (g *Gatherer) Readers() int64 { return g.open.Load() }

// Shrink implements budget.Member: readers drop what they do not need now and then all they have,
// beginning with those that have been idle longest. Readers whose lock is held are skipped.
func (g *Gatherer) Shrink() {
	g.sweep()
	g.mu.Lock()
	readers := slices.Clone(g.readers)
	g.mu.Unlock()
	slices.SortFunc(readers, func(a, b *Reader) int { return cmp.Compare(a.called.Load(), b.called.Load()) })
	for _, drop := range [...]func(*Reader){(*Reader).giveUp, (*Reader).dropAll} {
		for _, r := range readers {
			if err := g.pool.Trim(); err != nil {
				g.o.Note(err)
			}
			if g.pool.Held() <= g.pool.BudgetBytes() {
				return
			}
			if r.mu.TryLock() {
				drop(r)
				r.mu.Unlock()
			}
		}
	}
	if err := g.pool.Trim(); err != nil {
		g.o.Note(err)
	}
}

// ShrinkDisk implements budget.Member: nothing is kept on a disk.
func (g *Gatherer) ShrinkDisk() {}
