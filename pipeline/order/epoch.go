package order

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sort"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// MaxRecords bounds T, so that T times the number of workers fits 64 bits.
const MaxRecords = 1 << 47

// Epoch is the global order G of one epoch. It is logically immutable, and safe for concurrent use.
//
// It keeps the states of the reservoirs at regular positions, from which a short replay reaches any
// position. These states take about a quarter of a byte per record once all of G has been visited,
// Prepare has computed them, or RestoreStates has loaded them.
type Epoch struct {
	order  spec.Order
	number uint64
	total  uint64
	part   *Part  // turns the ranks that walkers return into record numbers
	whole  *Part  // of a mixture: the records of all sources that the split selects
	phase  uint64 // of the sample
	bytes  uint64 // approximate memory of a walker
	// stride is the distance between positions at which a cursor starts cheaply, once their states
	// are kept.
	stride uint64

	// arrange computes an arrangement. If it is nil, there is nothing to compute, and arranged is
	// always set. Otherwise arranged may be dropped, and is computed again.
	arrange  func() *arrangement
	making   sync.Mutex
	arranged atomic.Pointer[arrangement]
	holds    atomic.Int64 // while it is above 0, arranged is not dropped
}

// arrangement is the state that walkers share: the permuted chunks, and the kept states.
type arrangement struct {
	start  func() walker // returns a walker at position 0
	states states        // nil if the shuffle has none
}

// arranges reports whether the epoch has an arrangement that can be dropped.
func (e *Epoch) arranges() bool { return e.arrange != nil }

// arrangement returns the state that walkers share, computed again if it has been dropped.
func (e *Epoch) arrangement() *arrangement {
	if a := e.arranged.Load(); a != nil {
		return a
	}
	e.making.Lock()
	defer e.making.Unlock()
	a := e.arranged.Load()
	if a == nil {
		a = e.arrange()
		e.arranged.Store(a)
	}
	return a
}

// Hold prevents a Memory from dropping the epoch's computed states until release is called. release
// must be called exactly once.
func (e *Epoch) Hold() (release func()) {
	e.holds.Add(1)
	return func() { e.holds.Add(-1) }
}

// walker produces the records of G, as ranks among the selected records. It does not store its
// position.
type walker interface {
	// next fills dst with the records at p and after; there must be that many.
	next(p uint64, dst []uint64)
	// seek moves from one position to another.
	seek(from, to uint64)
}

// NewEpoch returns the order of epoch. starts are the first records of the chunks, ascending,
// followed by T. starts is kept and must not change. With a split or a sample, part is the set of
// records selected for this epoch (NewPart), and starts comes from Part.Starts; otherwise part is
// nil. Options that ORDER.md does not allow, or starts that do not ascend from 0, are errors.
//
// It permutes the chunks, which takes about 10 ns and 4 bytes per chunk.
func NewEpoch(o spec.Order, epoch uint64, starts []uint64, part *Part) (*Epoch, error) {
	if err := checkStarts(starts); err != nil {
		return nil, err
	}
	if err := checkPart(o, starts, part); err != nil {
		return nil, err
	}
	if err := checkOrder(o); err != nil {
		return nil, err
	}
	e := &Epoch{order: o, number: epoch, total: starts[len(starts)-1], part: part, phase: o.Sample.Phase(epoch), stride: spacingPositions}
	switch o.Shuffle {
	case spec.ShuffleNone:
		e.arranged.Store(&arrangement{start: func() walker { return straight{} }})
		return e, nil
	case spec.ShuffleFull:
		f := newFull(o.Seed, epoch, e.total)
		e.arranged.Store(&arrangement{start: func() walker { return f }})
		return e, nil
	}
	lanes := func() *layout {
		return newLayout(layoutOptions{
			seed: o.Seed, epoch: epoch, size: o.SizeRecords,
			lanes: o.Lanes, groups: o.Groups, step: o.Batch,
		}, e.total, newChunks(o.Seed, epoch, starts))
	}
	if e.total <= math.MaxUint32 {
		shuffled[uint32](e, lanes)
	} else {
		shuffled[uint64](e, lanes)
	}
	return e, nil
}

