package order

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sort"
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
		return nil, fmt.Errorf("order: epoch %d of the mixture is too large: at most %d epochs can be ordered", epoch, maxMixed/m.length)
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

// An epoch of a mixture runs through epochs of its sources. Those of which it needs a large part
// are held with its arrangement, so that their states are kept, stored and dropped with it:
//
//	source 0   ────────────┤ epoch 0 ├──────────────────     held
//	source 1   ──┤ 7 ├┤ 8 ├┤ 9 ├┤ 10 ├┤ 11 ├─             held
//	source 2   ─────────────────────────────┤ a little of epoch 0, of very many records
//	                                                        not held: states as they come
//
// All others are made when they are reached; the last two of each source are kept (Mixture.sub).

const (
	// heldPart sets which part of a source's epoch, 1/heldPart, a mixture's epoch must need to hold
	// it: the states of the whole are computed even if those of a part would do.
	heldPart = 2
	// mostHeld bounds the passes over a source whose epochs are held. With more of them, each is
	// such a small part of the whole that its states are quickly computed again.
	mostHeld = 16
)

// heldEpochs are the held epochs of a source, starting with number first.
type heldEpochs struct {
	first  uint64
	epochs []*Epoch
}

// of returns an epoch, or nil if it is not held.
func (h *heldEpochs) of(epoch uint64) *Epoch {
	if epoch < h.first || epoch-h.first >= uint64(len(h.epochs)) {
		return nil
	}
	return h.epochs[epoch-h.first]
}

// arrange makes the arrangement of an epoch. It can't fail: NewMixture has already made an epoch of
// each source.
func (m *Mixture) arrange(epoch uint64) *arrangement {
	begin := epoch * m.length
	from, to := make([]uint64, len(m.sources)), make([]uint64, len(m.sources))
	m.shares.CountFirst(begin, from)
	m.shares.CountFirst(begin+m.length, to)
	held := make([]heldEpochs, len(m.sources))
	var states mixStates
	for i := range m.sources {
		h, total := &held[i], m.sources[i].records()
		if h.first = from[i] / total; !m.known[i].states || to[i]-from[i] > mostHeld*total {
			continue
		}
		for n := h.first; n*total < to[i]; n++ {
			var e *Epoch
			if needed := min(to[i], (n+1)*total) - max(from[i], n*total); needed >= total/heldPart {
				e = m.mustSub(i, n)
				states = append(states, e)
			}
			h.epochs = append(h.epochs, e)
		}
	}
	a := &arrangement{start: func() walker { return m.walker(begin, held) }}
	if len(states) > 0 {
		a.states = states
	}
	return a
}

func (m *Mixture) mustSub(source int, epoch uint64) *Epoch {
	e, err := m.sub(source, epoch)
	if err != nil {
		panic(err) // NewMixture has made one like it without an error
	}
	return e
}

// mixStates are the states of the epochs that an epoch of a mixture holds.
type mixStates []*Epoch

func (s mixStates) whole() bool {
	return !slices.ContainsFunc(s, func(e *Epoch) bool { return !e.Prepared() })
}

func (s mixStates) prepare() (parts []func(stop func() bool)) {
	for _, e := range s {
		parts = append(parts, e.Prepare()...)
	}
	return parts
}

func (s mixStates) storedBytes() (n uint64) {
	for _, e := range s {
		n += e.StoredStatesBytes()
	}
	return n
}

// store appends the states of all epochs, one after another.
func (s mixStates) store(dst []byte) []byte {
	if !s.whole() {
		return dst
	}
	dst = slices.Grow(dst, int(s.storedBytes()))
	for _, e := range s {
		dst = e.StoreStates(dst)
	}
	return dst
}

// restore loads them. If one can't be restored, those before it stay loaded: they are as valid as
// if they had been stored alone.
func (s mixStates) restore(stored []byte) error {
	if uint64(len(stored)) != s.storedBytes() {
		return fmt.Errorf("order: the states of this epoch take %d bytes, not %d", s.storedBytes(), len(stored))
	}
	for _, e := range s {
		n := e.StoredStatesBytes()
		if err := e.RestoreStates(stored[:n]); err != nil {
			return err
		}
		stored = stored[n:]
	}
	return nil
}

// mostCounted is how many skipped positions CountTaken looks up one by one, which takes about 20
// ms: workers are rarely further apart.
const mostCounted = 1 << 16

