package diskcache

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// fillPart starts to fetch the next part. It returns false if there is none, or if it has to wait:
// announced blocks that are not started come first, unless there is no room for them. So nothing is
// filled while the service is slower than its readers.
func (a *ahead) fillPart() bool {
	a.mu.Lock()
	if a.s.health.off.Load() {
		a.skipped, a.at = true, len(a.todo)
	}
	if a.at >= len(a.todo) && !a.goBack() {
		a.endFill()
		a.mu.Unlock()
		return false
	}
	if a.paused || a.parts >= fillDepth || !a.s.buffers.idle() || !a.s.health.writes() || a.plans.wait() && !a.full {
		a.mu.Unlock()
		return false
	}
	x, off := a.todo[a.at], a.off
	a.mu.Unlock()

	counts := a.s.keeper.counts.Load()
	n := min(fillPartBytes-(x.OffsetBytes+off)%pageBytes, x.SizeBytes-off)
	got := allBegun
	switch {
	case off == 0 && a.leavesOut(x):
		n = x.SizeBytes
	case n > 0:
		got = a.bring(x.Object, runOf(x.OffsetBytes+off, n), toFill, a.fills)
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at >= len(a.todo) || a.todo[a.at] != x || a.off != off {
		return true // another fill has begun
	}
	switch {
	case got != noRoom:
		a.skipped = a.skipped || got == notCached
		a.done = min(a.done+n, a.total)
		if a.off += n; a.off >= x.SizeBytes {
			a.at, a.off = a.at+1, 0
		}
		a.refused = 0
	case a.parts > 0 || a.s.room.busy() || a.s.room.waits(n):
		return false // what is in transit may take less than it has reserved, or the directory has to be counted: either of these wakes the goroutine
	case a.refused == 0:
		a.refused = counts + 1
		a.s.keeper.count() // there may be room when other processes' files are counted
		return false
	case counts > a.refused: // a count that began after that has ended
		a.skipped, a.at, a.refused = true, len(a.todo), 0
	default:
		a.s.keeper.count()
		return false
	}
	return true
}

// fills marks a flight as one of the fill.
func (a *ahead) fills(f *flight) {
	a.mu.Lock()
	a.parts++
	a.coming += f.pages.bytes()
	a.mu.Unlock()
	f.fill = true
	f.wants = func() bool { return a.ctx.Err() == nil }
	f.after = func() {
		a.mu.Lock()
		a.parts--
		a.coming -= f.pages.bytes()
		a.skipped = a.skipped || f.err != nil
		a.mu.Unlock()
	}
}

// endFill wakes everything that waits for the fill. a.mu is held.
func (a *ahead) endFill() {
	if a.parts > 0 {
		return
	}
	select {
	case <-a.ends:
	default:
		close(a.ends)
	}
}

// Range is a part of an object. The part after the object's end is left out: the newline of a last
// line may be missing there.
type Range struct {
	Object                 storage.Object
	OffsetBytes, SizeBytes int64
}

// Fill is FillRanges for whole objects.
func (s *Storage) Fill(objects []storage.Object) { s.FillRanges(whole(objects)) }

// whole returns the ranges that are all of some objects.
func whole(objects []storage.Object) []Range {
	ranges := make([]Range, len(objects))
	for i, o := range objects {
		ranges[i] = Range{o, 0, o.SizeBytes}
	}
	return ranges
}

// FillRanges fetches what is missing of parts of objects, in their order, in the background and
// after everything that is announced, as long as there is permanent room. It replaces what was to
// be filled before.
func (s *Storage) FillRanges(ranges []Range) { s.fillRanges(ranges, true, false) }

// fillRanges is FillRanges. If afresh is false, it continues counting what the fill could not write
// itself, so that a caller that fills again and again comes to an end. onceRead is for
// FillOnceRead.
func (s *Storage) fillRanges(ranges []Range, afresh, onceRead bool) {
	a := s.ahead
	ranges = slices.Clone(ranges)
	for i := range ranges {
		x := &ranges[i]
		x.SizeBytes = max(min(x.SizeBytes, x.Object.SizeBytes-x.OffsetBytes), 0)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.endFill()
	a.ranges, a.todo, a.at, a.off, a.done, a.total, a.skipped, a.refused = ranges, ranges, 0, 0, 0, 0, false, 0
	a.holes, a.lostOwn = nil, false
	a.onceRead, a.leftOut = onceRead, map[Range]key{}
	if afresh {
		a.again = 0
	}
	for i := range ranges {
		a.total += ranges[i].SizeBytes
	}
	a.reopen()
	a.poke()
}

// reopen notes that the fill has not ended. a.mu is held.
func (a *ahead) reopen() {
	select {
	case <-a.ends:
		a.ends = make(chan struct{})
	default:
	}
}

// FillOnceRead is Fill, but begins with the next read or hint: a dataset that is opened and not
// read is not fetched. It leaves out objects whose decoded form is complete in the cache.
func (s *Storage) FillOnceRead(objects []storage.Object) {
	s.PauseFill(true)
	ranges := whole(objects)
	s.ahead.mu.Lock()
	s.ahead.forgetDecoded(ranges)
	s.ahead.mu.Unlock()
	s.fillRanges(ranges, true, true)
	s.ahead.dormant.Store(true)
}

// read starts a fill that waits for a read.
func (a *ahead) read() {
	if a.dormant.Load() && a.dormant.Swap(false) {
		a.s.PauseFill(false)
	}
}

// PauseFill pauses the fill after the parts that are in transit, or resumes it.
func (s *Storage) PauseFill(pause bool) {
	s.ahead.mu.Lock()
	s.ahead.paused = pause
	s.ahead.mu.Unlock()
	s.ahead.poke()
}

// ErrNotFilled means that not all of what was to be filled is in the cache.
var ErrNotFilled = errors.New("not all of the dataset is in the cache: give it more room with --cache-size, or see the log")

// reserveError is ErrNotFilled if the reason is that the file system is down to its reserve.
type reserveError struct{ why string }

func (e *reserveError) Error() string        { return "not all of the dataset is in the cache: " + e.why }
func (e *reserveError) Is(target error) bool { return target == ErrNotFilled }

// notFilled returns ErrNotFilled, with the reason if that is the file system's reserve.
func (s *Storage) notFilled() error {
	if why := s.room.lacks(fillPartBytes); why != "" {
		return &reserveError{why}
	}
	return ErrNotFilled
}

// Warm waits for the end of the fill, and starts one that waits for a read. It fails with
// ErrNotFilled if not everything could be fetched, and with the context's error.
func (s *Storage) Warm(ctx context.Context) error {
	a := s.ahead
	a.read()
	for round := 0; round < warmRounds; {
		a.mu.Lock()
		ends := a.ends
		a.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.ctx.Done():
			return fs.ErrClosed
		case <-ends:
		}
		a.mu.Lock()
		ranges, skipped := a.ranges, a.skipped
		a.mu.Unlock()
		switch {
		case skipped:
			return s.notFilled()
		case s.holds(ranges):
			return nil
		}
		// A page could not be written, or another flight is fetching it: Warm waits for that,
		// however long it takes. What the fill itself can't write ends it (goBack).
		if !s.flying(ranges) {
			round++
		}
		select {
		case <-s.config.Clock.After(warmPause):
		case <-ctx.Done():
			return ctx.Err()
		case <-a.ctx.Done():
			return fs.ErrClosed
		}
		s.fillRanges(ranges, false, false)
	}
	return s.notFilled()
}

// warmRounds is how often Warm fills what is missing at the end of a fill while nothing else is in
// transit, and warmPause is how long it waits before it does.
const (
	warmRounds = 4
	warmPause  = 500 * time.Millisecond
)

// flying reports whether pages of the ranges are in transit.
func (s *Storage) flying(ranges []Range) bool {
	s.mu.Lock()
	var used []*object
	for i := range ranges {
		if o := s.objects[ranges[i].Object]; o != nil {
			s.use(o)
			used = append(used, o)
		}
	}
	s.mu.Unlock()
	any := false
	for _, o := range used {
		o.mu.Lock()
		any = any || len(o.flights) > 0
		o.mu.Unlock()
		s.release(o)
	}
	return any
}

// Holds returns how many of the objects are completely in the cache, by their sums.
func (s *Storage) Holds(objects []storage.Object) (n int) {
	for _, o := range objects {
		if o.SizeBytes == 0 || s.holdsRange(Range{Object: o, SizeBytes: o.SizeBytes}) {
			n++
		}
	}
	return n
}

// holds reports whether all pages of the ranges are in the cache, by their sums.
func (s *Storage) holds(ranges []Range) bool {
	for _, x := range ranges {
		if x.SizeBytes > 0 && !s.holdsRange(x) {
			return false
		}
	}
	return true
}

func (s *Storage) holdsRange(x Range) bool {
	if s.health.off.Load() || !s.begin(1) {
		return false
	}
	defer s.end()
	o := s.hold(x.Object)
	if o == nil {
		return false
	}
	defer s.release(o)
	files := s.opened(o, false)
	if files == nil {
		return false
	}
	all := runOf(x.OffsetBytes, x.SizeBytes)
	for begin := all.begin; begin < all.end; begin += sumsAtOnce {
		pages := run{begin, min(begin+sumsAtOnce, all.end)}
		sums := make([]byte, pages.pages()*sumBytes)
		if _, err := s.dir.disk.read(files.sums.FD(), sums, sumsAt(begin)); err != nil || len(missing(sums, begin, 0)) > 0 {
			return false
		}
	}
	return true
}

// Filled returns how many bytes of what is to be filled are in the cache or in transit, and the
// total.
func (s *Storage) Filled() (done, total int64) {
	s.ahead.mu.Lock()
	defer s.ahead.mu.Unlock()
	return s.ahead.done, s.ahead.total
}

// filled returns which fraction of what is to be filled is in the cache, 1 if nothing is to be
// filled. It does not count what is in transit.
func (a *ahead) filled() float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.total == 0 {
		return 1
	}
	return float64(max(a.done-a.coming, 0)) / float64(a.total)
}

