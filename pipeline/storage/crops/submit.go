package crops

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/blockcache"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// reading is a read under way. It is done when all of its wants are done and its submission has
// ended.
type reading struct {
	storage *Storage
	read    *storage.Read
	refused bool // it came after Close
	pending atomic.Int32
	decoded []decodedWant
	failed  atomic.Pointer[error]

	asking   sync.Mutex  // serializes calls of the submitter's Wanted
	unwanted atomic.Bool // Wanted has returned false
}

// want is a part of a chunk that a reading wants, to be copied to a piece of a crop.
type want struct {
	r    *reading
	crop zarr.Window
	part zarr.Part
}

// copies reports whether what is decoded is copied: not if the reading was called off, nor in a dry
// run.
func (w *want) copies() bool { return !w.r.calledOff() && w.r.storage.config.dry == nil }

// decodedWant is what a reading wants of a cell that is cached.
type decodedWant struct {
	want *want
	t    *task // the task that owns want's memory
	cell *cell
	at   int64 // the cell's offset in the chunk
}

// key identifies a cell: a chunk, or a block of one.
type key struct {
	field *field
	chunk int64 // in C order of the grid of chunks
	block int64 // starting at 1; 0 is the whole chunk
}

// cell is the unit of decoding (see the package comment) as it is kept in memory.
type cell = blockcache.Block[key]

// submission is one call of Submit: the chunks that its reads want. Everything except the tasks and
// what belongs to them is reused for another one.
type submission struct {
	storage *Storage
	tasks   map[key]*task
	order   []*task
	made    *batch  // memory for tasks; full batches are left to their tasks
	numbers []int64 // memory for coordinates of parts when made has none left; likewise
	spots   map[*cube]*scratch
	jitters map[jitterKey]*zarr.Jitter
}

func (s *Storage) newSubmission() submission {
	return submission{storage: s, tasks: map[key]*task{}, spots: map[*cube]*scratch{}, jitters: map[jitterKey]*zarr.Jitter{}}
}

// mostScratch bounds the cubes and epochs for which a submission keeps scratch.
const mostScratch = 64

// reset forgets what was submitted.
func (b *submission) reset() {
	clear(b.tasks)
	clear(b.order)
	b.order = b.order[:0]
	b.trim()
}

// trim bounds the scratch.
func (b *submission) trim() {
	if len(b.spots) > mostScratch {
		clear(b.spots)
	}
	if len(b.jitters) > mostScratch {
		clear(b.jitters)
	}
}

// scratch is memory for locating records of a cube.
type scratch struct {
	spot  *zarr.Spot
	crops []*zarr.Crop
}

type jitterKey struct {
	cube  *cube
	epoch uint64
}