// shuffled sets e up for a shuffle that uses lanes.
func shuffled[S slot](e *Epoch, lanes func() *layout) {
	arrange := func(l *layout) (a *arrangement, slots, stride uint64) {
		if e.order.Shuffle == spec.ShuffleBlock {
			b := newBlocks[S](l)
			return &arrangement{start: b.walker}, b.slots, max(spacingPositions, spacingPerSlot*b.slots)
		}
		r := newReservoirs[S](l, e.total)
		return &arrangement{start: r.walker, states: r}, r.slots, r.spacing
	}
	l := lanes()
	a, slots, stride := arrange(l)
	e.stride = stride
	e.bytes = uint64(unsafe.Sizeof(S(0)))*slots + 64*uint64(len(l.lanes))
	e.arranged.Store(a)
	e.arrange = func() *arrangement {
		a, _, _ := arrange(lanes())
		return a
	}
}

func checkStarts(starts []uint64) error {
	if len(starts) == 0 || starts[0] != 0 {
		return errors.New("order: the first chunk must start at record 0")
	}
	for i := 1; i < len(starts); i++ {
		if starts[i] <= starts[i-1] {
			return fmt.Errorf("order: chunk %d starts at record %d, which is not after record %d, where chunk %d starts", i, starts[i], starts[i-1], i-1)
		}
	}
	if total := starts[len(starts)-1]; total > MaxRecords {
		return fmt.Errorf("order: %d records are more than the %d that can be ordered", total, uint64(MaxRecords))
	}
	if uint64(len(starts)-1) > math.MaxUint32 {
		return fmt.Errorf("order: %d chunks are more than the %d that can be permuted: raise the chunk size", len(starts)-1, uint64(math.MaxUint32))
	}
	return nil
}

// checkPart rejects an order whose split and sample do not match part. A part is also allowed
// without these, for shards from which records are excluded (Keeper).
func checkPart(o spec.Order, starts []uint64, part *Part) error {
	parted := o.Split.Or() != spec.Split{} || o.Sample.Or() != spec.Subsample{}
	switch total := starts[len(starts)-1]; {
	case parted && part == nil:
		return fmt.Errorf("order: sample %s of the part %s has not been taken out of the dataset", o.Sample, o.Split.Part)
	case part != nil && part.Len() != total:
		return fmt.Errorf("order: chunks of %d records for a part of %d", total, part.Len())
	}
	return nil
}

// checkOrder rejects options for which ORDER.md defines no order. Limits on sizes that are a matter
// of policy are in package spec.
func checkOrder(o spec.Order) error {
	switch o.Shuffle {
	case spec.ShuffleNone, spec.ShuffleReservoir, spec.ShuffleBlock, spec.ShuffleFull:
	default:
		return fmt.Errorf("order: unknown shuffle %q", o.Shuffle)
	}
	switch {
	case o.Lanes < 1 || o.Lanes > spec.MaxLanes:
		return fmt.Errorf("order: lanes (%d) must be between 1 and %d", o.Lanes, spec.MaxLanes)
	case o.Groups < 1 || o.Lanes%o.Groups != 0:
		return fmt.Errorf("order: groups (%d) must divide lanes (%d)", o.Groups, o.Lanes)
	case o.Batch < 1 || o.Batch > maxOrderBatch:
		return fmt.Errorf("order: the order's batch (%d) must be between 1 and %d", o.Batch, uint64(maxOrderBatch))
	case o.Groups == 1 && o.Batch != 1:
		return fmt.Errorf("order: the order's batch (%d) must be 1 when groups is 1", o.Batch)
	}
	return nil
}

// maxOrderBatch is spec's bound on the batch; with spec.MaxLanes and spec.MaxWorkers it keeps
// products within 64 bits.
const maxOrderBatch = 1 << 32

// Len returns T, the number of records in the order.
func (e *Epoch) Len() uint64 { return e.total }

