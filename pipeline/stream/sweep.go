package stream

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// segmentStrides is the size of a segment in strides of the order. Starting a segment costs the
// replay of half a stride on average if records were consumed in the middle, and nothing otherwise.
const segmentStrides = 2

const (
	// shortPadding is how many padding records are swept like all others: as many as whole batches
	// for all workers usually take.
	shortPadding = 4 << 20
	// maxPadding bounds the padding of a view: laying it out takes a minute of one core, and 2 MiB.
	maxPadding = 1 << 30
)

// padding returns the number of padding records of a view.
func padding(v *order.View) uint64 { return v.Dealt() - min(v.Dealt(), v.Remaining()) }

// mostlyPadding reports whether a view takes much longer to lay out than its records do. Only
// clients that request many workers by name get one.
func mostlyPadding(v *order.View) bool { return padding(v) > max(shortPadding, v.Remaining()) }

// checkPadding rejects views with so much padding that laying them out would take far too long.
func checkPadding(v *order.View) error {
	if padding(v) <= maxPadding {
		return nil
	}
	d := v.Deal()
	return fmt.Errorf("batches of %d for each of %d workers would have %d records of padding after the %d of the dataset, more than %d: ask for fewer workers, or mount with a smaller --batch or with --tail keep",
		d.Batch, d.Workers, padding(v), v.Remaining(), uint64(maxPadding))
}

// computeLayout sweeps the view once, in segments, on all cores. A view that is mostly padding is
// swept on one core, concurrently with others, and stops when left is closed. While it waits for
// its turn, closing left stops it too; then begin is asked whether the layout is still needed.
func computeLayout(s *Source, v *order.View, left <-chan struct{}, begin func() bool) (*layout, error) {
	if err := checkPadding(v); err != nil {
		return nil, err
	}
	turn, stop, slow := s.turn, s.stopped, mostlyPadding(v)
	if slow {
		turn, begin = s.padding, nil
		stop = func() bool { return s.stopped() || isClosed(left) }
	}
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-left:
		return nil, ErrClosed
	case <-s.stop:
		return nil, ErrClosed
	}
	if begin != nil && !begin() {
		return nil, ErrClosed
	}
	defer v.Hold()()
	segment := s.segment
	switch {
	case slow || segment == 0 && s.cores == 1:
		segment = max(v.Dealt(), 1)
	case segment != 0:
	default:
		segment = segmentStrides * v.Epoch().Stride()
	}
	w := newSweep(s, v, segment, stop)
	if segment < v.Dealt() && !prepare(s, v.Epoch()) {
		return nil, ErrClosed
	}
	var g sync.WaitGroup
	for range min(uint64(s.cores), (v.Dealt()+segment-1)/segment) {
		g.Go(func() {
			defer s.computes()()
			w.run()
		})
	}
	g.Wait()
	if w.err != nil {
		return nil, w.err
	}
	return w.layout, nil
}

// computes counts the caller as working until it calls the returned function.
func (s *Source) computes() (end func()) {
	l := &s.meter.Working[meter.Order]
	l.Begin(meter.Now())
	return func() { l.End(meter.Now()) }
}

// prepare computes the states of an epoch, so that sweeps can start anywhere. It returns false if
// the source was closed.
func prepare(s *Source, e *order.Epoch) bool {
	parts := e.Prepare()
	var next atomic.Int64
	var g sync.WaitGroup
	for range min(s.cores, len(parts)) {
		g.Go(func() {
			defer s.computes()()
			for i := next.Add(1) - 1; i < int64(len(parts)); i = next.Add(1) - 1 {
				parts[i](s.stopped)
			}
		})
	}
	g.Wait()
	return !s.stopped()
}

// sweep computes a layout. Segments are measured concurrently, each by one goroutine, which then
// waits for its turn to merge it into the layout: so at most one measured segment per goroutine is
// in memory.
type sweep struct {
	source  *Source
	view    *order.View
	segment uint64      // records
	stop    func() bool // polled; true ends the sweep with ErrClosed

	mu     sync.Mutex
	next   uint64        // index of the first record that is not assigned to a goroutine
	merged chan struct{} // closed when the segment before next is in the layout

	// Owned by the goroutine whose turn it is:
	layout   *layout
	previous []uint64 // key hash of each worker's last record; nil without the equal-key rule
	err      error
}

func newSweep(s *Source, v *order.View, segment uint64, stop func() bool) *sweep {
	w := &sweep{source: s, view: v, segment: segment, stop: stop, layout: newLayout(v.Deal().Workers), merged: make(chan struct{})}
	close(w.merged)
	if s.renamer != nil {
		w.previous = make([]uint64, v.Deal().Workers)
	}
	return w
}

// run measures segments until none is left.
func (w *sweep) run() {
	m := newMeasure(w)
	for {
		w.mu.Lock()
		from, before, after := w.next, w.merged, make(chan struct{})
		to := min(from+w.segment, w.view.Dealt())
		w.next, w.merged = to, after
		w.mu.Unlock()

		var err error
		if from < to {
			err = m.measure(from, to)
		}
		<-before
		if w.err == nil {
			w.err = err
		}
		if w.err == nil && from < to {
			w.err = m.mergeInto(w)
		}
		end := w.err != nil || from == to
		close(after)
		if end {
			return
		}
	}
}

