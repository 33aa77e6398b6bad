package crops

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strconv"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// Bounds of the bytes being read from the storage below; each worker may exceed them by one chunk.
const (
	leastInFlight    = 1 << 20
	mostInFlight     = 64 << 20
	inFlightOfMemory = 4 // the fraction of the memory is 1/inFlightOfMemory
)

// inFlightBytes returns the bound for a memory budget: bytes under way come on top of the cache, so
// a small budget allows only few of them.
func inFlightBytes(memoryBytes int64) int64 {
	return min(max(memoryBytes/inFlightOfMemory, leastInFlight), mostInFlight)
}

// Bounds of a group: the chunks of one object that a worker takes at a time.
const (
	groupChunks = 64
	groupBytes  = 1 << 20 // decoded; one chunk may exceed it
)

// task is a chunk that is wanted.
type task struct {
	key
	batch  *batch // owns its memory
	object int64
	wants  []want  // grows, guarded by Storage.mu, while the task is in Storage.waiting or reading
	first  [1]want // memory for wants

	// The read: its object and place.
	listed storage.Object
	place  zarr.Place
	level  int // how many levels of shards have been looked up
	// begin and end are the range of the stored chunk to read: all of it if it is encoded.
	begin, end int64
	stored     []byte
	err        error
	missing    []int  // blocks that are wanted and not cached; nil if not known
	steps      *steps // if the chunk is long
	joined     bool   // wants of other tasks were added during the read; guarded by Storage.mu

	taken      []*cell // cells that it was decoded into, until keep
	firstTaken [1]*cell
}

// offset returns where in the object the range to read begins.
func (t *task) offset() int64 { return t.place.OffsetBytes + t.begin }

// size returns the length of the range to read.
func (t *task) size() int64 { return t.end - t.begin }

// job is what a worker does next: one of reading, decoded, group, came and index is set.
type job struct {
	reading  *reading      // has been submitted
	decoded  []decodedWant // wants of one reading whose chunks are cached
	group    []*task       // tasks of one object, not yet begun
	reserved int64         // bytes reserved for group
	taken    int64         // taken from the room, in addition to what the worker may hold
	came     *task         // its bytes have been read
	index    *storedIndex  // has been read
}

// worker is one of the goroutines that decode.
type worker struct {
	*Storage
	*buffers
	wanted []bool // blocks of a buffer

	group  []*task   // being begun
	reads  []*task   // those of group to read
	below  []*task   // those of reads whose bytes are not in memory
	made   []outcome // outcomes of reads from memory
	opened []*opened

	mostOpened int
}

// work does jobs until the storage is closed and nothing is under way.
func (s *Storage) work() {
	w := s.newWorker()
	defer w.close()
	for {
		j, ok := s.next(w.group[:0])
		if !ok {
			return
		}
		w.do(j)
	}
}

func (s *Storage) newWorker() *worker {
	return &worker{Storage: s, buffers: newBuffers(), mostOpened: mostOpened(runtime.GOMAXPROCS(0))}
}

// do does a job.
func (w *worker) do(j job) {
	w.fit(j.sizes(), w.each(), j.taken)
	switch {
	case j.reading != nil:
		j.reading.release(1)
	case j.decoded != nil:
		w.copyDecoded(j.decoded)
	case j.group != nil:
		w.group = j.group
		w.beginGroup(j.group)
		w.begun(j.reserved)
		clear(w.group)
	case j.came != nil:
		w.came(j.came)
	case j.index != nil:
		w.cameIndex(j.index)
	}
	if w.left(w.each(), j.taken); j.taken > 0 {
		w.room.give(j.taken)
	}
}

func (w *worker) close() {
	w.buffers.close()
	for _, o := range w.opened {
		o.close()
	}
}

// wanted reports whether any reading still wants a task's chunk. It asks each of them: those that
// don't are skipped when it is copied.
func (t *task) wanted() bool {
	wanted := false
	for i := range t.wants {
		wanted = t.wants[i].r.wanted() || wanted
	}
	return wanted
}

// finish ends a task with an error or nil. The caller must not use it afterwards.
func (t *task) finish(err error) {
	for i := range t.wants {
		r := t.wants[i].r
		if err != nil {
			r.fail(err)
		}
		r.release(1)
	}
	t.batch.ended(1)
}

// copyDecoded copies what a reading wants of cached chunks: one crop after the other, so that each
// stays in the worker's CPU cache until it is complete.
func (w *worker) copyDecoded(list []decodedWant) {
	r := list[0].want.r
	if r.wanted() {
		for _, x := range list {
			if w.config.dry == nil {
				x.t.field.copier.Copy(x.want.crop, zarr.Window{Bytes: x.cell.Bytes(), OffsetBytes: x.at}, &x.want.part)
			}
		}
		w.hits.Add(uint64(len(list)))
	}
	cells := w.cells.Lock()
	for _, x := range list {
		cells.Release(x.cell)
	}
	cells.Unlock()
	for _, x := range list {
		x.t.batch.ended(1)
	}
	r.release(len(list))
}

