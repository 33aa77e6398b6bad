package fs

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// workerMark is the mark of one worker file in a view, and what status reports about its readers.
// It is safe for concurrent use.
type workerMark struct {
	mu sync.Mutex
	mark
	// counted is the number of whole records before countedBytes, the mark when it was last
	// counted.
	countedBytes int64
	counted      uint64

	// leaving is non-nil after a descriptor of the reader was closed, and is closed once the reader
	// reads again or is gone.
	leaving chan struct{}
	last    lastReader
	// onlooker has read where a reader would, most recently, but its user does not count.
	onlooker *onlooker
	// passed is an open handle that has read from the front and beyond the mark, but does not move
	// it, because it was not the reader; passing is its process.
	passed  *streamHandle
	passing process
}

// lastReader is the reader that is open, or was open last.
type lastReader struct {
	process
	// start and end are those of the read that went furthest.
	start, end int64
}

// leavingFor is how long a program that reads from the front waits for the last reader's release,
// if that reader has closed a descriptor. The kernel sends a release after close() has returned, so
// the next program's first reads may come before it. If no release comes, another descriptor (dup,
// fork) keeps the reader open.
const leavingFor = time.Second

func (v *view) markOf(h *streamHandle) *workerMark { return &v.marks[h.node.name.worker] }

// begin records that a read of a worker's data has begun.
func (v *view) begin(h *streamHandle) {
	m := v.markOf(h)
	m.mu.Lock()
	h.progress.begin()
	if m.reader == &h.progress {
		m.settle()
	}
	m.mu.Unlock()
}

// settle wakes those that wait for news of the reader. The caller must hold mu.
func (m *workerMark) settle() {
	if m.leaving != nil {
		close(m.leaving)
		m.leaving = nil
	}
}

// failed records that a read was sent nothing.
func (v *view) failed(h *streamHandle) {
	m := v.markOf(h)
	m.mu.Lock()
	h.progress.ended(0)
	m.mu.Unlock()
}

// awaitRelease waits if a read of [off, end) would make h the reader once the last one is gone, and
// that one has closed a descriptor.
func (v *view) awaitRelease(ctx context.Context, h *streamHandle, off, end int64) {
	m := v.markOf(h)
	m.mu.Lock()
	leaving := m.leaving
	if !h.counts || m.reader == &h.progress || !m.takes(&h.progress, off, end, h.begins) {
		leaving = nil
	}
	m.mu.Unlock()
	if leaving == nil {
		return
	}
	late := time.NewTimer(leavingFor)
	defer late.Stop()
	select {
	case <-leaving:
	case <-ctx.Done():
	case <-late.C:
		m.mu.Lock()
		if m.leaving == leaving {
			m.settle() // the reader stays: nothing else needs to wait
		}
		m.mu.Unlock()
	}
}

// sent records that a read by thread was sent the bytes [off, end) through h.
func (v *view) sent(h *streamHandle, thread uint32, off, end int64) {
	m := v.markOf(h)
	m.mu.Lock()
	before := m.bytes()
	var uncounted, behind, passes bool
	var by process
	switch p := &h.progress; {
	case !h.counts:
		p.ended(end)
		if uncounted = m.covers(off, end) || m.reader == nil && off <= h.begins; uncounted {
			m.onlooker = &onlooker{UID: h.uid, PID: h.pid}
		}
	case m.took(p, off, end, h.begins):
		if behind = p.end < m.furthest; m.passed == h {
			m.passed = nil
		}
		by = h.reads(thread)
		m.last.process = by
		fallthrough
	case m.reader == p:
		m.last.start, m.last.end = p.last, p.end
	case p.started && p.end > m.bytes() && m.passed != h:
		by = h.reads(thread)
		m.passed, m.passing = h, by
		passes = m.reader == nil
	}
	moved := m.bytes() != before
	m.mu.Unlock()
	if moved {
		v.moved.Store(time.Now().UnixNano())
		v.movedClock.Store(meter.Now())
	}
	switch {
	case uncounted:
		h.t.readers.tell(h)
	case behind:
		h.t.readers.tellMark(slog.LevelInfo, h, by, "a worker file is read again from the start: its checkpoint counts the records of this reader while it has the file open")
	case passes:
		h.t.readers.tellMark(slog.LevelWarn, h, by, "the checkpoint does not count what this program reads, because another program was already reading the file: let it open the file again")
	}
}

// took records what p was sent, and reports whether that made it the reader.
func (m *workerMark) took(p *progress, off, end, begins int64) bool {
	before := m.reader
	m.mark.sent(p, off, end, begins)
	return m.reader == p && before != p
}

// flushed records that a descriptor of h has been closed, perhaps the last.
func (v *view) flushed(h *streamHandle) {
	m := v.markOf(h)
	m.mu.Lock()
	if m.reader == &h.progress && m.leaving == nil {
		m.leaving = make(chan struct{})
	}
	m.mu.Unlock()
}

func (v *view) closed(h *streamHandle) {
	m := v.markOf(h)
	m.mu.Lock()
	if m.reader == &h.progress {
		m.settle()
	}
	m.mark.closed(&h.progress)
	if m.passed == h {
		m.passed = nil
	}
	m.mu.Unlock()
}

