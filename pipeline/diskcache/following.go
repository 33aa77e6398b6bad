package diskcache

import (
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/uring"
)

// Reading is a request for ranges of a decoded shard.
type Reading struct {
	Ranges iter.Seq2[int64, int64] // offsets and sizes in the shard
	Memory []byte                  // the ranges' bytes go here, one after the other
	Wanted func() bool             // called before each read begins; may be nil
	Done   func(error)             // called once, when no read is in progress any more
}

// reading is a Reading in progress.
//
//	ranges ──► stretches of whole pages ─┬─ small ones, or those of which a part is wanted:
//	                                     │  read into scratch memory, checked, copied
//	                                     └─ others: read into place, and checked there
type reading struct {
	Reading
	d    *Decoded
	left atomic.Int32 // stretches that are not done, and the call of Read
	err  atomic.Pointer[error]
	// many means that there is too much to check for the goroutine that the engine calls from.
	many bool
}

// stretch is a run of pages that are read and checked together.
type stretch struct {
	of    *reading
	pages run
	buf   []byte // for the pages
	to    []byte // where the wanted bytes of the pages go; nil if buf is that place
	skip  int64  // bytes of the pages before these
	left  atomic.Int32
}

// checkedAtOnce is how much is checked on the goroutine that the engine calls from, in some 100 µs.
// Larger readings are checked by workers.
const checkedAtOnce = 1 << 20

// Read reads and checks ranges of a shard that Write has been called for (see Write). The error
// means that bytes could not be read, or are not those that were written. Read waits for no disk,
// and never calls Done itself.
func (d *Decoded) Read(r Reading) {
	x := &reading{Reading: r, d: d}
	if d.shelf.dry {
		d.shelf.checkers.add(x)
		return
	}
	x.left.Store(1)
	all := int64(0)
	for _, size := range r.Ranges {
		all += size
	}
	x.many = d.table == nil || all > checkedAtOnce
	to := int64(0)
	for off, size := range r.Ranges {
		x.cut(off, r.Memory[to:to+size:to+size])
		to += size
	}
	if x.left.Add(-1) == 0 {
		d.shelf.checkers.add(x) // nothing to read, or it has been read already
	}
}

// run implements task.
func (x *reading) run() { x.end() }

func (x *reading) end() {
	var err error
	if e := x.err.Load(); e != nil {
		err = *e
	}
	x.Done(err)
}

// cut divides a range into stretches.
func (x *reading) cut(off int64, memory []byte) {
	size := int64(len(memory))
	pages := runOf(off, size)
	whole := run{pagesOf(off), (off + size) / pageBytes}
	if size == 0 {
		return
	}
	if whole.bytes() < scratchPieceBytes {
		x.split(pages, scratchPieceBytes/pageBytes, off, memory, true)
		return
	}
	x.split(run{pages.begin, whole.begin}, 1, off, memory, true)
	x.split(whole, pieceBytes/pageBytes, off, memory, false)
	x.split(run{whole.end, pages.end}, 1, off, memory, true)
}

func (x *reading) split(r run, most, off int64, memory []byte, scratch bool) {
	for at := r.begin; at < r.end; at += most {
		y := &stretch{of: x, pages: run{at, min(at+most, r.end)}}
		begin := max(y.pages.begin*pageBytes, off)
		end := min(y.pages.end*pageBytes, off+int64(len(memory)))
		to := memory[begin-off : end-off : end-off]
		x.left.Add(1)
		if !scratch {
			y.buf = to
			y.submit()
			continue
		}
		y.to, y.skip = to, begin-y.pages.begin*pageBytes
		if buf, ok := x.d.shelf.scratch.take(y); ok {
			y.buf = buf
			y.submit()
		}
	}
}

// wantsBytes and lent implement borrower.
func (y *stretch) wantsBytes() int { return int(y.pages.bytes()) }

func (y *stretch) lent(buf []byte) {
	y.buf = buf
	y.submit()
}

// submit submits the read of the pages.
func (y *stretch) submit() {
	var requests []*uring.Request
	buf := y.buf
	y.of.d.ground.each(y.pages, func(file *uring.File, off, n int64) {
		part := buf[:n:n]
		buf = buf[n:]
		requests = append(requests, &uring.Request{File: file, OffsetBytes: off, Buf: part, Wanted: y.of.Wanted, Done: func(n int, err error) {
			if err == nil && n < len(part) {
				err = fmt.Errorf("it ends after %d of %d bytes", n, len(part))
			}
			if err != nil {
				y.of.fail(fmt.Errorf("read %s: %w", y.of.d.shelf.Name(), err))
			}
			if y.left.Add(-1) == 0 {
				y.arrived()
			}
		}})
	})
	y.left.Store(int32(len(requests)))
	y.of.d.shelf.engine.Submit(requests)
}

func (x *reading) fail(err error) { x.err.CompareAndSwap(nil, &err) }

// arrived is called by the engine.
func (y *stretch) arrived() {
	if y.of.many {
		y.of.d.shelf.checkers.add(y)
		return
	}
	y.run()
}

// run implements task: it checks the pages, and copies the wanted bytes.
func (y *stretch) run() {
	x := y.of
	if x.err.Load() == nil {
		if err := y.check(); err != nil {
			x.fail(err)
		}
	}
	if y.to != nil {
		if x.err.Load() == nil {
			copy(y.to, y.buf[y.skip:])
		}
		x.d.shelf.scratch.give(y.buf)
	}
	y.buf, y.to = nil, nil
	if x.left.Add(-1) == 0 {
		x.end()
	}
}

// check compares the pages with their sums.
func (y *stretch) check() error {
	d, r := y.of.d, y.pages
	var sums []byte
	if d.table == nil {
		sums = make([]byte, r.pages()*sumBytes)
		if err := d.ground.readSums(r, sums); err != nil {
			return err
		}
	}
	for i := range r.pages() {
		want := uint32(0)
		if sums != nil {
			want = sumOf(sums, i)
		} else {
			want = d.table[r.begin+i]
		}
		page := r.begin + i
		if d.summer.sum(page, y.buf[i*pageBytes:][:pageBytes]) != want {
			return fmt.Errorf("bytes [%d, %d) of the decoded shard are others than were written", page*pageBytes, min((page+1)*pageBytes, d.sizeBytes))
		}
	}
	return nil
}
