package stream

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/read"
)

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

// lender opens readers of record bytes; fetchLender adapts *read.Fetcher.
type lender interface {
	open(seq sequence) reader
}

type reader interface {
	Read(ctx context.Context, k uint64, n int, l *read.Loan) error
	Contiguous() bool
	Busy() bool
	Close()
}

type fetchLender func() (*read.Fetcher, error)

func (l fetchLender) open(seq sequence) reader {
	f, err := l()
	if err != nil {
		return unread{err}
	}
	e := seq.set.view.Epoch()
	return f.OpenPhase(seq, read.Subset{Number: e.Phase(), Part: e.Part()})
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
	guard         Guard // nil: what the source reads from stays open until it is closed
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

// Shelf stores the layout of one set from one run to the next. Its methods are called
// from goroutines of the source, and from Set.Ahead.
type Shelf interface {
	// Load returns the size bytes that Save stored, or nil.
	Load(size int) []byte
	Save(layout []byte)
}

// Set returns the files of a view. It does no work yet. shelf may be nil.
func (s *Source) Set(v *order.View, shelf Shelf) *Set { return &Set{source: s, view: v, shelf: shelf} }

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