// Part returns NewEpoch's argument part; for an epoch of a mixture, Mixture.Part.
func (e *Epoch) Part() *Part {
	if e.part == nil {
		return e.whole
	}
	return e.part
}

// Number returns the epoch's number.
func (e *Epoch) Number() uint64 { return e.number }

// Phase returns the phase of the order's sample that the epoch has, 0 without a sample. Epochs of
// one order with the same phase have equal parts.
func (e *Epoch) Phase() uint64 { return e.phase }

// Cursor is a position in G. It must not be used concurrently.
type Cursor struct {
	epoch       *Epoch
	arrangement *arrangement // of walker
	walker      walker
	position    uint64
}

// Cursor returns a cursor at position p ≤ T.
func (e *Epoch) Cursor(p uint64) *Cursor {
	a := e.arrangement()
	c := &Cursor{epoch: e, arrangement: a, walker: a.start()}
	c.Seek(p)
	return c
}

// Next fills dst with the records from the cursor's position on, and moves the cursor past them. It
// returns fewer than len(dst) only at the end.
func (c *Cursor) Next(dst []uint64) int {
	n := min(uint64(len(dst)), c.epoch.total-c.position)
	if n == 0 {
		return 0
	}
	c.walker.next(c.position, dst[:n])
	c.epoch.part.Numbers(dst[:n])
	c.position += n
	return int(n)
}

// Seek moves to position p ≤ T: backwards from the nearest kept state, forwards from that state or
// from the current position.
func (c *Cursor) Seek(p uint64) {
	if p > c.epoch.total {
		panic(fmt.Sprintf("order: position %d is past the %d records of G", p, c.epoch.total))
	}
	if p == c.position {
		return
	}
	c.walker.seek(c.position, p)
	c.position = p
}

// markEvery is the number of permuted chunks between two marks of chunks.
const markEvery = 64

// chunks is S: the records of the permuted chunks, concatenated. Positions in S are counted in
// records.
type chunks struct {
	starts   []uint64 // first records of the chunks, and T at the end
	permuted []uint32
	marks    []uint64 // position in S of every markEvery-th permuted chunk
}

func newChunks(seed, epoch uint64, starts []uint64) *chunks {
	c := &chunks{starts: starts, permuted: make([]uint32, len(starts)-1)}
	for i := range c.permuted {
		c.permuted[i] = uint32(i)
	}
	permute(c.permuted, key("chunks", seed, epoch, 0), 0)
	c.marks = make([]uint64, 0, len(c.permuted)/markEvery+1)
	place := uint64(0)
	for i, chunk := range c.permuted {
		if i%markEvery == 0 {
			c.marks = append(c.marks, place)
		}
		place += starts[chunk+1] - starts[chunk]
	}
	return c
}

// run is a position in S and the records that a lane takes from there: first, the left-1 records
// after it, then rest more from the following chunks.
type run struct {
	first uint64
	left  uint64
	rest  uint64
	chunk uint32 // index into permuted of the next chunk
}

// at returns the run of n records at a position in S. n may be 0.
func (c *chunks) at(place, n uint64) run {
	if n == 0 {
		return run{}
	}
	mark := sort.Search(len(c.marks), func(i int) bool { return c.marks[i] > place }) - 1
	skip := place - c.marks[mark]
	r := run{chunk: uint32(mark * markEvery), rest: n}
	for {
		chunk := c.permuted[r.chunk]
		size := c.starts[chunk+1] - c.starts[chunk]
		r.chunk++
		if skip < size {
			r.first = c.starts[chunk] + skip
			r.left = min(size-skip, r.rest)
			r.rest -= r.left
			return r
		}
		skip -= size
	}
}

// refill starts the next chunk of a run whose left is 0. It returns false if the run has ended.
func (c *chunks) refill(r *run) bool {
	if r.rest == 0 {
		return false
	}
	chunk := c.permuted[r.chunk]
	r.chunk++
	r.first = c.starts[chunk]
	r.left = min(c.starts[chunk+1]-r.first, r.rest)
	r.rest -= r.left
	return true
}

