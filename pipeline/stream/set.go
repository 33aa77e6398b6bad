package stream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/read"
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
	shelf  *Shelf // nil: layouts are not stored

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

// records is what streams need of a catalog; *catalog.Catalog implements it.
type records interface {
	Extents(records []uint64, dst []catalog.Extent)
	Sizes(records []uint64, dst []int64)
	KeyHashes(records []uint64, dst []uint64) bool
	Growth(record, position uint64) int64
	Shard(i int) catalog.Shard
	Unpacker() format.Format
}

var _ records = (*catalog.Catalog)(nil)

// lender opens a reader of record bytes; fetchLender adapts *read.Fetcher.
type lender func(seq sequence) reader

type reader interface {
	Read(ctx context.Context, k uint64, n int, l *read.Loan) error
	Contiguous() bool
	Busy() bool
	Close()
}

func fetchLender(fetcher func() (*read.Fetcher, error)) lender {
	return func(seq sequence) reader {
		f, err := fetcher()
		if err != nil {
			return unread{err}
		}
		e := seq.set.view.Epoch()
		return f.OpenPhase(seq, read.Subset{Number: e.Phase(), Part: e.Part()})
	}
}

// unread is the reader of a dataset whose fetcher could not be started.
type unread struct{ err error }

func (u unread) Read(context.Context, uint64, int, *read.Loan) error { return u.err }
func (unread) Contiguous() bool                                      { return false }
func (unread) Busy() bool                                            { return false }
func (unread) Close()                                                {}

// Source makes the streams of a dataset from its catalog and its fetcher. It owns the buffers of
// replies. It is safe for concurrent use.
type Source struct {
	records   records
	lender    lender
	framer    format.Framer
	renamer   format.Renamer
	presenter format.Presenter // nil: streams have the records' bytes
	crops     crops            // the zero value: records are not crops
	buffers   *buffers
	meter     *meter.Meter
	cores     int           // CPUs that may be busy at once, read when the source was made
	opened    atomic.Uint64 // number of handles opened
	recent    recent
	holders   holders
	parking   parking
	kept      atomic.Int64 // bytes of renamed records and rows that walkers keep
	replies   sync.Pool    // *Reply, for filling parts of blocks
	waiters   sync.Pool    // *waiter, for waiting for them

	// Layouts are computed in goroutines that outlive callers that stop waiting; Close stops them
	// and waits.
	stop chan struct{}
	work sync.WaitGroup
	once sync.Once
	// turn is held by the layout that is being computed, which takes all cores. A layout that is
	// mostly padding takes one core, and holds padding.
	turn, padding chan struct{}
	laidOut       laidOut
	guard         Guard
	// segment is how many records one core sweeps at a time; 0 derives it from the order.
	segment uint64
}

// NewSource returns a source. fetcher returns the fetcher, which it starts if necessary; it is
// called for each handle of records. If it fails, so do the handle's reads. The caller keeps
// ownership of the catalog and the fetcher.
func NewSource(c *catalog.Catalog, m *meter.Meter, fetcher func() (*read.Fetcher, error)) *Source {
	s := newSource(c, fetchLender(fetcher))
	s.meter = m
	return s
}

func newSource(r records, l lender) *Source {
	s := &Source{records: r, lender: l, buffers: newBuffers(), meter: new(meter.Meter), cores: runtime.GOMAXPROCS(0), stop: make(chan struct{}), turn: make(chan struct{}, 1), padding: make(chan struct{}, 1)}
	s.recent.cores = s.cores
	s.replies.New = func() any { return new(Reply) }
	s.waiters.New = newWaiter
	s.framer, _ = r.Unpacker().(format.Framer)
	s.renamer, _ = r.Unpacker().(format.Renamer)
	if s.presenter, _ = r.Unpacker().(format.Presenter); s.presenter != nil {
		s.records = rows{r, int64(s.presenter.RowBytes())}
	}
	return s
}

// Close stops the computations of sets and waits for them. No handle may be in use.
func (s *Source) Close() {
	s.once.Do(func() { close(s.stop) })
	s.work.Wait()
	s.buffers.close()
}

// Shelf stores the layout of one set from one run to the next. Its functions are called
// from goroutines of the source, and from Set.Ahead.
type Shelf struct {
	// Load returns the size bytes that Save stored, or nil.
	Load func(size int) []byte
	Save func(layout []byte)
}

// Set returns the files of a view. It does no work yet. shelf may be nil.
func (s *Source) Set(v *order.View, shelf *Shelf) *Set { return &Set{source: s, view: v, shelf: shelf} }

// stopped reports whether Close was called.
func (s *Source) stopped() bool { return isClosed(s.stop) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (s *Source) prologue(n uint64) []byte {
	if s.framer == nil {
		return nil
	}
	return s.framer.Prologue(n)
}

func (s *Source) epilogue(n uint64) []byte {
	if s.framer == nil {
		return nil
	}
	return s.framer.Epilogue(n)
}

// Guard keeps what a source reads from open while something of the source is in use: an open
// handle, or a call of a set. Its functions may be called concurrently, and are not called for each
// read. The zero value guards nothing: what a source reads from stays open until it is closed.
type Guard struct {
	// Enter returns false if the guarded data is closed or about to be.
	Enter func() bool
	// Leave ends a successful Enter.
	Leave func()
}

// ErrRetired is returned by sets and handles whose source is closed or about to be. The caller may
// ask for the same set again.
var ErrRetired = errors.New("this set of shards is no longer open: ask for its files again")

// SetGuard sets the guard. It must be called before the first set is made.
func (s *Source) SetGuard(g Guard) { s.guard = g }

func (s *Source) enter() bool { return s.guard.Enter == nil || s.guard.Enter() }

func (s *Source) leave() {
	if s.guard.Leave != nil {
		s.guard.Leave()
	}
}
