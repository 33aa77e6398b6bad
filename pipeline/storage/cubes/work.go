package cubes

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

// Bounds of the reads of the storage below, but for one brick a worker.
const (
	leastInFlight    = 1 << 20
	mostInFlight     = 64 << 20
	inFlightOfMemory = 4 // a part of the memory
)

// inFlightBytes is the bound for a budget: the bytes that are under way lie beside what is kept, so
// little memory is not for many of them.
func inFlightBytes(memoryBytes int64) int64 {
	return min(max(memoryBytes/inFlightOfMemory, leastInFlight), mostInFlight)
}

// Bounds of a group: bricks of one object that a worker takes at a time.
const (
	groupBricks = 64
	groupBytes  = 1 << 20 // of decoded bricks, but for one
)

// task is a brick that is wanted.
type task struct {
	key
	batch  *batch // its memory
	object int64
	wants  []want
	first  [1]want // memory of wants

	// Of a read: what it is of, and what has come.
	listed storage.Object
	place  zarr.Place
	level  int // how many levels of shards have been looked up for it
	// begin and end are of the brick's bytes the ones that are read: all, where they are encoded.
	begin, end int64
	stored     []byte
	err        error
	missing    []int  // blocks that are wanted and not kept; nil where that is not known
	steps      *steps // of a long brick

	taken      []*cell // that it was decoded into, until they are kept
	firstTaken [1]*cell
}

// offset is where in the object what is read begins.
func (t *task) offset() int64 { return t.place.OffsetBytes + t.begin }

// size is how much is read.
func (t *task) size() int64 { return t.end - t.begin }

// job is what a worker does next: one of its fields is set.
type job struct {
	reading  *reading      // has been submitted
	decoded  []decodedWant // of one reading, whose bricks have been decoded
	group    []*task       // have been begun by nobody; of one object
	reserved int64         // by them
	taken    int64         // of the room, beside what the worker may hold
	came     *task         // its bytes have come
	index    *storedIndex  // has come
}

// worker is one of those who decode.
type worker struct {
	*Storage
	*buffers
	wanted []bool // blocks of a buffer

	group  []*task   // that are being begun
	reads  []*task   // of these, those that are read
	below  []*task   // and of these, those of which memory does not have the bytes
	made   []outcome // by bytes that were in memory
	opened []*opened

	mostOpened int
}

// work does jobs until the storage is closed, and nothing is under way.
func (s *Storage) work() {
	w := &worker{Storage: s, buffers: newBuffers(), mostOpened: mostOpened(runtime.GOMAXPROCS(0))}
	defer w.close()
	for {
		j, ok := s.next(w.group[:0])
		if !ok {
			return
		}
		w.fit(j.sizes(), s.each(), j.taken)
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
		if w.left(s.each(), j.taken); j.taken > 0 {
			s.room.give(j.taken)
		}
	}
}

func (w *worker) close() {
	w.buffers.close()
	for _, o := range w.opened {
		o.close()
	}
}

// wanted says whether anybody still wants a task's brick. It asks all: those who don't get nothing
// of it.
func (t *task) wanted() bool {
	wanted := false
	for i := range t.wants {
		wanted = t.wants[i].r.wanted() || wanted
	}
	return wanted
}

// finish ends a task, with an error or nil. It is no more then.
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

// copyDecoded copies what a reading wants of bricks that have been decoded: of one crop after the
// other, which then stays in the worker's cache until it is whole.
func (w *worker) copyDecoded(list []decodedWant) {
	r := list[0].want.r
	if r.wanted() {
		for _, x := range list {
			x.t.field.copier.Copy(x.want.crop, zarr.Window{Bytes: x.cell.slot.bytes, OffsetBytes: x.at}, &x.want.part)
		}
		w.hits.Add(uint64(len(list)))
	}
	w.cells.mu.Lock()
	for _, x := range list {
		w.cells.unpin(x.cell)
	}
	w.cells.mu.Unlock()
	for _, x := range list {
		x.t.batch.ended(1)
	}
	r.release(len(list))
}

// beginGroup does tasks, or as much of them as needs nothing.
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

// readGroup reads bricks of one object: those at once that are in memory. The others go on when
// they have come.
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

