package stream

import (
	"sync"

	"github.com/lsiofs/lsiofs/uring"
)

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
