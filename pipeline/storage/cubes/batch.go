package cubes

import (
	"sync"
	"sync/atomic"
)

// Memory of tasks and of where their parts lie, which is used again: crops of small bricks have
// hundreds of them each, and collecting those would cost more than to decode.

const (
	batchTasks   = 64
	batchNumbers = 16 * batchTasks
)

// batch is memory of some tasks. It is used again when all of them have ended, and what is noted of
// wants whose cells were kept; where one never does, as its wants became another's, it is collected.
type batch struct {
	left    atomic.Int32 // of these; and 1 while more are made
	tasks   [batchTasks]task
	used    int
	numbers []int64
}

var batches = sync.Pool{New: func() any { return &batch{numbers: make([]int64, 0, batchNumbers)} }}

// task gives memory of one; nil where there is none.
func (b *batch) task() *task {
	if b.used == batchTasks {
		return nil
	}
	t := &b.tasks[b.used]
	b.used++
	b.left.Add(1)
	t.batch = b
	return t
}

// ended counts some off. Who calls it has no more of them in hand.
func (b *batch) ended(n int) {
	if b.left.Add(-int32(n)) > 0 {
		return
	}
	clear(b.tasks[:b.used])
	b.used, b.numbers = 0, b.numbers[:0]
	batches.Put(b)
}

// newBatch is one that more tasks are made of, until ended(1).
func newBatch() *batch {
	b := batches.Get().(*batch)
	b.left.Store(1)
	return b
}