const (
	// mostHoles is how many holes are remembered; if there are more, the fill looks at everything
	// again.
	mostHoles = 4096
	// mostAgain is how often a fill goes back for what it could not write itself.
	mostAgain = 4
)

// lost notes a flight whose pages are not in the cache: they are not wanted any more, or could not
// be written. A fill that has skipped them, because they were in transit, comes back for them at
// its end.
func (a *ahead) lost(f *flight) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.ranges) == 0 || a.skipped {
		return
	}
	a.lostOwn = a.lostOwn || f.fill
	if len(a.holes) >= mostHoles || len(a.holes) > 0 && &a.holes[0] == &a.ranges[0] {
		a.holes = a.ranges
		return
	}
	off := f.pages.begin * pageBytes
	a.holes = append(a.holes, Range{f.object.listed, off, min(f.pages.bytes(), f.object.sizeBytes-off)})
}

// goBack makes the fill continue with what was lost, at its end. It returns false if nothing was
// lost, or if trying again is useless: there was no room, or the fill keeps losing what it fetches.
// a.mu is held.
func (a *ahead) goBack() bool {
	if a.skipped || len(a.holes) == 0 {
		return false
	}
	if a.lostOwn {
		if a.again++; a.again > mostAgain {
			a.skipped, a.holes = true, nil
			return false
		}
	}
	a.todo, a.at, a.off, a.holes, a.lostOwn = a.holes, 0, 0, nil, false
	for i := range a.todo {
		a.done -= a.todo[i].SizeBytes
	}
	a.done = max(a.done, 0)
	return true
}