// CountTaken returns, by source, how many of an epoch's positions done has taken. If workers are so
// far apart that very many positions would have to be looked up, exact is false, and it counts the
// same number of positions from the epoch's start instead. An impossible entry of done is an error.
func (m *Mixture) CountTaken(epoch uint64, done []Done) (counts []uint64, exact bool, err error) {
	simple, err := Simplify(m.length, m.order, done)
	if err != nil {
		return nil, false, err
	}
	levels, remaining := make([]level, len(simple)), m.length
	for i, d := range simple {
		levels[i] = newLevel(remaining, d)
		remaining = levels[i].left
	}
	origin := func(p uint64, level int) uint64 {
		for i := level - 1; i >= 0; i-- {
			p = levels[i].origin(p)
		}
		return p
	}
	taken, end := m.length-remaining, uint64(0) // end: the position after the last one taken
	for i := range levels {
		if past := levels[i].past; past > 0 {
			end = max(end, origin(past-1, i)+1)
		}
	}
	begin, exact := epoch*m.length, end-taken <= mostCounted
	if !exact {
		end = taken
	}
	before, counts := make([]uint64, len(m.sources)), make([]uint64, len(m.sources))
	m.shares.CountFirst(begin, before)
	m.shares.CountFirst(begin+end, counts)
	for i := range counts {
		counts[i] -= before[i]
	}
	if !exact {
		return counts, false, nil
	}
	behind, list, block := make([]uint64, len(counts)), []uint8(nil), uint64(noBlock)
	for j := range end - taken { // not taken, but before the last one that was
		at := begin + origin(j, len(levels))
		if b := at / mixBlock; b != block {
			block = b
			m.shares.Counts(b*mixBlock, before)
			m.shares.Counts((b+1)*mixBlock, behind)
			list = m.shares.block(b, before, behind, list)
		}
		counts[list[at%mixBlock]]--
	}
	return counts, true, nil
}

// Bounds of a mixture (SELECTION.md, Mixtures).
const (
	MinSources = 2
	MaxSources = 128
	// MaxWeight bounds a weight, in any unit, so that their sum fits 63 bits.
	MaxWeight = 1<<63/MaxSources - 1
	// mixBlock is the number of positions that are shared out together.
	mixBlock = 256
	// maxMixed bounds positions of the endless sequence, far above what is ever read.
	maxMixed = 1 << 62
)

// Shares maps each position of a mixture to a source, and to one of that source's records, in turn.
// It is plain arithmetic on the weights, immutable, and safe for concurrent use.
type Shares struct {
	weights []uint64
	sum     uint64
	heavy   []int  // sources, by weight descending
	key     uint64 // key of the blocks' shuffle
}

// NewShares returns shares for weights, which are integers in any unit.
func NewShares(seed uint64, weights []uint64) (*Shares, error) {
	if len(weights) < MinSources || len(weights) > MaxSources {
		return nil, fmt.Errorf("order: a mixture of %d sources: it must have between %d and %d", len(weights), MinSources, MaxSources)
	}
	s := &Shares{weights: slices.Clone(weights), key: key("mix", seed, 0, 0)}
	for m, w := range weights {
		if w < 1 || w > MaxWeight {
			return nil, fmt.Errorf("order: the weight of source %d (%d) must be between 1 and %d", m, w, uint64(MaxWeight))
		}
		s.sum += w
		s.heavy = append(s.heavy, m)
	}
	slices.SortStableFunc(s.heavy, func(a, b int) int {
		switch wa, wb := weights[a], weights[b]; {
		case wa > wb:
			return -1
		case wa < wb:
			return 1
		}
		return 0
	})
	return s, nil
}

// Counts sets c[m] to the number of the first n positions that belong to source m. n is at most
// 2⁶².
func (s *Shares) Counts(n uint64, c []uint64) {
	left, rest := n, s.sum
	for _, m := range s.heavy {
		w := s.weights[m]
		high, low := bits.Mul64(left, rest-w)
		after, _ := bits.Div64(high, low, rest) // at most left
		c[m] = left - after
		left, rest = after, rest-w
	}
}

// block returns the sources of positions 256·b … 256·b+255, in order. before and end are Counts at
// the first of these and at the position after the last.
func (s *Shares) block(b uint64, before, end []uint64, list []uint8) []uint8 {
	list = list[:0]
	for m := range before {
		for range end[m] - before[m] {
			list = append(list, uint8(m))
		}
	}
	permute(list, s.key, b*mixBlock)
	return list
}

// errTooLong means that the length is unreasonable.
var errTooLong = errors.New("order: an epoch of the mixture would have more positions than can be ordered: give its length, or more even weights")

// First returns the largest number of positions, in whole blocks, in which no source has more
// positions than records. If that is 0, short is a source that has too few records for one block.
func (s *Shares) First(records []uint64) (length uint64, short int) {
	c := make([]uint64, len(s.weights))
	exceeds := func(n uint64) int {
		s.Counts(n, c)
		return slices.IndexFunc(s.heavy, func(m int) bool { return c[m] > records[m] })
	}
	sum := uint64(0)
	for _, n := range records {
		sum += min(n, MaxRecords)
	}
	n := uint64(sort.Search(int(sum), func(n int) bool { return exceeds(uint64(n)+1) >= 0 }))
	if length = n / mixBlock * mixBlock; length > 0 {
		return length, -1
	}
	return 0, s.heavy[exceeds(n+1)]
}

// All returns the smallest number of positions, in whole blocks, in which every record of each
// source occurs.
func (s *Shares) All(records []uint64) (length uint64, err error) {
	c := make([]uint64, len(s.weights))
	holds := func(n int) bool {
		s.Counts(uint64(n), c)
		for m, have := range c {
			if have < records[m] {
				return false
			}
		}
		return true
	}
	n := sort.Search(MaxRecords+1, holds)
	if n > MaxRecords-mixBlock {
		return 0, errTooLong
	}
	return (uint64(n) + mixBlock - 1) / mixBlock * mixBlock, nil
}

// sourceSeed returns the seed of a source's own order.
func sourceSeed(seed uint64, m int) uint64 { return key("source", seed, 0, uint64(m)) }
