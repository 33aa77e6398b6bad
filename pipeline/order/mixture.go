package order

import (
	"fmt"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Source is one of the datasets of a mixture. Its records are numbered from First on, in the
// numbering of all sources together.
type Source struct {
	First  uint64
	Starts []uint64 // of its chunks, as for NewEpoch; kept
	Part   *Part    // the records that a split selects
}

// records returns T_m, the number of selected records of a source.
func (s *Source) records() uint64 { return s.Starts[len(s.Starts)-1] }

// Mixture is an endless sequence of the records of several sources. Each source repeats in its own
// order, epoch after epoch; positions are shared out by weights (SELECTION.md, Mixtures). The
// mixture's epochs are consecutive ranges of the sequence, all of one length. It is safe for
// concurrent use.
type Mixture struct {
	// Part is the set of records that a split selects from all sources together; nil: all. It is
	// set before there are epochs.
	Part *Part

	order   spec.Order
	shares  *Shares
	sources []Source
	length  uint64
	known   []sourceFacts // by source

	mu   sync.Mutex
	subs []subEpochs // by source
}

// sourceFacts has what all epochs of a source have in common.
type sourceFacts struct {
	bytes  uint64 // memory of a walker
	stride uint64 // the longest replay
	// states is set if its epochs have states. Epochs of small sources have none: replaying all of
	// one takes no longer than replaying another source from one state to the next.
	states bool
}

// subEpochs holds the two most recently used epochs of a source: the one being read, and the next
// one.
type subEpochs struct {
	numbers [2]uint64
	epochs  [2]*Epoch
	last    int
}

// NewMixture mixes sources by shares, in epochs of length positions. o has the settings of all
// sources' orders except the seed, which is derived for each source. A source without records, and
// a length of 0, are errors.
func NewMixture(o spec.Order, shares *Shares, sources []Source, length uint64) (*Mixture, error) {
	if len(sources) != len(shares.weights) {
		return nil, fmt.Errorf("order: %d sources and %d weights", len(sources), len(shares.weights))
	}
	if length < 1 || length > MaxRecords {
		return nil, fmt.Errorf("order: the length of a mixture's epoch (%d) must be between 1 and %d", length, uint64(MaxRecords))
	}
	if o.Sample.Or() != (spec.Subsample{}) {
		return nil, fmt.Errorf("order: a mixture can't have a sample")
	}
	for m := range sources {
		if sources[m].records() == 0 {
			return nil, fmt.Errorf("order: source %d of the mixture has no records", m)
		}
	}
	m := &Mixture{order: o, shares: shares, sources: sources, length: length, subs: make([]subEpochs, len(sources))}
	for i := range sources { // so that walkers get no error
		e, err := m.sub(i, 0)
		if err != nil {
			return nil, err
		}
		m.known = append(m.known, sourceFacts{e.bytes, min(e.stride, e.total), e.StoredStatesBytes() > 0})
	}
	return m, nil
}

// Epoch returns an epoch of the mixture. Its states are those of the sources' epochs.
func (m *Mixture) Epoch(epoch uint64) (*Epoch, error) {
	if epoch >= maxMixed/m.length {
		return nil, fmt.Errorf("order: epoch %d of the mixture is beyond what can be ordered, which is %d epochs", epoch, maxMixed/m.length)
	}
	e := &Epoch{number: epoch, order: m.order, whole: m.Part, total: m.length}
	for _, k := range m.known {
		e.bytes += k.bytes
		e.stride += k.stride // a replay of the mixture replays each source
	}
	e.bytes += mixBlock*9 + uint64(len(m.sources))*64
	e.arrange = func() *arrangement { return m.arrange(epoch) }
	e.arranged.Store(e.arrange())
	return e, nil
}

// sub returns an epoch of a source.
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

// mixWalker walks the endless sequence, a block at a time.
type mixWalker struct {
	of      *Mixture
	begin   uint64       // position of the epoch's first record
	held    []heldEpochs // by source
	block   uint64       // the block in records; noBlock at first
	records [mixBlock]uint64
	list    []uint8
	before  []uint64 // counts at the start of the block, and at its end
	end     []uint64
	sources []sourceCursor
	scratch []uint64
}

const noBlock = ^uint64(0)

// CountFirst sets c[m] to the number of the first n positions that belong to source m, in the
// actual order: at multiples of 256 it equals Counts, and within a block it counts what the block's
// shuffle has produced so far. n is at most 2⁶² − 256.
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

// sourceCursor is a walker's position in a source.
type sourceCursor struct {
	cursor *Cursor // nil: not positioned yet
	epoch  uint64
	taken  uint64 // within the block
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

// make computes the records of a block.
func (w *mixWalker) make(b uint64) {
	if w.block != noBlock && b == w.block+1 {
		w.before, w.end = w.end, w.before
	} else {
		w.of.shares.Counts(b*mixBlock, w.before)
	}
	w.of.shares.Counts((b+1)*mixBlock, w.end)
	w.block = b
	w.list = w.of.shares.block(b, w.before, w.end, w.list)
	// scratch gets the block's records of each source in turn; taken is where each source's records
	// begin.
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

// read fills dst with the records of a source, starting at an index of its own endless sequence.
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
