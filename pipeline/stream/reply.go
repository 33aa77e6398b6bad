package stream

import (
	"unsafe"

	"github.com/lsiofs/lsiofs/pipeline/fetch"
	"github.com/lsiofs/lsiofs/pipeline/meter"
)

const (
	// MaxSlices bounds Reply.Slices: the largest read has at most so many records of
	// lendBytes or more. A slice costs the kernel about 240 ns; writev refuses 1023.
	MaxSlices = 128
	// MaxReadBytes bounds one ReadAt: the largest read that FUSE asks for.
	MaxReadBytes = 1 << 20
	// lendBytes is the length from which on a record goes out from where it
	// lies: from there on a copy takes longer than an element of the vector (four
	// readers of 12.5 KiB samples got a fifth more). Below it the copy is
	// cheaper, and pins no memory until the reply is written. Where records lie one
	// behind the other, as they go out, one element has many of them.
	lendBytes = 8 << 10
)

// Reply is the answer to a read: at most MaxSlices slices. They are read-only, and valid
// until Release. The zero value is ready for use, and reuse allocates nothing. It is not
// for concurrent use.
type Reply struct {
	Slices [][]byte

	buffers *buffers
	buffer  []byte   // what was copied; the slices of copied runs lie in it
	copies  bool     // all is copied, into a buffer of somebody else
	blocks  []*block // some slices lie in
	run     int      // where in buffer the last slice begins, -1 when it is a lent one
	loans   []*fetch.Loan
	inUse   int // loans[:inUse] are out
	renamed []byte
	own     meter.Waiter
	waits   *meter.Waiter // own, or that of who has this reply filled
	again   bool          // Loan.Again of what is lent from now on
}

// WaitedNanos is how long the last ReadAt into r, successful or not, waited for storage,
// decoders and read-ahead.
func (r *Reply) WaitedNanos() int64 { return r.own.Nanos }

// Len is the number of bytes in the reply.
func (r *Reply) Len() int {
	n := 0
	for _, s := range r.Slices {
		n += len(s)
	}
	return n
}

// Release gives everything back and empties r.
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

// share appends the stretch [from, to) of a block, with the caller's reference
// to it.
func (r *Reply) share(b *block, from, to int64) {
	r.blocks = append(r.blocks, b)
	r.lend(b.bytes(from, to))
}

// copyInto readies an empty r for copies into the memory behind an empty slice,
// until leave. r is not released then.
func (r *Reply) copyInto(buffer []byte) { r.buffer, r.copies, r.run = buffer, true, -1 }

// leave gives the memory of copyInto back.
func (r *Reply) leave() {
	r.buffer, r.copies = nil, false
	clear(r.Slices)
	r.Slices = r.Slices[:0]
}

// begin readies an empty r for up to n copied bytes.
func (r *Reply) begin(b *buffers) {
	r.Release()
	r.buffers, r.run, r.again = b, -1, false
}

// lend appends b as it lies; its loan must stay out.
func (r *Reply) lend(b []byte) {
	r.Slices = append(r.Slices, b)
	r.run = -1
}

// join appends b as it lies, if that is behind the slice that was lent last. Their
// memory must not be of Go's heap, which knows where one thing ends.
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

// canLend says whether one more slice, and a copied run behind it, still fit.
func (r *Reply) canLend() bool { return !r.copies && len(r.Slices) < MaxSlices-1 }

// space appends n bytes to the copied ones and returns them for the caller to
// fill. most is how many bytes the whole reply can have.
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

// loan gives a loan that is part of r. The caller gives it back with unloan
// when no slice of it is in r.
func (r *Reply) loan() *fetch.Loan {
	if r.inUse == len(r.loans) {
		r.loans = append(r.loans, new(fetch.Loan))
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
