package cubes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
	"github.com/lsiofs/lsiofs/pipeline/zarr/blosc"
	"github.com/lsiofs/lsiofs/pipeline/zarr/codec"
)

// inFlightBytes bounds the reads of the storage below, but for one a worker.
const inFlightBytes = 64 << 20

// task is a brick that is wanted.
type task struct {
	key
	object int64
	wants  []want

	// Of a read: what it is of, and what has come.
	listed storage.Object
	place  zarr.Place
	placed bool // place is known: its shard's index was waited for
	stored []byte
	err    error
}

// job is what a worker does next: one of its fields is set.
type job struct {
	reading *reading     // has been submitted
	begin   *task        // has been begun by nobody
	came    *task        // its bytes have come
	index   *storedIndex // has come
}

// storedIndex is an index of a shard that is read.
type storedIndex struct {
	of       object
	listed   storage.Object
	bytes    []byte
	inFlight int64 // that were asked of the storage below
	err      error
}

// worker is one of those who decode.
type worker struct {
	*Storage
	decoder *codec.Decoder
	blosc   *blosc.Decoder
	wanted  []bool // blocks of a buffer
	brick   []byte // where bricks are decoded that are not kept
	stored  []byte // what is read from memory

	resident storage.Resident // of open, nil where nothing of it can be read so
	open     storage.Object
}

// work does jobs until the storage is closed, and nothing is under way.
func (s *Storage) work() {
	w := &worker{Storage: s, decoder: codec.NewDecoder(), blosc: blosc.NewDecoder()}
	defer w.close()
	for {
		j, ok := s.next()
		switch {
		case !ok:
			return
		case j.reading != nil:
			j.reading.release()
		case j.begin != nil:
			w.begin(j.begin)
		case j.came != nil:
			w.came(j.came)
		case j.index != nil:
			w.cameIndex(j.index)
		}
	}
}

// next waits for a job. What has come goes first, so that what is under way is bounded.
func (s *Storage) next() (job, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.jobs.len() > 0:
			return s.jobs.pop(), true
		case s.tasks.len() > 0 && s.inFlight < s.maxInFlight:
			t := s.tasks.pop()
			if s.waiting[t.key] == t {
				delete(s.waiting, t.key)
			}
			return job{begin: t}, true
		case s.closed && s.underWay == 0:
			return job{}, false
		}
		s.some.Wait()
	}
}

// push adds a job.
func (s *Storage) push(j job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs.push(j)
	s.some.Signal()
}

func (w *worker) close() {
	w.decoder.Close()
	w.blosc.Close()
	w.closeResident()
}

// wanted says whether anybody still wants a task's brick.
func (t *task) wanted() bool {
	for i := range t.wants {
		if t.wants[i].r.wanted() {
			return true
		}
	}
	return false
}

// finish ends a task, with an error or nil.
func (t *task) finish(err error) {
	for i := range t.wants {
		r := t.wants[i].r
		if err != nil {
			r.fail(err)
		}
		r.release()
	}
}

// begin does a task, or as much of it as needs nothing.
func (w *worker) begin(t *task) {
	if !t.wanted() {
		t.finish(storage.ErrUnwanted)
		return
	}
	if x := w.cells.get(t.key); x != nil {
		w.hits.Add(1)
		t.copy(x.bytes)
		w.cells.release(x)
		t.finish(nil)
		return
	}
	if t.placed {
		w.read(t, t.place)
		return
	}
	var present bool
	if t.listed, present = t.field.Object(t.object); !present {
		w.absent(t)
		return
	}
	if len(t.field.Array.Levels) == 0 {
		w.read(t, zarr.Place{SizeBytes: t.listed.SizeBytes})
		return
	}
	places, first := w.indexes.find(object{t.field, t.object}, t)
	switch {
	case places != nil:
		w.inShard(t, places)
	case first:
		w.readIndex(&storedIndex{of: object{t.field, t.object}, listed: t.listed})
	}
}

