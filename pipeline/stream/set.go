package stream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/order"
)

// Kind is one of a worker's files.
type Kind uint8

const (
	Data    Kind = iota // prologue, records, epilogue
	IDs                 // 16 bytes per record
	Offsets             // n+1 little-endian uint64
	Crops               // an npy file: where each record was cut from; see Source.SetCrops
)

const (
	idBytes     = 16
	offsetBytes = 8
)

// ErrClosed is returned by calls that were waiting when the dataset closed.
var ErrClosed = errors.New("dataset is closed")

// Set has all files of one view. It is logically immutable, and safe for concurrent use.
type Set struct {
	source *Source
	view   *order.View
	shelf  Shelf // nil: layouts are not stored

	// begun, if set, is called when a data file is first opened.
	begun func()
	first sync.Once

	mu      sync.Mutex
	pending *pendingLayout // nil until the first caller, and after it was dropped
	used    atomic.Uint64  // laidOut.clock at the last use
}

// OnBegin sets f to be called when a data file of the set is first opened. f must not block.
// OnBegin must be called before the set is used by others.
func (s *Set) OnBegin(f func()) { s.begun = f }

// pendingLayout is a layout that is being computed, or has been.
type pendingLayout struct {
	done   chan struct{}
	layout *layout
	err    error

	// waiters is the number of waiting callers, guarded by Set.mu. left is closed when the last of
	// them leaves and no other caller needs the result.
	waiters int
	settled bool // it is computed to the end even without waiters
	left    chan struct{}
}

// View returns the view whose records are in the files.
func (s *Set) View() *order.View { return s.view }

// Workers returns the number of workers.
func (s *Set) Workers() uint64 { return s.view.Deal().Workers }

// SizeBytes returns the exact size of a file. The first call for data or offsets sweeps the order
// on all cores, unless an earlier run has stored the layout. The sweep takes about 40 ns of one
// core per record. If ctx ends first, the sweep usually continues for the next caller. The error
// may be ErrRetired.
func (s *Set) SizeBytes(ctx context.Context, w uint64, k Kind) (int64, error) {
	if !s.source.enter() {
		return 0, ErrRetired
	}
	defer s.source.leave()
	n := s.view.Count(w)
	if n > math.MaxInt64/idBytes-1 {
		return 0, fmt.Errorf("worker %d has %d records: too many for a file", w, n)
	}
	switch k {
	case IDs:
		return int64(n) * idBytes, nil
	case Offsets:
		return int64(n+1) * offsetBytes, nil
	case Crops:
		return s.source.crops.sizeBytes(n)
	}
	l, err := s.layout(ctx)
	if err != nil {
		return 0, err
	}
	return int64(len(s.source.prologue(n))) + l.bytes[w] + int64(len(s.source.epilogue(n))), nil
}

// WholeRecords returns the number of whole records of worker w before mark, an offset in bytes in
// its file of kind k. Padding is not counted. The error may be ErrRetired.
func (s *Set) WholeRecords(ctx context.Context, w uint64, k Kind, mark int64) (uint64, error) {
	if !s.source.enter() {
		return 0, ErrRetired
	}
	defer s.source.leave()
	if mark <= 0 {
		return 0, nil
	}
	own := s.view.Own(w)
	switch k {
	case IDs:
		return min(own, uint64(mark)/idBytes), nil
	case Offsets:
		return min(own, max(uint64(mark)/offsetBytes, 1)-1), nil
	case Crops:
		return min(own, s.source.crops.rowsBefore(s.view.Count(w), mark)), nil
	}
	l, err := s.layout(ctx)
	if err != nil {
		return 0, err
	}
	mark -= int64(len(s.source.prologue(s.view.Count(w))))
	if mark >= l.bytes[w] {
		return own, nil
	}
	if mark <= 0 {
		return 0, nil
	}
	wk := newWalker(s, w)
	wk.seek(l, mark)
	return min(own, wk.k), nil
}

// layout returns the layout, and computes it if it is not in memory.
func (s *Set) layout(ctx context.Context) (*layout, error) {
	s.used.Store(s.source.laidOut.clock.Load())
	s.mu.Lock()
	p := s.pending
	if p == nil {
		p = &pendingLayout{done: make(chan struct{}), left: make(chan struct{})}
		s.pending = p
		s.source.work.Go(func() { s.run(p) })
	}
	p.waiters++
	s.mu.Unlock()
	if isClosed(p.done) { // waiting for ctx may take a goroutine (fs)
		return p.layout, p.err
	}
	select {
	case <-p.done:
		return p.layout, p.err
	case <-ctx.Done():
		s.leave(p)
		return nil, ctx.Err()
	}
}

// leave removes a waiter. When the last one leaves, a computation that has not begun, or that is
// mostly padding, is stopped: otherwise clients that are gone could keep others waiting.
func (s *Set) leave(p *pendingLayout) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.waiters--
	if p.waiters > 0 || p.settled || s.pending != p {
		return
	}
	select {
	case <-p.done:
	default:
		s.pending = nil // the next caller starts again
		close(p.left)
	}
}

// settle makes the computation of p run to its end. It returns false if no caller waits for it any
// more.
func (s *Set) settle(p *pendingLayout) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.settled = s.pending == p
	return p.settled
}

// run obtains a layout and publishes it.
func (s *Set) run(p *pendingLayout) {
	computed := s.obtain(p)
	close(p.done)
	if p.err != nil {
		return
	}
	s.source.laidOut.add(s, p)
	if computed && s.shelf != nil {
		s.shelf.Save(p.layout.encode())
	}
}

// obtain loads the layout from the shelf, or computes it. It reports whether it was computed.
func (s *Set) obtain(p *pendingLayout) (computed bool) {
	if p.layout = s.stored(); p.layout != nil {
		return false
	}
	p.layout, p.err = computeLayout(s.source, s.view, p.left, func() bool { return s.settle(p) })
	return p.err == nil
}

// stored returns the layout from the shelf, or nil.
func (s *Set) stored() *layout {
	if s.shelf == nil {
		return nil
	}
	b := s.shelf.Load(encodedBytes(s.view))
	if b == nil {
		return nil
	}
	l, err := decodeLayout(b, s.view)
	if err != nil {
		return nil
	}
	return l
}
