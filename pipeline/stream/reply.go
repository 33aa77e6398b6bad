package stream

import (
	"sync"
	"unsafe"

	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read"
	"github.com/lsiofs/lsiofs/uring"
)

const (
	// MaxSlices bounds Reply.Slices: the largest read holds at most this many records of lendBytes
	// or more. A slice costs the kernel about 240 ns; writev refuses more than 1023.
	MaxSlices = 128
	// MaxReadBytes bounds one ReadAt: it is the largest read that FUSE requests.
	MaxReadBytes = 1 << 20
	// lendBytes is the length from which a record is delivered without a copy: a longer copy takes
	// more time than an element of the vector (four readers of 12.5 KiB samples got 20% more).
	// Below it a copy is cheaper, and pins no memory until the reply is written. Records that are
	// contiguous in memory, in the order of the stream, share one element.
	lendBytes = 8 << 10
)

// Reply is the answer to a read: at most MaxSlices slices. They are read-only, and valid until
// Release. The zero value is ready for use, and reuse allocates nothing. It must not be used
// concurrently.
type Reply struct {
	Slices [][]byte

	buffers *buffers
	buffer  []byte   // copied bytes; the slices of copied runs point into it
	copies  bool     // everything is copied, into a buffer that r does not own
	blocks  []*block // blocks that some slices point into
	run     int      // start in buffer of the last slice, -1 if that is lent
	loans   []*read.Loan
	inUse   int // loans[:inUse] are in use
	renamed []byte
	own     meter.Waiter
	waits   *meter.Waiter // own, or that of the reader that has this reply filled
	again   bool          // Loan.Again of the loans from now on
}

// WaitedNanos returns how long the last ReadAt into r, successful or not, waited for storage,
// decoders and read-ahead.
func (r *Reply) WaitedNanos() int64 { return r.own.Nanos }

// Len returns the number of bytes in the reply.
func (r *Reply) Len() int {
	n := 0
	for _, s := range r.Slices {
		n += len(s)
	}
	return n
}

// Release returns all memory and empties r.
func (r *Reply) Release() {
	for _, l := range r.loans[:r.inUse] {
		l.Release()
	}
	r.inUse = 0
	if r.buffer != nil {
		r.buffers.put(r.buffer)
		r.buffer = nil
	}
	for i, b := range r.blocks {
		b.drop()
		r.blocks[i] = nil
	}
	r.blocks = r.blocks[:0]
	clear(r.Slices)
	r.Slices = r.Slices[:0]
}

// share appends the range [from, to) of a block, and takes over the caller's reference to it.
func (r *Reply) share(b *block, from, to int64) {
	r.blocks = append(r.blocks, b)
	r.lend(b.bytes(from, to))
}

// copyInto prepares an empty r to copy into the capacity of buffer, an empty slice, until leave is
// called. r must not be released meanwhile.
func (r *Reply) copyInto(buffer []byte) { r.buffer, r.copies, r.run = buffer, true, -1 }

// leave detaches the buffer of copyInto.
func (r *Reply) leave() {
	r.buffer, r.copies = nil, false
	clear(r.Slices)
	r.Slices = r.Slices[:0]
}

// begin empties r and prepares it for a read with buffers from b.
func (r *Reply) begin(b *buffers) {
	r.Release()
	r.buffers, r.run, r.again = b, -1, false
}

// lend appends b without a copy; its loan must stay in use.
func (r *Reply) lend(b []byte) {
	r.Slices = append(r.Slices, b)
	r.run = -1
}

// join appends b by extending the last slice, if that was lent and b follows it directly in memory.
// This must not be memory of the Go heap, where two objects can't be one slice.
func (r *Reply) join(b []byte) bool {
	n := len(r.Slices)
	if r.copies || n == 0 || r.run >= 0 {
		return false
	}
	last := r.Slices[n-1]
	begin := unsafe.SliceData(last)
	if unsafe.Add(unsafe.Pointer(begin), len(last)) != unsafe.Pointer(unsafe.SliceData(b)) {
		return false
	}
	r.Slices[n-1] = unsafe.Slice(begin, len(last)+len(b))
	return true
}

// canLend reports whether one more slice, and a copied run after it, still fit.
func (r *Reply) canLend() bool { return !r.copies && len(r.Slices) < MaxSlices-1 }

