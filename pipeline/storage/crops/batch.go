package crops

import (
	"sync"
	"sync/atomic"
)

// Memory for tasks and for the coordinates of their parts is reused: a crop of small chunks has
// hundreds of them, and collecting them as garbage would cost more than decoding.

const (
	batchTasks   = 64
	batchNumbers = 16 * batchTasks
)

// batch is memory for some tasks. It is reused once all of them have ended and the kept cells noted
// in their wants have been copied. If that never happens, because a task's wants were moved to
// another task, the batch is garbage collected.
type batch struct {
	left    atomic.Int32 // tasks that have not ended, plus 1 while more are made
	tasks   [batchTasks]task
	used    int
	numbers []int64
}

var batches = sync.Pool{New: func() any { return &batch{numbers: make([]int64, 0, batchNumbers)} }}

// task returns memory for a task, or nil if the batch is full.
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

// ended counts n tasks off. The caller must not use them any more.
func (b *batch) ended(n int) {
	if b.left.Add(-int32(n)) > 0 {
		return
	}
	clear(b.tasks[:b.used])
	b.used, b.numbers = 0, b.numbers[:0]
	batches.Put(b)
}

// newBatch returns a batch to make tasks from until ended(1) is called.
func newBatch() *batch {
	b := batches.Get().(*batch)
	b.left.Store(1)
	return b
}