// beginGroup does tasks, as far as they need no read.
func (w *worker) beginGroup(group []*task) {
	w.reads = w.reads[:0]
	for _, t := range group {
		if !t.wanted() {
			t.finish(storage.ErrUnwanted)
			continue
		}
		if !w.copyKept(t) {
			w.reads = append(w.reads, t)
			continue
		}
		t.finish(nil)
	}
	if len(w.reads) > 0 {
		w.readGroup(w.reads)
		clear(w.reads)
	}
}

// readGroup reads chunks of one object: those in memory at once; the others continue when their
// reads complete.
func (w *worker) readGroup(group []*task) {
	o := w.open(object{group[0].field, group[0].object})
	reads := group[:0]
	for _, t := range group {
		t.listed = o.listed
		switch {
		case !o.present:
			w.absent(t)
			continue
		case !w.find(t, o):
			continue
		}
		if err := t.cutRange(); err != nil {
			t.finish(t.damaged(err))
			continue
		}
		if err := w.fits(t.field, t.size(), 0); err != nil {
			t.finish(t.located(err))
			continue
		}
		reads = append(reads, t)
	}
	if len(reads) > 0 {
		w.read(o, reads)
	}
}

// cutRange sets which of a chunk's stored bytes are read: only the wanted ones if it is stored
// uncompressed.
func (t *task) cutRange() error {
	f, stored := t.field, t.place.SizeBytes
	if stored > zarr.Bound(f.chunkBytes) || stored == 0 || f.Array.Chain.Raw() && stored != f.chunkBytes {
		return fmt.Errorf("%d bytes are stored for a chunk of %d bytes", stored, f.chunkBytes)
	}
	t.begin, t.end = 0, stored
	if !f.Array.Chain.Raw() {
		return nil
	}
	t.begin, t.end = stored, 0
	for i := range t.wants {
		begin, end := f.copier.Span(&t.wants[i].part)
		t.begin, t.end = min(t.begin, begin), max(t.end, end)
	}
	return nil
}

// absent completes a chunk of an object that was not listed.
func (w *worker) absent(t *task) {
	if !w.config.TrustAbsence {
		_, err := w.under.Stat(context.Background(), t.listed.Path)
		switch {
		case err == nil:
			t.finish(fmt.Errorf("%s was not there: %w", t.listed.Path, storage.ErrChanged))
			return
		case errors.Is(err, storage.ErrNoFile):
			t.finish(fmt.Errorf("%w: remove it, so that the chunk has the fill value, or write the array again", err))
			return
		case !errors.Is(err, fs.ErrNotExist):
			t.finish(err)
			return
		}
	}
	t.fill()
}

// fill copies the fill value to all wants.
func (t *task) fill() {
	for i := range t.wants {
		if t.wants[i].copies() {
			t.field.copier.Fill(t.wants[i].crop, &t.wants[i].part)
		}
	}
	t.finish(nil)
}

// copy copies a chunk to all wants.
func (t *task) copy(chunk zarr.Window) {
	for i := range t.wants {
		if t.wants[i].copies() {
			t.field.copier.Copy(t.wants[i].crop, chunk, &t.wants[i].part)
		}
	}
}

// read reads chunks of one object: those in memory at once; the others continue when their reads
// complete.
func (w *worker) read(o *opened, reads []*task) {
	w.below = w.below[:0]
	if o.resident == nil {
		w.below = append(w.below, reads...)
	} else {
		w.readMemory(o, reads)
	}
	if w.shareReads(); len(w.below) == 0 {
		return
	}
	below, size := make([]*storage.Read, 0, len(w.below)), int64(0)
	for _, t := range w.below {
		t.batch.left.Add(1) // the storage below may still call wanted after Done, so the batch is not reused
		if t.long(w.longBelow) {
			t.start(blockGapBelow)
			below = append(below, w.submitSteps(t)...)
			continue
		}
		t.stored = w.buffer(t.size())
		size += t.size()
		below = append(below, &storage.Read{Object: t.listed, OffsetBytes: t.offset(), Buf: t.stored, Wanted: func() bool { return w.Storage.wantedBelow(t) }, Done: func(err error) {
			t.err = err
			w.Storage.push(job{came: t})
		}})
	}
	clear(w.below)
	w.sent(size)
	w.under.Submit(below)
}

