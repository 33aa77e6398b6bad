package order

import (
	"fmt"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Source is one of the datasets of a mixture. Its records have the numbers from First on,
// in the numbering of all sources together.
type Source struct {
	First  uint64
	Starts []uint64 // of its chunks, as NewEpoch wants them; kept
	Part   *Part    // what a split leaves of it
}

// records is T_m, what is left of a source.
func (s *Source) records() uint64 { return s.Starts[len(s.Starts)-1] }

// Mixture is an endless sequence of the records of several sources, each going round in
// its own order, epoch after epoch, and shared out by weights (SELECTION.md, Mixtures). Its
// epochs are stretches of it, of one length. It is safe for concurrent use.
type Mixture struct {
	// Part is what a split leaves of all sources together; nil: all. It is set before
	// there are epochs.
	Part *Part

	order   spec.Order
	shares  *Shares
	sources []Source
	length  uint64
	known   []sourceFacts // of each source

	mu   sync.Mutex
	subs []subEpochs // of each source
}

// sourceFacts are what all epochs of a source have in common.
type sourceFacts struct {
	bytes  uint64 // of a walker
	stride uint64 // the longest replay
	// states: there are some. Epochs of small sources have none: a replay of all of one takes
	// no longer than from a state of others to the next.
	states bool
}

// subEpochs are the epochs of a source that were asked for last: one that is read, and
// the one behind it.
type subEpochs struct {
	numbers [2]uint64
	epochs  [2]*Epoch
	last    int
}

// NewMixture mixes sources by shares, in epochs of length positions. o's settings are
// those of the sources' orders, but for the seed, which each has its own. A source
// without records, and a length of 0, are errors.
func NewMixture(o spec.Order, shares *Shares, sources []Source, length uint64) (*Mixture, error) {
	if len(sources) != len(shares.weights) {
		return nil, fmt.Errorf("order: %d sources and %d weights", len(sources), len(shares.weights))
	}
	if length < 1 || length > MaxRecords {
		return nil, fmt.Errorf("order: the length of a mixture's epoch (%d) must be between 1 and %d", length, uint64(MaxRecords))
	}
	if o.Sample.Or() != (spec.Sample{}) {
		return nil, fmt.Errorf("order: a mixture can't have a sample")
	}
	for m := range sources {
		if sources[m].records() == 0 {
			return nil, fmt.Errorf("order: source %d of the mixture has no records", m)
		}
	}
	m := &Mixture{order: o, shares: shares, sources: sources, length: length, subs: make([]subEpochs, len(sources))}
	for i := range sources { // so that walkers meet no error
		e, err := m.sub(i, 0)
		if err != nil {
			return nil, err
		}
		m.known = append(m.known, sourceFacts{e.bytes, min(e.stride, e.total), e.StoredStatesBytes() > 0})
	}
	return m, nil
}

// Epoch is an epoch of the mixture. Its states are those of the sources' epochs.
func (m *Mixture) Epoch(epoch uint64) (*Epoch, error) {
	if epoch >= maxMixed/m.length {
		return nil, fmt.Errorf("order: epoch %d of the mixture is beyond what can be ordered, which is %d epochs", epoch, maxMixed/m.length)
	}
	e := &Epoch{order: m.order, whole: m.Part, total: m.length}
	for _, k := range m.known {
		e.bytes += k.bytes
		e.stride += k.stride // a replay is one of each source
	}
	e.bytes += mixBlock*9 + uint64(len(m.sources))*64
	e.arrange = func() *arrangement { return m.arrange(epoch) }
	e.arranged.Store(e.arrange())
	return e, nil
}

// sub is an epoch of a source.
func (m *Mixture) sub(source int, epoch uint64) (*Epoch, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := &m.subs[source]
	for i, e := range kept.epochs {
		if e != nil && kept.numbers[i] == epoch {
			kept.last = i
			return e, nil
		}
	}
	o := m.order
	o.Seed = sourceSeed(m.order.Seed, source)
	s := &m.sources[source]
	e, err := NewEpoch(o, epoch, s.Starts, s.Part)
	if err != nil {
		return nil, fmt.Errorf("source %d: %w", source, err)
	}
	kept.last = 1 - kept.last
	kept.numbers[kept.last], kept.epochs[kept.last] = epoch, e
	return e, nil
}

// mixWalker goes through the endless sequence, a block at a time.
type mixWalker struct {
	of      *Mixture
	begin   uint64       // the position of the epoch's first record
	held    []heldEpochs // of each source
	block   uint64       // that records are of; none yet: noBlock
	records [mixBlock]uint64
	list    []uint8
	before  []uint64 // counts at the block's begin, and behind it
	end     []uint64
	sources []sourceCursor
	scratch []uint64
}

const noBlock = ^uint64(0)

// CountFirst sets c[m] to how many of the first n positions are of source m, in the order
// in which they come: Counts where n is a multiple of 256, and within a block what the
// block has shuffled so far. n is at most 2⁶² − 256.
func (s *Shares) CountFirst(n uint64, c []uint64) {
	b := n / mixBlock
	s.Counts(b*mixBlock, c)
	if n%mixBlock == 0 {
		return
	}
	end := make([]uint64, len(c))
	s.Counts((b+1)*mixBlock, end)
	for _, m := range s.block(b, c, end, nil)[:n%mixBlock] {
		c[m]++
	}
}

// sourceCursor is where a walker is in a source.
type sourceCursor struct {
	cursor *Cursor // nil: nowhere
	epoch  uint64
	taken  uint64 // of the block
}

func (m *Mixture) walker(begin uint64, held []heldEpochs) *mixWalker {
	n := len(m.sources)
	return &mixWalker{
		of: m, begin: begin, held: held, block: noBlock, list: make([]uint8, 0, mixBlock),
		before: make([]uint64, n), end: make([]uint64, n), sources: make([]sourceCursor, n), scratch: make([]uint64, 0, mixBlock),
	}
}

func (w *mixWalker) seek(uint64, uint64) {}

func (w *mixWalker) next(p uint64, dst []uint64) {
	at := w.begin + p
	for len(dst) > 0 {
		if b := at / mixBlock; b != w.block {
			w.make(b)
		}
		n := copy(dst, w.records[at%mixBlock:])
		dst, at = dst[n:], at+uint64(n)
	}
}

// make finds the records of a block.
func (w *mixWalker) make(b uint64) {
	if w.block != noBlock && b == w.block+1 {
		w.before, w.end = w.end, w.before
	} else {
		w.of.shares.Counts(b*mixBlock, w.before)
	}
	w.of.shares.Counts((b+1)*mixBlock, w.end)
	w.block = b
	w.list = w.of.shares.block(b, w.before, w.end, w.list)
	// Of each source the records of the block, one behind the other, and where those
	// of the next one begin.
	w.scratch = w.scratch[:0]
	for m := range w.sources {
		w.sources[m].taken = uint64(len(w.scratch))
		n := w.end[m] - w.before[m]
		w.scratch = w.scratch[:uint64(len(w.scratch))+n]
		w.read(m, w.before[m], w.scratch[uint64(len(w.scratch))-n:])
	}
	for i, m := range w.list {
		c := &w.sources[m]
		w.records[i] = w.scratch[c.taken]
		c.taken++
	}
}

// read fills dst with the records of a source from an index of its own endless sequence on.
func (w *mixWalker) read(source int, index uint64, dst []uint64) {
	s, c := &w.of.sources[source], &w.sources[source]
	total := s.records()
	for len(dst) > 0 {
		epoch, at := index/total, index%total
		if c.cursor == nil || c.epoch != epoch {
			e := w.held[source].of(epoch)
			if e == nil {
				e = w.of.mustSub(source, epoch)
			}
			c.cursor, c.epoch = e.Cursor(at), epoch
		} else {
			c.cursor.Seek(at)
		}
		n := c.cursor.Next(dst)
		for i := range dst[:n] {
			dst[i] += s.First
		}
		dst, index = dst[n:], index+uint64(n)
	}
}