// cutRange says which of a brick's bytes are read: of what is stored as it is, those that are wanted.
func (t *task) cutRange() error {
	f, stored := t.field, t.place.SizeBytes
	if stored > zarr.Bound(f.brickBytes) || stored == 0 || f.Array.Chain.Raw() && stored != f.brickBytes {
		return fmt.Errorf("%d bytes are stored for a chunk of %d bytes", stored, f.brickBytes)
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

// absent is a brick of an object that was not there.
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

// fill gives all that want a brick the fill value.
func (t *task) fill() {
	for i := range t.wants {
		if !t.wants[i].r.calledOff() {
			t.field.copier.Fill(t.wants[i].crop, &t.wants[i].part)
		}
	}
	t.finish(nil)
}

// copy copies a brick to all that want it.
func (t *task) copy(brick zarr.Window) {
	for i := range t.wants {
		if !t.wants[i].r.calledOff() {
			t.field.copier.Copy(t.wants[i].crop, brick, &t.wants[i].part)
		}
	}
}

// read reads bricks of one object: what is in memory at once, else they go on when they have come.
func (w *worker) read(o *opened, reads []*task) {
	w.below = w.below[:0]
	if o.resident == nil {
		w.below = append(w.below, reads...)
	} else {
		w.readMemory(o, reads)
	}
	if len(w.below) == 0 {
		return
	}
	below, size := make([]*storage.Read, 0, len(w.below)), int64(0)
	for _, t := range w.below {
		t.batch.left.Add(1) // who reads below may still ask whether it is wanted: it is not used again
		if t.steps = nil; t.long(w.longBelow) {
			t.start(blockGapBelow)
			below = append(below, w.submitSteps(t)...)
			continue
		}
		t.stored = make([]byte, t.size())
		size += t.size()
		below = append(below, &storage.Read{Object: t.listed, OffsetBytes: t.offset(), Buf: t.stored, Wanted: t.wanted, Done: func(err error) {
			t.err = err
			w.Storage.push(job{came: t})
		}})
	}
	clear(w.below)
	w.sent(size)
	w.under.Submit(below)
}

// came goes on with a brick whose bytes have come.
func (w *worker) came(t *task) {
	if t.steps != nil {
		w.cameSteps(t)
		return
	}
	size := int64(len(t.stored))
	err := t.err
	if err == nil {
		err = w.decode(t, t.stored)
		w.keep(t, err == nil)
		w.storedBytes.Add(uint64(size))
	}
	t.stored = nil
	t.finish(err)
	w.returned(size)
}

// sent counts bytes that are asked of the storage below.
func (s *Storage) sent(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight += n
}

// returned counts them off, when nothing holds them any more.
func (s *Storage) returned(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight -= n
	s.some.Signal()
}

// decode decodes a brick, and copies it to all that want it. The cells that it was decoded into, if
// it was, are to be kept or not.
func (w *worker) decode(t *task, stored []byte) error {
	w.bricks.Add(1)
	f := t.field
	if f.Array.Chain.Raw() { // what is stored is the brick, and the page cache keeps it
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
	x := w.cells.take(t.key, f.brickBytes)
	var brick []byte
	if x != nil {
		t.taken = append(t.firstTaken[:0], x)
		brick = x.slot.bytes
	} else {
		var err error
		if brick, err = w.unkept.room(f.brickBytes); err != nil {
			return t.located(err)
		}
	}
	if err := w.decoder.Decode(brick, stored, f.Array.Chain); err != nil {
		return t.damaged(err)
	}
	t.copy(zarr.Window{Bytes: brick})
	return nil
}

// keep keeps the cells that a brick was decoded into, unless what it was decoded from was wrong.
func (w *worker) keep(t *task, right bool) {
	for i, x := range t.taken {
		if right {
			w.cells.add(x)
		}
		w.cells.release(x)
		t.taken[i] = nil
	}
	t.taken = t.taken[:0]
}

// damaged names the brick that an error is about.
func (t *task) damaged(err error) error {
	return fmt.Errorf("%w: "+copyAgain, t.located(err))
}

// copyAgain is what to do about a damaged file.
const copyAgain = "copy the file again, or write it again; lsiofs verify finds all damage"

// located is an error with the place of the brick.
func (t *task) located(err error) error {
	return fmt.Errorf("%s: chunk %s at [%d, %d): %w", t.listed.Path, numbersOf(t.wants[0].part.Brick), t.place.OffsetBytes, t.place.OffsetBytes+t.place.SizeBytes, err)
}

// numbersOf writes a place as (1,2,3).
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