// absent is a brick of an object that was not there.
func (w *worker) absent(t *task) {
	if !w.config.TrustAbsence {
		_, err := w.under.Stat(context.Background(), t.listed.Path)
		switch {
		case err == nil:
			t.finish(fmt.Errorf("%s was not there: %w", t.listed.Path, storage.ErrChanged))
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
		t.field.copier.Fill(t.wants[i].crop, &t.wants[i].part)
	}
	t.finish(nil)
}

// copy copies a brick to all that want it.
func (t *task) copy(brick []byte) {
	for i := range t.wants {
		t.field.copier.Copy(t.wants[i].crop, zarr.Window{Bytes: brick}, &t.wants[i].part)
	}
}

// placeOf looks up where a brick lies in its shard.
func (t *task) placeOf(index []zarr.Place) zarr.Place {
	return index[t.field.Array.EntryOf(0, t.wants[0].part.Brick)]
}

// inShard goes on with a brick of a shard whose index is known.
func (w *worker) inShard(t *task, places []zarr.Place) {
	p := t.placeOf(places)
	if p.Absent() {
		t.fill()
		return
	}
	w.read(t, p)
}

// read reads a brick: at once where it is in memory, else it goes on when it has come.
func (w *worker) read(t *task, p zarr.Place) {
	t.place = p
	if most := zarr.Bound(t.field.brickBytes); p.SizeBytes > most || p.SizeBytes == 0 {
		t.finish(t.damaged(fmt.Errorf("%d bytes are stored of a brick that has %d", p.SizeBytes, t.field.brickBytes)))
		return
	}
	if b, ok := w.fromMemory(t.listed, p); ok {
		w.decode(t, b)
		return
	}
	t.stored = make([]byte, p.SizeBytes)
	w.sent(p.SizeBytes)
	w.under.Submit([]*storage.Read{{Object: t.listed, OffsetBytes: p.OffsetBytes, Buf: t.stored, Wanted: t.wanted, Done: func(err error) {
		t.err = err
		w.Storage.push(job{came: t})
	}}})
}

// came goes on with a brick whose bytes have come.
func (w *worker) came(t *task) {
	size := int64(len(t.stored))
	if t.err != nil {
		t.finish(t.err)
	} else {
		w.decode(t, t.stored)
	}
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

// decode decodes a brick, and copies it to all that want it.
func (w *worker) decode(t *task, stored []byte) {
	w.bricks.Add(1)
	f := t.field
	if f.Array.Chain.Raw() { // what is stored is the brick, and the page cache keeps it
		if int64(len(stored)) != f.brickBytes {
			t.finish(t.damaged(fmt.Errorf("%d bytes are stored of a brick that has %d", len(stored), f.brickBytes)))
			return
		}
		t.copy(stored)
		t.finish(nil)
		return
	}
	switch done, err := w.blocks(t, stored); {
	case err != nil:
		t.finish(t.damaged(err))
		return
	case done:
		t.finish(nil)
		return
	}
	x := w.cells.take(t.key, f.brickBytes)
	var brick []byte
	if x != nil {
		brick = x.bytes
		defer w.cells.release(x)
	} else {
		if int64(cap(w.brick)) < f.brickBytes {
			w.brick = make([]byte, f.brickBytes)
		}
		brick = w.brick[:f.brickBytes]
	}
	if err := w.decoder.Decode(brick, stored, f.Array.Chain); err != nil {
		t.finish(t.damaged(err))
		return
	}
	if x != nil {
		w.cells.add(x)
	}
	t.copy(brick)
	t.finish(nil)
}

// damaged names the brick that an error is about.
func (t *task) damaged(err error) error {
	numbers := make([]string, len(t.wants[0].part.Brick))
	for d, n := range t.wants[0].part.Brick {
		numbers[d] = fmt.Sprint(n)
	}
	return fmt.Errorf("%s: brick (%s) at [%d, %d): %w", t.listed.Path, strings.Join(numbers, ","), t.place.OffsetBytes, t.place.OffsetBytes+t.place.SizeBytes, err)
}

// readIndex reads the index of a shard, for all that wait for it.
func (w *worker) readIndex(x *storedIndex) {
	level := x.of.field.Array.Levels[0]
	at, err := level.IndexOffset(x.listed.SizeBytes)
	if err != nil {
		x.err = fmt.Errorf("%s: %w", x.listed.Path, err)
		w.cameIndex(x)
		return
	}
	p := zarr.Place{OffsetBytes: at, SizeBytes: level.IndexBytes()}
	if b, ok := w.fromMemory(x.listed, p); ok {
		x.bytes = b
		w.cameIndex(x)
		return
	}
	x.bytes, x.inFlight = make([]byte, p.SizeBytes), p.SizeBytes
	w.sent(x.inFlight)
	w.under.Submit([]*storage.Read{{Object: x.listed, OffsetBytes: at, Buf: x.bytes, Done: func(err error) {
		x.err = err
		w.Storage.push(job{index: x})
	}}})
}

// cameIndex lets all that waited for an index go on. Their bricks go back into the queue, so that
// no more of them are read at a time than of others, and by all workers.
func (w *worker) cameIndex(x *storedIndex) {
	var places []zarr.Place
	if x.err == nil {
		level := x.of.field.Array.Levels[0]
		places = make([]zarr.Place, level.Entries())
		if err := level.ParseIndex(places, x.bytes, x.listed.SizeBytes, x.of.field.brickBytes); err != nil {
			x.err, places = fmt.Errorf("%s: %w", x.listed.Path, err), nil
		}
	}
	waited := w.indexes.came(x.of, places)
	if x.bytes = nil; x.inFlight > 0 {
		w.returned(x.inFlight)
	}
	if x.err != nil {
		for _, t := range waited {
			t.finish(x.err)
		}
		return
	}
	placed := waited[:0]
	for _, t := range waited {
		if t.place = t.placeOf(places); t.place.Absent() {
			t.fill()
			continue
		}
		t.placed = true
		placed = append(placed, t)
	}
	w.again(placed)
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