// measure is one segment of a sweep: what each worker gets in it. Offsets are relative to the
// worker's first record of the segment. Whether the equal-key rule applies to that record depends
// on what precedes the segment, so it is assumed not to apply, and corrected when segments are
// merged.
type measure struct {
	source  *Source
	view    *order.View
	stop    func() bool
	dealer  *dealer
	shares  []segmentShare // by worker
	samples []segmentSample
	renames bool

	sizes  []int64
	hashes []uint64
}

type segmentShare struct {
	bytes int64
	first uint64 // position of the segment's first record in the worker's stream
	// For the equal-key rule:
	record          uint64 // number of the first record
	hash, firstHash uint64 // of the last and of the first record
}

type segmentSample struct {
	w      uint64
	first  bool // it is the worker's first record of the segment
	offset int64
}

func newMeasure(w *sweep) *measure {
	return &measure{
		source: w.source, view: w.view, stop: w.stop, renames: w.previous != nil,
		dealer: newDealer(w.view), shares: make([]segmentShare, w.view.Deal().Workers),
	}
}

// measure measures the records with indices [from, to).
func (m *measure) measure(from, to uint64) error {
	m.dealer.seek(from)
	m.samples = m.samples[:0]
	for w := range m.shares {
		m.shares[w] = segmentShare{first: m.dealer.received[w]}
	}
	var err error
	m.view.Sweep(from, to, func(_ uint64, records []uint64) bool {
		if m.stop() {
			err = ErrClosed
		} else {
			err = m.add(records)
		}
		return err == nil
	})
	return err
}

// add measures the next records.
func (m *measure) add(records []uint64) error {
	m.sizes = resize(m.sizes, len(records))
	m.source.records.Sizes(records, m.sizes)
	if m.renames {
		m.hashes = resize(m.hashes, len(records))
		m.renames = m.source.records.KeyHashes(records, m.hashes)
	}
	for i, record := range records {
		w, k := m.dealer.next()
		share := &m.shares[w]
		size := m.sizes[i]
		if m.renames {
			switch hash := m.hashes[i]; {
			case k == share.first:
				share.record, share.firstHash, share.hash = record, hash, hash
			case share.hash == hash && hash != 0:
				size += m.source.records.Growth(record, k)
			default:
				share.hash = hash
			}
		}
		if k%sampleRecords == 0 {
			m.samples = append(m.samples, segmentSample{w: w, first: k == share.first, offset: share.bytes})
		}
		if size > maxStreamBytes-share.bytes {
			return errTooLarge(w)
		}
		share.bytes += size
	}
	return nil
}

func errTooLarge(w uint64) error {
	return fmt.Errorf("the stream of worker %d is larger than a file can be: use more workers", w)
}

// mergeInto appends the segment to the layout, which ends where the segment begins.
func (m *measure) mergeInto(s *sweep) error {
	l := s.layout
	growth := func(w uint64) int64 {
		share := &m.shares[w]
		if !m.renames || share.first == 0 || share.firstHash != s.previous[w] || share.firstHash == 0 {
			return 0
		}
		return m.source.records.Growth(share.record, share.first)
	}
	for _, at := range m.samples {
		offset := l.bytes[at.w] + at.offset
		if !at.first {
			offset += growth(at.w)
		}
		l.samples[at.w] = append(l.samples[at.w], offset)
	}
	for w := range m.shares {
		share := &m.shares[w]
		if m.dealer.received[w] == share.first {
			continue // no records in this segment
		}
		size := share.bytes + growth(uint64(w))
		if size < 0 || size > maxStreamBytes-l.bytes[w] {
			return errTooLarge(uint64(w))
		}
		l.bytes[w] += size
		if m.renames {
			s.previous[w] = share.hash
		}
	}
	return nil
}

// dealer returns the worker of each successive index of G′, as View.Owner does, without a division
// per index.
type dealer struct {
	view     *order.View
	deal     spec.Assignment
	w        uint64
	inBatch  uint64   // records of worker w's batch already assigned
	received []uint64 // by worker
}

func newDealer(v *order.View) *dealer {
	return &dealer{view: v, deal: v.Deal(), received: make([]uint64, v.Deal().Workers)}
}

// seek moves to index j, which is below Dealt.
func (d *dealer) seek(j uint64) {
	for w := range d.received {
		d.received[w] = d.view.CountBelow(uint64(w), j)
	}
	d.w, _ = d.view.Owner(j)
	d.inBatch = j % d.deal.Batch // irrelevant if records are assigned contiguously
}

// next returns the worker of the next index, and the record's position in that worker's stream.
func (d *dealer) next() (w, k uint64) {
	if d.deal.Dealing == spec.DealContiguous {
		for d.received[d.w] == d.view.Count(d.w) {
			d.w++
		}
	} else if d.inBatch == d.deal.Batch {
		d.inBatch = 0
		if d.w++; d.w == d.deal.Workers {
			d.w = 0
		}
	}
	w, k = d.w, d.received[d.w]
	d.received[w]++
	d.inBatch++
	return w, k
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