// space appends n bytes to the copied ones and returns them for the caller to fill. most bounds the
// size of the whole reply, in bytes.
func (r *Reply) space(n, most int) []byte {
	if r.buffer == nil {
		r.buffer = r.buffers.get(most)
	}
	begin := len(r.buffer)
	r.buffer = r.buffer[:begin+n]
	if r.run < 0 {
		r.run = begin
		r.Slices = append(r.Slices, nil)
	}
	r.Slices[len(r.Slices)-1] = r.buffer[r.run:]
	return r.buffer[begin:]
}

// loan returns a loan that belongs to r. If no slice of r uses it, the caller returns it with
// unloan.
func (r *Reply) loan() *read.Loan {
	if r.inUse == len(r.loans) {
		r.loans = append(r.loans, new(read.Loan))
	}
	r.inUse++
	l := r.loans[r.inUse-1]
	l.Waiter, l.Again = r.waits, r.again
	return l
}

func (r *Reply) unloan() {
	r.inUse--
	r.loans[r.inUse].Release()
}

// buffers is a pool of memory for replies. It keeps a bounded number of buffers of each size.
type buffers struct {
	classes [2]chan []byte
	large   largeBuffers
}

// bufferBytes are the sizes below the largest: 16 KiB for GNU tar's reads of 10 KiB, 128 KiB for
// cat's.
var bufferBytes = [2]int{16 << 10, 128 << 10}

// keptBuffers is the number of buffers kept per size: more replies are rarely in use at once.
const keptBuffers = 16

func newBuffers() *buffers {
	b := new(buffers)
	for i := range b.classes {
		b.classes[i] = make(chan []byte, keptBuffers)
	}
	return b
}

// get returns an empty slice with a capacity of at least n ≤ MaxReadBytes.
func (b *buffers) get(n int) []byte {
	for i, size := range bufferBytes {
		if n > size {
			continue
		}
		select {
		case buf := <-b.classes[i]:
			return buf
		default:
			return make([]byte, 0, size)
		}
	}
	return b.large.get()
}

func (b *buffers) put(buf []byte) {
	if cap(buf) == MaxReadBytes {
		b.large.put(buf)
		return
	}
	for i, size := range bufferBytes {
		if cap(buf) != size {
			continue
		}
		select {
		case b.classes[i] <- buf[:0]:
		default:
		}
	}
}

// close frees the memory outside the Go heap, now or when its last reply is released.
func (b *buffers) close() { b.large.close() }

// largeBuffers are the buffers of MaxReadBytes. They are in huge pages, which the kernel finds
// faster when it copies from them (a single reader of tar samples got 20% more).
type largeBuffers struct {
	mu     sync.Mutex
	free   [][]byte // the most recently used one, which is in the CPU's caches, at the end
	mapped [][]byte // each of one huge page or more
	out    int
	closed bool
}

func (l *largeBuffers) get() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.free) == 0 && len(l.mapped)*uring.HugePageBytes < keptBuffers*MaxReadBytes {
		l.add()
	}
	n := len(l.free)
	if n == 0 {
		return make([]byte, 0, MaxReadBytes+1) // not MaxReadBytes, so that put does not keep it
	}
	buf := l.free[n-1]
	l.free = l.free[:n-1]
	l.out++
	return buf
}

// add maps another huge page. If there is no memory, make reports it.
func (l *largeBuffers) add() {
	mem, err := uring.Map(uring.HugePageBytes)
	if err != nil {
		return
	}
	l.mapped = append(l.mapped, mem)
	for at := 0; at+MaxReadBytes <= len(mem); at += MaxReadBytes {
		l.free = append(l.free, mem[at:at:at+MaxReadBytes])
	}
}

func (l *largeBuffers) put(buf []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = append(l.free, buf[:0])
	l.out--
	l.unmap()
}

func (l *largeBuffers) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.unmap()
}

// unmap frees everything once the pool is closed and no buffer is in use.
func (l *largeBuffers) unmap() {
	if !l.closed || l.out > 0 {
		return
	}
	for _, mem := range l.mapped {
		_ = uring.Unmap(mem) // we mapped it, so it can't fail
	}
	l.mapped, l.free = nil, nil
}