// take moves the next records of a run to dst, which must not be longer than the run.
func take[S slot](c *chunks, r *run, dst []S) {
	for i := range dst {
		if r.left == 0 {
			c.refill(r)
		}
		dst[i] = S(r.first)
		r.first++
		r.left--
	}
}

// slot is a record number as stored in lanes: 32 bits if that suffices, because slots make up the
// memory and the cache misses of a shuffle.
type slot interface{ uint32 | uint64 }

const pageRecords = 1 << 14

// pageKey identifies a page of a sequence.
type pageKey struct {
	of   *sequence
	page uint64
}

// page is a part of a sequence of records. A caller that got the page may read records once filled
// is closed, even after the page left the cache.
type page struct {
	item
	key     pageKey
	records []uint64
	ready   bool // filled is closed; guarded by Memory.mu
	filled  chan struct{}
}

// sequence is what pages divide up: the remainder of a view (G′), or G.
type sequence struct {
	memory *Memory
	epoch  *Epoch
	levels []level
	// idle has the walkers that stand at the end of the page that they made, so that sequential
	// reads need no seek, the longest idle first. It is guarded by Memory.mu.
	idle []*item
}

// records returns the records of a page, which must not be modified. Each page is computed once, by
// the first caller that needs it, while callers for other pages continue.
func (s *sequence) records(number uint64) []uint64 {
	m, key := s.memory, pageKey{s, number}
	m.mu.Lock()
	at, ok := m.pages[key]
	if ok {
		m.touch(&at.item)
		ready := at.ready
		m.mu.Unlock()
		if !ready {
			<-at.filled
		}
		return at.records
	}
	at = &page{key: key, filled: make(chan struct{})}
	at.page, at.bytes = at, 8*pageRecords
	m.pages[key] = at
	m.link(&at.item)
	m.trim()
	m.mu.Unlock()

	m.turns <- struct{}{}
	at.records = s.compute(number)
	<-m.turns
	m.mu.Lock()
	at.ready = true
	m.mu.Unlock()
	close(at.filled)
	return at.records
}

// compute computes a page.
func (s *sequence) compute(number uint64) []uint64 {
	begin := number * pageRecords
	r := s.borrow(begin)
	r.seek(begin)
	records := make([]uint64, min(pageRecords, r.length-begin))
	r.fill(records)
	s.give(r)
	return records
}

// walkerBytes returns about how much memory a walker takes.
func (s *sequence) walkerBytes() int64 { return int64(s.epoch.bytes + 8*readerRecords) }

// borrow returns the walker that stands at begin; else a new one while there is memory; else the
// sequence's longest idle one. A walker in use is never returned.
func (s *sequence) borrow(begin uint64) *rest {
	if r := s.takeIdle(begin); r != nil {
		return r
	}
	return newRest(s.epoch, s.levels)
}

func (s *sequence) takeIdle(begin uint64) *rest {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.use(s.epoch)
	at := -1
	for i, it := range s.idle {
		if it.walker.next == begin {
			at = i
		}
	}
	if at < 0 && len(s.idle) > 0 && m.held+s.walkerBytes() > m.most {
		at = 0
	}
	if at < 0 {
		return nil
	}
	it := s.idle[at]
	m.drop(it)
	return it.walker
}

// give returns a walker to the cache, unless its arrangement has been dropped meanwhile.
func (s *sequence) give(r *rest) {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.source.cursor.arrangement != s.epoch.arranged.Load() {
		return
	}
	it := &item{bytes: s.walkerBytes(), walker: r, of: s}
	s.idle = append(s.idle, it)
	m.link(it)
	m.trim()
}

// CropKey returns the key of the draws that shift the crops of an array in an epoch. cube is the
// path of the array's shard.
func CropKey(seed, epoch uint64, cube string) uint64 {
	return key("crop", seed, epoch, 0) ^ bits.ReverseBytes64(ID(cube))
}

// CropDraw returns the i-th draw of a CropKey, scaled to 0 … n-1.
func CropDraw(k, i, n uint64) uint64 { return below(k, i, n) }