// Submit implements storage.Storage.
func (s *Storage) Submit(reads []*storage.Read) {
	b, is := s.submissions.Get().(*submission)
	if !is {
		n := s.newSubmission()
		b = &n
	}
	defer func() { b.reset(); s.submissions.Put(b) }()
	all := make([]*reading, len(reads))
	for i, r := range reads {
		s.mu.Lock()
		c, err := s.find(r)
		x := &reading{storage: s, read: r, refused: s.closed}
		*x.count()++
		s.mu.Unlock()
		x.pending.Store(1)
		if err == nil {
			b.add(x, c)
		} else {
			x.fail(err)
		}
		all[i] = x
	}
	// In the order of chunks in objects.
	slices.SortFunc(b.order, func(x, y *task) int {
		if x.field != y.field {
			return cmp.Compare(x.field.Path, y.field.Path)
		}
		return cmp.Or(cmp.Compare(x.object, y.object), cmp.Compare(x.chunk, y.chunk))
	})
	if d := s.config.dry; d != nil {
		d.count(b.order)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	cells := s.cells.Lock()
	for _, t := range b.order {
		if w := s.waiting[t.key]; w != nil {
			w.wants = append(w.wants, t.wants...)
			continue
		}
		if s.findKept(t, cells) {
			continue
		}
		s.waiting[t.key] = t
		s.tasks.push(t)
	}
	cells.Unlock()
	for _, x := range all {
		for rest := x.decoded; len(rest) > 0; {
			n := min(len(rest), groupChunks)
			s.jobs.push(job{decoded: rest[:n]})
			rest = rest[n:]
		}
		if x.refused {
			go x.release(1) // the workers may have ended; Close waits for it
		} else {
			s.jobs.push(job{reading: x}) // Done must not be called from Submit
		}
	}
	s.some.Broadcast()
}

// findKept pins the cached cells that a task wants, and notes what is wanted of them. It returns
// false if some wants are left. The caller holds s.mu.
func (s *Storage) findKept(t *task, cells blockcache.Locked[key]) bool {
	size := t.field.blockSize()
	if size == 0 {
		x := cells.Get(t.key, len(t.wants))
		if x == nil {
			return false
		}
		for i := range t.wants {
			r := t.wants[i].r
			r.decoded = append(r.decoded, decodedWant{&t.wants[i], t, x, 0})
		}
		t.batch.left.Add(int32(len(t.wants) - 1)) // these replace the task in the count
		return true
	}
	var left []want
	for i := range t.wants {
		n := &t.wants[i]
		first, last := t.field.blocksOf(&n.part, size)
		kept := true
		for b := first; kept && b < last; b++ {
			kept = cells.Has(t.block(int(b)))
		}
		if !kept {
			left = append(left, *n)
			continue
		}
		n.r.pending.Add(int32(last - first - 1)) // each cell counts as a want
		for b := first; b < last; b++ {
			n.r.decoded = append(n.r.decoded, decodedWant{n, t, cells.Get(t.block(int(b)), 1), b * size})
		}
		t.batch.left.Add(int32(last - first))
	}
	if len(left) == 0 {
		t.batch.left.Add(-1) // the cells replace the task in the count
		return true
	}
	if len(left) < len(t.wants) {
		t.wants = left
	}
	return false
}

// find returns the cube of a read. The caller holds s.mu.
func (s *Storage) find(r *storage.Read) (*cube, error) {
	err := r.Check()
	switch c := s.cubes[r.Object.Path]; {
	case s.closed:
		return nil, storage.ErrClosed
	case err != nil:
		return nil, err
	case c == nil:
		return nil, fmt.Errorf("it was not listed: %w", storage.ErrChanged)
	default:
		return c, storage.Compare(r.Object, c.Object)
	}
}

// add finds out what a read wants.
func (b *submission) add(x *reading, c *cube) {
	buf, from := x.read.Buf, x.read.OffsetBytes
	if from < int64(len(c.header)) {
		n := copy(buf, c.header[from:])
		buf, from = buf[n:], int64(len(c.header))
	}
	from -= int64(len(c.header))
	for len(buf) > 0 {
		ordinal, skip := from/c.row.Bytes, from%c.row.Bytes
		n := min(int64(len(buf)), c.row.Bytes-skip)
		b.record(x, c, uint64(ordinal), zarr.Window{Bytes: buf[:n:n], OffsetBytes: skip})
		buf, from = buf[n:], from+n
	}
}

// record adds the wants of a window of a record.
func (b *submission) record(x *reading, c *cube, ordinal uint64, w zarr.Window) {
	at := b.locate(c, ordinal, x.read.Epoch)
	end := w.OffsetBytes + int64(len(w.Bytes))
	zeros := int64(0) // end of the last field: what follows is padding
	for k, f := range c.fields {
		begin, size := c.row.Offsets[k], c.row.Sizes[k]
		low, high := max(w.OffsetBytes, begin), min(end, begin+size)
		if pad := min(begin, end); pad > max(zeros, w.OffsetBytes) {
			b.storage.zero(w.Bytes[max(zeros, w.OffsetBytes)-w.OffsetBytes : pad-w.OffsetBytes])
		}
		if zeros = begin + size; low >= high {
			continue
		}
		c.Cut.Place(k, at.crops[k], at.spot)
		b.field(x, f, at.crops[k], zarr.Window{Bytes: w.Bytes[low-w.OffsetBytes : high-w.OffsetBytes], OffsetBytes: low - begin})
	}
	if zeros = max(zeros, w.OffsetBytes); zeros < end {
		b.storage.zero(w.Bytes[zeros-w.OffsetBytes:])
	}
}

// zero clears padding, which a dry run leaves untouched.
func (s *Storage) zero(padding []byte) {
	if s.config.dry == nil {
		clear(padding)
	}
}

// locate computes where a record lies.
func (b *submission) locate(c *cube, ordinal, epoch uint64) *scratch {
	at := b.spots[c]
	if at == nil {
		at = &scratch{spot: c.Cut.NewSpot()}
		for k := range c.fields {
			at.crops = append(at.crops, c.Cut.NewCrop(k))
		}
		b.spots[c] = at
	}
	c.Cut.Locate(at.spot, ordinal, b.jitter(c, epoch))
	return at
}

func (b *submission) jitter(c *cube, epoch uint64) *zarr.Jitter {
	if !c.Cut.Jitters() {
		return nil
	}
	k := jitterKey{c, epoch}
	j := b.jitters[k]
	if j == nil {
		v := zarr.NewJitter(b.storage.config.Seed, epoch, b.storage.config.IDPrefix+c.Object.Path)
		j = &v
		b.jitters[k] = j
	}
	return j
}

// field adds the wants of a window of a crop.
func (b *submission) field(x *reading, f *field, crop *zarr.Crop, w zarr.Window) {
	end := w.OffsetBytes + int64(len(w.Bytes))
	_ = crop.Parts(f.Array.Shape, f.Array.Chunk, func(p *zarr.Part) error {
		if low, high := f.copier.Range(p); high <= w.OffsetBytes || low >= end {
			return nil
		}
		k := key{f, f.chunks.Number(p.Chunk), f.rawPiece(p)}
		t := b.tasks[k]
		if t == nil {
			t = b.newTask(k)
			var place [zarr.MaxDims]int64
			at := place[:len(p.Chunk)]
			f.Array.ObjectOf(at, p.Chunk)
			t.object = f.objects.Number(at)
			b.tasks[k] = t
			b.order = append(b.order, t)
		}
		x.pending.Add(1)
		t.wants = append(t.wants, want{x, w, b.keep(t, p)})
		return nil
	})
}

// newTask makes the task of a chunk. Most chunks are wanted by one crop, so it has memory for one
// want.
func (b *submission) newTask(k key) *task {
	if b.made == nil {
		b.made = newBatch()
	}
	t := b.made.task()
	if t == nil {
		b.made.ended(1)
		b.made = newBatch()
		t = b.made.task()
	}
	t.key, t.wants = k, t.first[:0]
	return t
}

// keep copies a part, which is only valid during a call, to live as long as the task of its chunk.
func (b *submission) keep(t *task, p *zarr.Part) zarr.Part {
	dims := len(p.Chunk)
	numbers := &b.made.numbers
	if t.batch != b.made || cap(*numbers)-len(*numbers) < 4*dims {
		if numbers = &b.numbers; cap(*numbers)-len(*numbers) < 4*dims {
			*numbers = make([]int64, 0, batchNumbers)
		}
	}
	take := func(from []int64) []int64 {
		n := len(*numbers)
		*numbers = append(*numbers, from...)
		return (*numbers)[n : n+dims : n+dims]
	}
	return zarr.Part{Chunk: take(p.Chunk), From: take(p.From), At: take(p.At), Count: take(p.Count)}
}

// wanted asks the submitter whether the read is still wanted. After a no it isn't asked again.
func (x *reading) wanted() bool {
	if x.read.Wanted == nil {
		return true
	}
	x.asking.Lock()
	defer x.asking.Unlock()
	if !x.unwanted.Load() && !x.read.Wanted() {
		x.unwanted.Store(true)
	}
	return !x.unwanted.Load()
}

// calledOff reports whether the submitter has said no. It does not ask.
func (x *reading) calledOff() bool { return x.unwanted.Load() }

func (x *reading) fail(err error) { x.failed.CompareAndSwap(nil, &err) }

// release counts off some wants, and calls Done after the last.
func (x *reading) release(wants int) {
	if x.pending.Add(-int32(wants)) > 0 {
		return
	}
	switch failed := x.failed.Load(); {
	case x.calledOff(): // takes precedence over other errors
		x.read.Done(storage.ErrUnwanted)
	case failed != nil:
		x.read.Done(&storage.Error{Object: x.read.Object.Path, OffsetBytes: x.read.OffsetBytes, SizeBytes: int64(len(x.read.Buf)), Err: *failed})
	default:
		x.read.Done(nil)
	}
	s := x.storage
	s.mu.Lock()
	defer s.mu.Unlock()
	left := x.count()
	if *left--; *left == 0 {
		s.quiet.Broadcast()
	}
}

// count returns the counter that includes x from its submission until its Done has returned: a
// Close that finds it above 0 waits. The caller holds the storage's mu.
func (x *reading) count() *int {
	if x.refused {
		return &x.storage.refusals
	}
	return &x.storage.underWay
}

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
