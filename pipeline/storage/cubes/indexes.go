package cubes

import (
	"container/list"
	"sync"
	"unsafe"

	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// object names an object of an array.
type object struct {
	field  *field
	number int64
}

// shard names a shard of an array. One of level 0 is an object, one of the next lies in one of those.
type shard struct {
	field  *field
	level  int
	number int64 // in C order of all of that level
}

// indexes are those of shards that were read, the ones that were used last. They are bounded, but
// for one.
type indexes struct {
	maxBytes int64

	mu    sync.Mutex
	held  int64
	byKey map[shard]*list.Element // of *index
	used  list.List               // the oldest first
	// waiting are the tasks that want an index which is being read.
	waiting map[shard][]*task
}

// index says where the bricks of a shard lie in its object, or the shards in it.
type index struct {
	of     shard
	places []zarr.Place
}

// placeBytes is what an entry of an index takes.
const placeBytes = int64(unsafe.Sizeof(zarr.Place{}))

func (x *index) bytes() int64 { return int64(len(x.places)) * placeBytes }

func newIndexes(maxBytes int64) *indexes {
	return &indexes{maxBytes: maxBytes, byKey: map[shard]*list.Element{}, waiting: map[shard][]*task{}}
}

// find gives the index of a shard. Where it is not known, t waits for it; first says that
// nobody reads it yet: the caller does, and calls came.
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

// came keeps an index, nil where it could not be read, and gives those who waited for it.
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
