package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
	"weak"

	"github.com/lsiofs/lsiofs/pipeline/order"
)

// sampleRecords is the distance between the records whose offsets a layout stores: a seek walks
// over half of it on average, in about 60 µs.
const sampleRecords = 4096

// maxStreamBytes bounds the total size of a worker's records: together with prologue and epilogue
// it must fit into a file offset.
const maxStreamBytes = math.MaxInt64 / 2

// layout has the sizes and sampled offsets of the workers' streams. Offsets count from the end of
// the prologue.
type layout struct {
	bytes   []int64   // total size of each worker's records, after the equal-key rule
	samples [][]int64 // samples[w][i]: offset of record i·sampleRecords of worker w
}

func newLayout(workers uint64) *layout {
	return &layout{bytes: make([]int64, workers), samples: make([][]int64, workers)}
}

// memoryBytes returns the memory that the layout takes.
func (l *layout) memoryBytes() int64 {
	n := int64(len(l.bytes)) * int64(unsafe.Sizeof(l.bytes[0])+unsafe.Sizeof(l.samples[0]))
	for _, s := range l.samples {
		n += int64(cap(s)) * 8
	}
	return n
}

// samplesOf returns the number of samples of worker w.
func samplesOf(v *order.View, w uint64) uint64 {
	return (v.Count(w) + sampleRecords - 1) / sampleRecords
}

// encodedBytes returns the size of the encoded layout of a view.
func encodedBytes(v *order.View) int {
	n := 1 + v.Deal().Workers
	for w := range v.Deal().Workers {
		n += samplesOf(v, w)
	}
	return int(8 * n)
}

// encode returns the layout as bytes: sampleRecords, and for each worker its size and its samples,
// all u64, little-endian.
func (l *layout) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, sampleRecords)
	for w, size := range l.bytes {
		b = binary.LittleEndian.AppendUint64(b, uint64(size))
		for _, s := range l.samples[w] {
			b = binary.LittleEndian.AppendUint64(b, uint64(s))
		}
	}
	return b
}

var errNotALayout = errors.New("not the layout of these streams")

// decodeLayout decodes what encode made of a layout of the same view. It returns an error for bytes
// that can't be such a layout.
func decodeLayout(b []byte, v *order.View) (*layout, error) {
	if len(b) != encodedBytes(v) {
		return nil, fmt.Errorf("%w: %d bytes, not %d", errNotALayout, len(b), encodedBytes(v))
	}
	next := func() int64 {
		n := int64(binary.LittleEndian.Uint64(b))
		b = b[8:]
		return n
	}
	if next() != sampleRecords {
		return nil, fmt.Errorf("%w: it has other samples", errNotALayout)
	}
	l := newLayout(v.Deal().Workers)
	for w := range l.bytes {
		l.bytes[w] = next()
		l.samples[w] = make([]int64, samplesOf(v, uint64(w)))
		last := int64(0)
		for i := range l.samples[w] {
			s := next()
			if s < last || i == 0 && s != 0 {
				return nil, fmt.Errorf("%w: samples do not ascend", errNotALayout)
			}
			l.samples[w][i], last = s, s
		}
		if l.bytes[w] < last || l.bytes[w] > maxStreamBytes || len(l.samples[w]) == 0 && l.bytes[w] != 0 {
			return nil, fmt.Errorf("%w: %d bytes can't be", errNotALayout, l.bytes[w])
		}
	}
	return l, nil
}

const (
	// laidOutBytes bounds the layouts in memory. The layout of 10⁸ records takes 200 KiB, plus 32
	// bytes per worker. A dropped layout is loaded from the shelf or computed again.
	laidOutBytes = 8 << 20
	// leastLaidOut is the number of layouts that stay whatever they take: of the epoch that is
	// read, of the next one, and of two more.
	leastLaidOut = 4
)

// laidOut counts the layouts in memory, a bounded number. The least recently used layout is dropped
// first. It does not keep the sets: a set that nothing else uses is freed with its layout, because
// together they take many times what a small layout does.
type laidOut struct {
	clock atomic.Uint64 // number of layouts added so far

	mu    sync.Mutex
	list  []laidOutSet
	bytes int64
	clean int // at this length of list, entries of sets that are gone are removed
}

type laidOutSet struct {
	set    weak.Pointer[Set]
	layout weak.Pointer[pendingLayout]
	bytes  int64
}

// used returns when the layout was last used, 0 if its set is gone.
func (x laidOutSet) used() uint64 {
	if s := x.set.Value(); s != nil {
		return s.used.Load()
	}
	return 0
}

// leastCleaned is the shortest list that is searched for sets that are gone.
const leastCleaned = 64

// add records that a set has its layout.
func (l *laidOut) add(s *Set, p *pendingLayout) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.used.Store(l.clock.Add(1))
	x := laidOutSet{weak.Make(s), weak.Make(p), p.layout.memoryBytes()}
	l.list = append(l.list, x)
	l.bytes += x.bytes
	if l.bytes > laidOutBytes || len(l.list) >= max(l.clean, leastCleaned) {
		l.forgetUnused()
	}
	for l.bytes > laidOutBytes && len(l.list) > leastLaidOut {
		oldest := 0
		for i, o := range l.list {
			if o.used() < l.list[oldest].used() {
				oldest = i
			}
		}
		o := l.list[oldest]
		l.list = slices.Delete(l.list, oldest, oldest+1)
		l.bytes -= o.bytes
		if set := o.set.Value(); set != nil {
			set.drop(o.layout.Value())
		}
	}
}

// forgetUnused removes the entries of sets that are gone.
func (l *laidOut) forgetUnused() {
	l.list = slices.DeleteFunc(l.list, func(x laidOutSet) bool {
		gone := x.set.Value() == nil
		if gone {
			l.bytes -= x.bytes
		}
		return gone
	})
	l.clean = 2 * len(l.list)
}

// drop forgets a layout. Callers that hold it keep using it.
func (s *Set) drop(p *pendingLayout) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p != nil && s.pending == p {
		s.pending = nil
	}
}

// Ahead computes the set's layout before it is needed, in the caller's goroutine alone, and stores
// it. It calls goOn about every 50 µs of work; goOn may block, and so controls how much of a core
// this takes.
//
// It stops early if goOn returns false, if the source closes, or if a reader asks for the layout
// meanwhile. That reader computes the layout on all cores, without waiting for Ahead.
func (s *Set) Ahead(goOn func() bool) {
	stop := func() bool { return s.source.stopped() || s.asked() || !goOn() }
	if stop() || checkPadding(s.view) != nil {
		return
	}
	l, computed := s.stored(), false
	if l == nil {
		// One sweep from the first record to the last passes through all states of the epoch, and
		// keeps them.
		w := newSweep(s.source, s.view, max(s.view.Dealt(), 1), stop)
		if w.run(); w.err != nil {
			return // a caller that needs the layout gets the same error, or none
		}
		l, computed = w.layout, true
	}
	s.keep(l)
	if computed && s.shelf != nil {
		s.shelf.Save(l.encode())
	}
}

// asked reports whether a caller has asked for the layout.
func (s *Set) asked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending != nil
}

// keep makes l the layout that later callers get.
func (s *Set) keep(l *layout) {
	p := &pendingLayout{done: make(chan struct{}), layout: l}
	close(p.done)
	s.mu.Lock()
	asked := s.pending != nil
	if !asked {
		s.pending = p
	}
	s.mu.Unlock()
	if !asked {
		s.source.laidOut.add(s, p)
	}
}
