package crops

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"unsafe"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// object identifies an object of an array.
type object struct {
	field  *field
	number int64
}

// shard identifies a shard of an array. A shard of level 0 is an object; one of the next level is
// inside one of those.
type shard struct {
	field  *field
	level  int
	number int64 // in C order of all shards of its level
}

// indexes is an LRU cache of shard indexes. It is bounded, except that one index is always kept.
type indexes struct {
	maxBytes int64

	mu    sync.Mutex
	held  int64
	byKey map[shard]*list.Element // of *index
	used  list.List               // least recently used first
	// waiting are the tasks that need an index which is being read.
	waiting map[shard][]*task
}

// index holds the places, within the object, of the chunks of a shard, or of the shards in it.
type index struct {
	of     shard
	places []zarr.Place
}

// placeBytes is the size of an index entry.
const placeBytes = int64(unsafe.Sizeof(zarr.Place{}))

func (x *index) bytes() int64 { return int64(len(x.places)) * placeBytes }

func newIndexes(maxBytes int64) *indexes {
	return &indexes{maxBytes: maxBytes, byKey: map[shard]*list.Element{}, waiting: map[shard][]*task{}}
}

// find returns the index of a shard. If it is not cached, t waits for it; first reports that the
// index is not being read yet, so the caller has to read it and call came.
func (x *indexes) find(o shard, t *task) (places []zarr.Place, first bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.byKey[o]; e != nil {
		x.used.MoveToBack(e)
		return e.Value.(*index).places, false
	}
	list, reading := x.waiting[o]
	x.waiting[o] = append(list, t)
	return nil, !reading
}

// came stores an index, or nil if it could not be read, and returns the tasks that waited for it.
func (x *indexes) came(o shard, places []zarr.Place) []*task {
	x.mu.Lock()
	defer x.mu.Unlock()
	list := x.waiting[o]
	delete(x.waiting, o)
	if places == nil {
		return list
	}
	new := &index{o, places}
	x.held += new.bytes()
	for x.held > x.maxBytes && x.used.Len() > 0 {
		oldest := x.used.Remove(x.used.Front()).(*index)
		delete(x.byKey, oldest.of)
		x.held -= oldest.bytes()
	}
	x.byKey[o] = x.used.PushBack(new)
	return list
}

// A chunk is found level by level: the index of its object holds the place of a shard, the index of
// that shard the place of the next one, and the last index the place of the chunk. t.level of them
// have been looked up, and t.place is the place that the last one gave, within the object.

// placed reports whether a task's chunk has been found.
func (t *task) placed() bool { return t.level == len(t.field.Array.Levels) }

// shard returns the shard at t.place.
func (t *task) shard() shard {
	return shard{t.field, t.level, t.field.Array.ShardOf(t.level, t.wants[0].part.Chunk)}
}

// descend goes one level down, using the index of t.shard(). It returns false if nothing is stored
// there.
func (t *task) descend(index []zarr.Place) bool {
	p := index[t.field.Array.EntryOf(t.level, t.wants[0].part.Chunk)]
	if p.Absent() {
		return false
	}
	t.place = p
	t.level++
	return true
}

// find finds a task's chunk. It returns false if the task has to wait for an index, or is done
// because nothing is stored: the caller must not touch the task then.
func (w *worker) find(t *task, o *opened) bool {
	if t.level == 0 {
		t.place = zarr.Place{SizeBytes: o.listed.SizeBytes}
	}
	for !t.placed() {
		x := &storedIndex{of: t.shard(), object: o.of, listed: o.listed, within: t.place}
		places, first := w.indexes.find(x.of, t)
		if first {
			w.readIndex(x)
		}
		if places == nil {
			return false
		}
		if !t.descend(places) {
			t.fill()
			return false
		}
	}
	return true
}

// storedIndex is the index of a shard that is being read.
type storedIndex struct {
	of       shard
	object   object // the object that holds it
	listed   storage.Object
	within   zarr.Place // the place of the shard in the object
	bytes    []byte
	inFlight int64 // bytes being read from the storage below
	err      error
}