// markNow is the state of a mark.
type markNow struct {
	bytes, furthest int64
	open            bool // there is a reader
	last            lastReader
	onlooker        *onlooker
	passing         *process // has read beyond the mark, up to passingEnd
	passingEnd      int64
}

// mark is the state of the mark of worker w's file.
func (v *view) mark(w uint64) markNow {
	m := &v.marks[w]
	m.mu.Lock()
	defer m.mu.Unlock()
	now := markNow{bytes: m.bytes(), furthest: m.furthest, open: m.reader != nil, last: m.last, onlooker: m.onlooker}
	if m.passed != nil && m.passed.progress.end > now.bytes {
		passing := m.passing
		now.passing, now.passingEnd = &passing, m.passed.progress.end
	}
	return now
}

// delivered returns how many whole records were delivered from each worker file.
func (v *view) delivered(ctx context.Context) ([]uint64, error) {
	counts := make([]uint64, v.workers)
	for w := range counts {
		var err error
		if counts[w], err = v.count(ctx, uint64(w)); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// count is worker w's part of delivered. Counting walks over records, up to a few thousand, so the
// count of a mark that has not moved is kept.
func (v *view) count(ctx context.Context, w uint64) (uint64, error) {
	m := &v.marks[w]
	m.mu.Lock()
	bytes := m.bytes()
	counted, known := m.counted, m.countedBytes == bytes
	m.mu.Unlock()
	if known {
		return counted, nil
	}
	n, err := v.files.WholeRecords(ctx, w, stream.Data, bytes)
	if err != nil {
		return 0, err
	}
	m.mu.Lock()
	m.countedBytes, m.counted = bytes, n
	m.mu.Unlock()
	return n, nil
}

// mark is how far a worker file has been delivered, in bytes, and to which reader. The zero value
// is the state at a restore. It is pure, and not for concurrent use.
//
//	                a read from the front, or across the furthest end
//	no reader: ──────────────────────────────────────────────────────► reader p:
//	the furthest end                                                   the furthest end
//	of all readers  ◄──────────────────── p is closed ──────────────── that p was sent
//
// So a program that looks at a file before the training (md5sum, tar t, a file manager) does not
// make checkpoints skip untrained records; one that looks while the training has the file open
// moves nothing; and one that looks later can't move the mark back for good.
//
// A read is from the front if it starts at or before the first record. It goes across an end if it
// starts at or before it and ends after it. So a program that looks at a file's middle or end is
// not a reader, and one that goes through it from the front is, even if it skips parts (as tar
// does).
//
// If a second program reads from the front while a first one is the reader, and the first one
// closes the file, it is unknown which of them trains. The second one becomes the reader when it
// reads on, if it is behind the first: better to deliver a record twice than to skip one. If it is
// ahead, the mark stays.
//
// A program that makes several reads at once (threads, io_uring) may get the later ones first: the
// read that makes it the reader also counts those that were in flight with it.
type mark struct {
	furthest int64     // of what readers were sent since the restore
	reader   *progress // nil if none is open
}

// progress is what was sent of a worker file through one handle. The zero value is that of a handle
// that has read nothing.
type progress struct {
	// end is the furthest end of what was sent since the handle read from the front, or became the
	// reader. It means nothing until started.
	started bool
	end     int64
	// last is the start of the read that ended at end.
	last int64

	underWay int   // reads in flight
	flown    int64 // the furthest end that was sent since none was in flight
}

// bytes is the mark.
func (m *mark) bytes() int64 {
	if m.reader != nil {
		return m.reader.end
	}
	return m.furthest
}

// takes reports whether a read of [off, end) makes p the reader if no reader is open. begins is the
// offset of the file's first record.
func (m *mark) takes(p *progress, off, end, begins int64) bool {
	return off <= begins || m.covers(off, end) || p.started && p.end <= m.furthest && end <= m.furthest
}

// covers reports whether [off, end) goes across the furthest end.
func (m *mark) covers(off, end int64) bool { return off <= m.furthest && end > m.furthest }

// sent records that p was sent the bytes [off, end), by a read that had called begin.
func (m *mark) sent(p *progress, off, end, begins int64) {
	flown := p.ended(end)
	if m.reader != p {
		free := m.reader == nil
		took := free && m.takes(p, off, end, begins)
		if off <= begins || took && m.covers(off, end) {
			p.started, p.end = true, 0
		}
		if took {
			m.reader = p
		}
	}
	if p.started && flown > p.end {
		p.end, p.last = flown, off
	}
	if m.reader == p {
		m.furthest = max(m.furthest, p.end)
	}
}

// closed records that the handle of p has been closed.
func (m *mark) closed(p *progress) {
	if m.reader == p {
		m.reader = nil
	}
}

// begin records that a read has begun.
func (p *progress) begin() {
	if p.underWay == 0 {
		p.flown = 0
	}
	p.underWay++
}

// ended records that a read has ended at end (0: it failed and sent nothing), and returns the
// furthest end of those that were in flight with it.
func (p *progress) ended(end int64) int64 {
	p.underWay--
	p.flown = max(p.flown, end)
	return p.flown
}
