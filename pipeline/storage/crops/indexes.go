package crops

import (
	"container/list"
	"sync"
	"unsafe"

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