// damaged adds the shard's location, and advice, to an error.
func (x *storedIndex) damaged(err error) error {
	return fmt.Errorf("%w: "+copyAgain, damagedIndex(x.listed, x.of.level, x.within, err))
}

// damagedIndex adds the location of a shard to an error. A shard of level 0 is the object.
func damagedIndex(o storage.Object, level int, within zarr.Place, err error) error {
	if level == 0 {
		return fmt.Errorf("%s: %w", o.Path, err)
	}
	return fmt.Errorf("%s: the shard at [%d, %d): %w", o.Path, within.OffsetBytes, within.OffsetBytes+within.SizeBytes, err)
}

// readIndex reads the index of a shard for all tasks that wait for it.
func (w *worker) readIndex(x *storedIndex) {
	level := x.of.field.Array.Levels[x.of.level]
	at, err := level.IndexOffset(x.within.SizeBytes)
	if err != nil {
		x.err = x.damaged(err)
		w.cameIndex(x)
		return
	}
	p := zarr.Place{OffsetBytes: x.within.OffsetBytes + at, SizeBytes: level.IndexBytes()}
	if b, ok := w.indexInMemory(x.object, p); ok {
		x.bytes = b
		w.cameIndex(x)
		return
	}
	x.bytes, x.inFlight = w.buffer(p.SizeBytes), p.SizeBytes
	w.sent(x.inFlight)
	w.under.Submit([]*storage.Read{{Object: x.listed, OffsetBytes: p.OffsetBytes, Buf: x.bytes, Done: func(err error) {
		x.err = err
		w.Storage.push(job{index: x})
	}}})
}

// cameIndex resumes all tasks that waited for an index. Their chunks go back into the queue, so
// that they are bounded as others are, and all workers share them.
func (w *worker) cameIndex(x *storedIndex) {
	var places []zarr.Place
	if a, d := x.of.field.Array, w.config.dry; x.err == nil && d != nil {
		places = d.places(x)
	} else if x.err == nil {
		places = make([]zarr.Place, a.Levels[x.of.level].Entries())
		if err := a.ParseIndex(places, x.of.level, x.bytes, x.within); err != nil {
			x.err, places = x.damaged(err), nil
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
	found := waited[:0]
	for _, t := range waited {
		if !t.descend(places) {
			t.fill()
			continue
		}
		found = append(found, t)
	}
	w.again(found)
}

// indexOf reads and checks the index of a shard, which is at within in an object. If the index is
// invalid, damaged is the reason; if it can't be read, err is. places is nil in both cases.
func (s *Storage) indexOf(ctx context.Context, f *field, o storage.Object, level int, within zarr.Place) (places []zarr.Place, damaged, err error) {
	l := f.Array.Levels[level]
	at, damaged := l.IndexOffset(within.SizeBytes)
	if damaged != nil {
		return nil, damagedIndex(o, level, within, damaged), nil
	}
	b := make([]byte, l.IndexBytes())
	if err := storage.ReadAt(ctx, s.under, o, b, within.OffsetBytes+at); err != nil {
		return nil, nil, err
	}
	places = make([]zarr.Place, l.Entries())
	damaged = f.Array.ParseIndex(places, level, b, within)
	if damaged == nil {
		damaged = zarr.CheckOverlap(places)
	}
	if damaged != nil {
		return nil, damagedIndex(o, level, within, damaged), nil
	}
	return places, nil, nil
}

// checkIndexes reads and checks the index of a shard of an object, and those of the shards in it.
// damaged is the first one that is wrong, err why one can't be read.
func (s *Storage) checkIndexes(ctx context.Context, f *field, o storage.Object, level int, within zarr.Place) (damaged, err error) {
	places, damaged, err := s.indexOf(ctx, f, o, level, within)
	if places == nil || level+1 == len(f.Array.Levels) {
		return damaged, err
	}
	for _, p := range places {
		if p.Absent() {
			continue
		}
		if damaged, err := s.checkIndexes(ctx, f, o, level+1, p); damaged != nil || err != nil {
			return damaged, err
		}
	}
	return nil, nil
}
