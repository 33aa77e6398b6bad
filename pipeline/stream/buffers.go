package stream

import (
	"sync"

	"github.com/lsiofs/lsiofs/uring"
)

// buffers are the memory of replies, a bounded number of each size kept.
type buffers struct {
	classes [2]chan []byte
	large   largeBuffers
}

// bufferBytes are the sizes below the largest: GNU tar's 10 KiB, cat's 128 KiB.
var bufferBytes = [2]int{16 << 10, 128 << 10}

// keptBuffers a class: more replies than this are seldom out at once.
const keptBuffers = 16

func newBuffers() *buffers {
	b := new(buffers)
	for i := range b.classes {
		b.classes[i] = make(chan []byte, keptBuffers)
	}
	return b
}

// get gives an empty slice with a capacity of at least n ≤ MaxReadBytes.
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

// close gives back what is not in the Go heap, now or when its last reply is
// released.
func (b *buffers) close() { b.large.close() }

// largeBuffers are those of MaxReadBytes. They lie in huge pages: the kernel
// finds those sooner when it copies from them (one reader of tar samples got a
// fifth more).
type largeBuffers struct {
	mu     sync.Mutex
	free   [][]byte // the one that was used last, which caches have, at the end
	mapped [][]byte // each a huge page, or more
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
		return make([]byte, 0, MaxReadBytes+1) // not MaxReadBytes: put does not keep it
	}
	buf := l.free[n-1]
	l.free = l.free[:n-1]
	l.out++
	return buf
}

// add maps a few more. Where there is no memory, make shall say so.
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

// unmap gives everything back if nothing is out, or will be.
func (l *largeBuffers) unmap() {
	if !l.closed || l.out > 0 {
		return
	}
	for _, mem := range l.mapped {
		_ = uring.Unmap(mem) // it is ours, so there is no reason to fail
	}
	l.mapped, l.free = nil, nil
}
