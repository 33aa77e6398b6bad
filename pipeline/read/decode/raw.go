package decode

import (
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// rawReader reads a compressed shard from front to back for one decoder, one block ahead. Its
// buffers are on the Go heap, so that a decoder may be closed while a block is being read. It is
// not safe for concurrent use.
type rawReader struct {
	set    *Set
	object storage.Object
	first  uint64        // the shard's first record
	next   int64         // offset of the next block to request
	block  []byte        // the current block
	cur    []byte        // the unread rest of it
	spare  []byte        // the block to read into next
	came   chan rawBlock // the one block that is being read
	asked  bool
	err    error
	// got is when the last block arrived, for callers that wait for the decoder.
	got *atomic.Int64
	// waits records the waits for storage.
	waits *meter.WaitClock
	// until is the offset where the needed bytes end: bytes after it are not read together with
	// those before it. 0 means that it is not known.
	until int64
}

// blocks holds the blocks of released readers.
var blocks sync.Pool

func takeBlock(n int) []byte {
	if b, ok := blocks.Get().(*[]byte); ok && cap(*b) >= n {
		return (*b)[:n]
	}
	return make([]byte, n)
}

// release keeps the blocks for other readers, unless one is still being read.
func (r *rawReader) release() {
	if r.asked {
		return
	}
	for _, b := range [][]byte{r.block, r.spare} {
		if b != nil {
			blocks.Put(&b)
		}
	}
	r.block, r.spare, r.cur, r.err = nil, nil, nil, budget.ErrClosed
}

type rawBlock struct {
	bytes []byte
	err   error
}

func newRawReader(set *Set, s catalog.Shard, off int64, got *atomic.Int64, waits *meter.WaitClock) *rawReader {
	return &rawReader{set: set, object: s.Object, first: s.First, next: off, came: make(chan rawBlock, 1), got: got, waits: waits}
}

// memory returns the size of the two blocks.
func (r *rawReader) memory() int64 { return 2 * int64(r.set.blockBytes) }

// ask submits the next block, if there is one.
func (r *rawReader) ask() {
	end := r.object.SizeBytes
	if r.until > r.next {
		end = min(end, r.until)
	}
	n := min(int64(r.set.blockBytes), end-r.next)
	if n <= 0 {
		return
	}
	b := r.spare
	if b == nil {
		b = takeBlock(r.set.blockBytes)
	}
	r.spare = nil
	came, running, reading := r.came, &r.set.goroutines, &r.set.o.Meter.Reading
	running.Add(1)
	r.set.o.SubmitRaw([]*storage.Read{{Object: r.object, OffsetBytes: r.next, Buf: b[:n], Done: func(err error) {
		reading.End()
		came <- rawBlock{b[:n], err}
		running.Done()
	}}})
	r.next += n
	r.asked = true
	// Lets a block that is in memory be read now. While decoders occupy all processors, its reader
	// would otherwise not run until this decoder waits, which costs the decoder its turn.
	runtime.Gosched()
}

// Read implements io.Reader. While it waits, it releases the core that its caller holds. In a dry run
// it leaves p as it is.
func (r *rawReader) Read(p []byte) (int, error) {
	if err := r.take(); err != nil {
		return 0, err
	}
	n := min(len(p), len(r.cur))
	if r.set.o.Dry == nil {
		copy(p, r.cur)
	}
	r.cur = r.cur[n:]
	return n, nil
}

// ReadAt implements io.ReaderAt, for decoders that read ranges. While it waits, it releases the core
// that its caller holds.
func (r *rawReader) ReadAt(p []byte, off int64) (int, error) {
	n := min(int64(len(p)), r.object.SizeBytes-off)
	switch {
	case r.err != nil:
		return 0, r.err
	case n <= 0:
		return 0, io.EOF
	}
	came, running, reading := make(chan error, 1), &r.set.goroutines, &r.set.o.Meter.Reading
	running.Add(1)
	r.set.o.SubmitRaw([]*storage.Read{{Object: r.object, OffsetBytes: off, Buf: p[:n], Done: func(err error) {
		reading.End()
		came <- err
		running.Done()
	}}})
	wait := r.waits.Begin(meter.Now(), meter.Storage, nil, r.set.o, r.first)
	r.set.GiveCore()
	err := <-came
	r.waits.End(wait, meter.Now())
	r.set.TakeCore()
	r.got.Store(r.set.now())
	if err == nil && int(n) < len(p) {
		err = io.EOF
	}
	if err != nil && err != io.EOF {
		r.err = err
		return 0, err
	}
	return int(n), err
}

// take waits until there are bytes in cur. Its error is io.EOF at the end of the shard.
func (r *rawReader) take() error {
	if r.err != nil {
		return r.err
	}
	if len(r.cur) == 0 {
		if !r.asked {
			r.ask()
		}
		if !r.asked {
			return io.EOF
		}
		var b rawBlock
		select {
		case b = <-r.came:
		default:
			wait := r.waits.Begin(meter.Now(), meter.Storage, nil, r.set.o, r.first)
			r.set.GiveCore()
			b = <-r.came
			r.waits.End(wait, meter.Now())
			r.set.TakeCore()
		}
		r.asked = false
		r.got.Store(r.set.now())
		if b.err != nil {
			r.err = b.err
			return r.err
		}
		// The previous block has been consumed, so its buffer is reused for the next read.
		r.spare, r.block = r.block, b.bytes[:cap(b.bytes)]
		r.cur = b.bytes
		if r.until == 0 || r.next < r.until {
			r.ask()
		}
	}
	return nil
}