// shareReads leaves those tasks in w.below whose chunks are not being read for another task. What
// the others want is added to that one. Long chunks are read in parts, which are not shared.
func (w *worker) shareReads() {
	w.mu.Lock()
	defer w.mu.Unlock()
	own := w.below[:0]
	for _, t := range w.below {
		t.steps, t.joined = nil, false
		if !t.long(w.longBelow) {
			if r := w.reading[t.key]; r != nil && r.begin <= t.begin && t.end <= r.end {
				r.wants, r.joined = append(r.wants, t.wants...), true
				continue
			}
			w.reading[t.key] = t
		}
		own = append(own, t)
	}
	clear(w.below[len(own):])
	w.below = own
}

// wantedBelow is t.wanted for a task whose read may be shared.
func (s *Storage) wantedBelow(t *task) bool {
	s.mu.Lock()
	x := task{wants: t.wants}
	s.mu.Unlock()
	return x.wanted()
}

// endSharing makes what a task wants final, and reports whether anything was added during its read.
func (s *Storage) endSharing(t *task) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading[t.key] == t {
		delete(s.reading, t.key)
	}
	return t.joined
}

// came continues a chunk whose bytes have been read.
func (w *worker) came(t *task) {
	if t.steps != nil {
		w.cameSteps(t)
		return
	}
	size, err := int64(len(t.stored)), t.err
	joined := w.endSharing(t)
	switch {
	case err == nil && joined && w.copyKept(t): // sets t.missing for all that is wanted
	case err == nil:
		err = w.decode(t, t.stored)
		w.keep(t, err == nil)
		w.storedBytes.Add(uint64(size))
	case joined && errors.Is(err, storage.ErrUnwanted) && t.wanted(): // by a reading that came too late
		t.stored = nil
		w.again([]*task{t})
		w.returned(size)
		return
	}
	t.stored = nil
	t.finish(err)
	w.returned(size)
}

// sent adds to the bytes being read from the storage below.
func (s *Storage) sent(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight += n
}

// returned subtracts bytes that are no longer held.
func (s *Storage) returned(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight -= n
	s.some.Signal()
}

// decode decodes a chunk and copies it to all wants. The caller passes the cells that it was
// decoded into, if any, to keep.
func (w *worker) decode(t *task, stored []byte) error {
	w.chunks.Add(1)
	f := t.field
	if f.Array.Chain.Raw() { // the stored bytes are the chunk, and the page cache keeps them
		t.copy(zarr.Window{Bytes: stored, OffsetBytes: t.begin})
		return nil
	}
	switch done, err := w.blocks(t, stored); {
	case err != nil:
		return t.damaged(err)
	case done:
		return nil
	}
	if err := w.fitsBlocks(f, stored); err != nil {
		return t.located(err)
	}
	x := w.cells.Fill(t.key, f.chunkBytes)
	var chunk []byte
	if x != nil {
		t.taken = append(t.firstTaken[:0], x)
		chunk = x.Bytes()
	} else {
		var err error
		if chunk, err = w.unkept.room(f.chunkBytes); err != nil {
			return t.located(err)
		}
	}
	if w.config.dry == nil {
		if err := w.decoder.Decode(chunk, stored, f.Array.Chain); err != nil {
			return t.damaged(err)
		}
	}
	w.decodedBytes.Add(uint64(f.chunkBytes))
	t.copy(zarr.Window{Bytes: chunk})
	return nil
}

// keep caches the cells that a chunk was decoded into, unless the stored bytes were wrong.
func (w *worker) keep(t *task, right bool) {
	for i, x := range t.taken {
		w.cells.Filled(x, right)
		t.taken[i] = nil
	}
	t.taken = t.taken[:0]
}

// damaged adds the chunk's location, and advice, to an error.
func (t *task) damaged(err error) error {
	return fmt.Errorf("%w: "+copyAgain, t.located(err))
}

// copyAgain is the advice for a damaged file.
const copyAgain = "copy the file again, or write it again; lsiofs verify finds all damage"

// located adds the location of the chunk to an error.
func (t *task) located(err error) error {
	return fmt.Errorf("%s: chunk %s at [%d, %d): %w", t.listed.Path, numbersOf(t.wants[0].part.Chunk), t.place.OffsetBytes, t.place.OffsetBytes+t.place.SizeBytes, err)
}

// numbersOf formats a place as (1,2,3).
func numbersOf(place []int64) string {
	numbers := make([]string, len(place))
	for d, n := range place {
		numbers[d] = strconv.FormatInt(n, 10)
	}
	return "(" + strings.Join(numbers, ",") + ")"
}

// again puts tasks back into the queue.
func (s *Storage) again(list []*task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range list {
		if s.waiting[t.key] == nil {
			s.waiting[t.key] = t
		}
		s.tasks.push(t)
	}
	s.some.Broadcast()
}
