package order

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// MaxRecords bounds T, so that T times the number of workers fits 64 bits.
const MaxRecords = 1 << 47

// Epoch is the global order G of one epoch. It appears immutable to its users, and is
// safe for concurrent use.
//
// It keeps the states of the reservoirs at regular positions, from which a short replay
// reaches any position. These states take about a quarter of a byte a record once all of
// G has been visited, Prepare has computed them, or RestoreStates has loaded them.
type Epoch struct {
	order  spec.Order
	number uint64
	total  uint64
	part   *Part  // turns what walkers make into records
	whole  *Part  // of a mixture: what a split leaves of all sources
	phase  uint64 // of the sample
	bytes  uint64 // what a walker takes, about
	// stride is the distance of positions that are cheap to begin at, once
	// their states are kept.
	stride uint64

	// arrange makes an arrangement. nil where there is nothing to make, and
	// arranged is always there. Else that may be dropped, and is made again.
	arrange  func() *arrangement
	making   sync.Mutex
	arranged atomic.Pointer[arrangement]
	holds    atomic.Int64 // while it is above 0 nobody drops it
}

// arrangement is what walkers go by, and share: the permuted chunks, and the
// states that are kept.
type arrangement struct {
	start  func() walker // a walker at position 0
	states states        // nil where the shuffle has none
}

// arranges says whether the epoch has an arrangement that is worth dropping.
func (e *Epoch) arranges() bool { return e.arrange != nil }

// arrangement gives what walkers go by, made again where it has been dropped.
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

// Hold keeps the epoch's computed states from being dropped by a Memory until release is
// called, once.
func (e *Epoch) Hold() (release func()) {
	e.holds.Add(1)
	return func() { e.holds.Add(-1) }
}

// walker makes the records of G, by their ranks in what is left of the dataset;
// it does not know where it is.
type walker interface {
	// next fills dst with the records at p and following; there are that many.
	next(p uint64, dst []uint64)
	// seek moves from one position to another.
	seek(from, to uint64)
}

// NewEpoch makes the order of epoch. starts are the first records of the chunks,
// ascending, followed by T. It is kept and must not change. With a split or a sample, part
// is the selected records of this epoch (NewPart), and starts comes from Part.Starts; else
// part is nil. Options that
// ORDER.md does not allow, or starts that do not ascend from 0, are errors.
//
// It permutes the chunks, which takes about 10 ns and 4 bytes a chunk.
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

// shuffled makes e's walkers go through lanes.
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

// checkPart refuses an order whose split and sample are not those of part. Without these there may
// be a part as well: of shards of which something is left out (Keeper).
func checkPart(o spec.Order, starts []uint64, part *Part) error {
	parted := o.Split.Or() != spec.Split{} || o.Sample.Or() != spec.Sample{}
	switch total := starts[len(starts)-1]; {
	case parted && part == nil:
		return fmt.Errorf("order: sample %s of the part %s has not been taken out of the dataset", o.Sample, o.Split.Part)
	case part != nil && part.Len() != total:
		return fmt.Errorf("order: chunks of %d records for a part of %d", total, part.Len())
	}
	return nil
}

// checkOrder refuses what ORDER.md can't mean. Bounds of sizes that are a
// matter of taste are spec's.
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

// maxOrderBatch is spec's bound of the batch; with spec.MaxLanes and
// spec.MaxWorkers it keeps products within 64 bits.
const maxOrderBatch = 1 << 32

// Len is T, the number of records in the order.
func (e *Epoch) Len() uint64 { return e.total }

// Part is NewEpoch's argument part; of a mixture's epoch, Mixture.Part.
func (e *Epoch) Part() *Part {
	if e.part == nil {
		return e.whole
	}
	return e.part
}

// Number is the epoch's number.
func (e *Epoch) Number() uint64 { return e.number }

// Phase is which phase of the order's sample the epoch has, 0 without one. Epochs of one
// order and one phase have equal parts.
func (e *Epoch) Phase() uint64 { return e.phase }

// Cursor is a position in G. It is not for concurrent use.
type Cursor struct {
	epoch       *Epoch
	arrangement *arrangement // of walker
	walker      walker
	position    uint64
}

// Cursor gives a cursor at position p ≤ T.
func (e *Epoch) Cursor(p uint64) *Cursor {
	a := e.arrangement()
	c := &Cursor{epoch: e, arrangement: a, walker: a.start()}
	c.Seek(p)
	return c
}

// Next fills dst with the records from the cursor's position on, and moves the cursor
// behind them. It returns fewer than len(dst) only at the end.
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

// Seek moves to position p ≤ T: backwards from the nearest kept state, forwards from
// that state or from where the cursor is.
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
