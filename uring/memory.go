package uring

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// HugePageBytes is the size and the alignment of the pages that Map asks for. It is the same on
// amd64 and on arm64 with 4 KiB pages.
const HugePageBytes = 2 << 20

// pageBytes is the size of an ordinary page.
var pageBytes = int64(os.Getpagesize())

// Map returns nBytes of zeroed memory outside the Go heap, readable and writable. The garbage
// collector does not scan it, and GOMEMLIMIT does not count it.
//
// It is aligned to pages. With nBytes of at least HugePageBytes it is aligned to HugePageBytes, and
// Map asks the kernel for huge pages, which it may refuse. If nBytes is a multiple of HugePageBytes,
// all pages can be huge. Pages are allocated when first written to.
//
// The memory belongs to the caller until Unmap. All reads into it must have ended before Unmap is
// called. Map may be called concurrently.
func Map(nBytes int) ([]byte, error) {
	if nBytes <= 0 {
		return nil, fmt.Errorf("map %d bytes of memory: the size must be > 0", nBytes)
	}
	page := os.Getpagesize()
	size := roundUp(nBytes, page)
	if size < HugePageBytes {
		p, err := mapAnonymous(nBytes, size)
		if err != nil {
			return nil, err
		}
		return unsafe.Slice((*byte)(p), nBytes), nil
	}
	// mmap guarantees only page alignment: map more, then give back what is before and after.
	raw, err := mapAnonymous(nBytes, size+HugePageBytes)
	if err != nil {
		return nil, err
	}
	before := -uintptr(raw) & (HugePageBytes - 1)
	p := unsafe.Add(raw, before)
	if err := trim(raw, before); err != nil {
		return nil, errors.Join(err, trim(raw, uintptr(size+HugePageBytes)))
	}
	if err := trim(unsafe.Add(p, size), HugePageBytes-before); err != nil {
		return nil, errors.Join(err, trim(p, uintptr(size)+HugePageBytes-before))
	}
	b := unsafe.Slice((*byte)(p), nBytes)
	// Best effort: a kernel without transparent huge pages refuses.
	_ = unix.Madvise(unsafe.Slice((*byte)(p), size), unix.MADV_HUGEPAGE)
	return b, nil
}

// Unmap frees memory returned by Map. p is what Map returned, or a slice of it with the same start
// and capacity. The memory must not be used any more.
func Unmap(p []byte) error {
	if cap(p) == 0 {
		return nil
	}
	size := roundUp(cap(p), os.Getpagesize())
	if err := unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(p)), uintptr(size)); err != nil {
		return fmt.Errorf("unmap %d bytes of memory: %w", cap(p), err)
	}
	return nil
}

func mapAnonymous(wanted, size int) (unsafe.Pointer, error) {
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of memory: %w (is there a limit on address space, ulimit -v?)", wanted, err)
	}
	return p, nil
}

func trim(p unsafe.Pointer, size uintptr) error {
	if size == 0 {
		return nil
	}
	if err := unix.MunmapPtr(p, size); err != nil {
		return fmt.Errorf("unmap %d bytes of memory: %w", size, err)
	}
	return nil
}

func roundUp(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }

// Direct reads need aligned offsets, sizes and addresses, which those of records are not. They go
// into aligned blocks and are copied from there: the copy costs a tenth of what the page cache
// costs, and the blocks are in 2 MiB pages, which doubles the speed of the disk.
const (
	// blockAlignment divides the address and size of blocks.
	blockAlignment = 64 << 10

	// blockBytes holds 1 MiB at any offset. Larger requests are read in parts.
	blockBytes = 1<<20 + blockAlignment

	// blockReadAlignment is the alignment of reads into blocks. Disks with 512-byte sectors have 4
	// KiB pages underneath: reads that cut such a page were a sixth slower.
	blockReadAlignment = 4096

	// numBlocks is one for each reader of the pread engine; that many large reads keep a disk busy.
	numBlocks = maxPreaders
)

// blocks lends blocks of aligned memory, which is mapped at the first request. Its methods may be
// called concurrently.
type blocks struct {
	mu     sync.Mutex
	memory []byte
	free   [][]byte
	failed bool // memory could not be mapped
}

// take returns a block, or nil if none is free. missing reports that there will never be one.
func (b *blocks) take() (block []byte, missing bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.memory == nil && !b.failed {
		b.open()
	}
	if len(b.free) == 0 {
		return nil, b.failed
	}
	block = b.free[len(b.free)-1] // the most recently used one, so that unneeded ones stay untouched
	b.free = b.free[:len(b.free)-1]
	return block, false
}

func (b *blocks) open() {
	memory, err := Map(numBlocks * blockBytes)
	if err != nil {
		b.failed = true
		return
	}
	b.memory = memory
	for i := numBlocks; i > 0; i-- {
		b.free = append(b.free, memory[(i-1)*blockBytes:i*blockBytes:i*blockBytes])
	}
}

func (b *blocks) give(block []byte) {
	if block == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free = append(b.free, block)
}

// close frees the memory; all blocks must have been returned.
func (b *blocks) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.free) != 0 && len(b.free) != numBlocks {
		panic("uring: a block of memory for direct reads is lost")
	}
	memory := b.memory
	b.memory, b.free = nil, nil
	return Unmap(memory)
}

// part is one direct read: of size bytes at off, of which those from skip on are wanted.
type part struct {
	off  int64
	size int
	skip int
}

// directPart is the next direct read of a job that goes into a block.
func directPart(d *directFile, j *job) part {
	a := max(d.offsetAlignment, blockReadAlignment)
	p := part{off: j.off() &^ (a - 1)}
	p.skip = int(j.off() - p.off)
	p.size = int(min((int64(p.skip+len(j.rest()))+a-1)&^(a-1), blockBytes))
	return p
}

// deliver copies what a read of got bytes brought for the job, and returns how much that was:
// nothing if the file ends.
func (p part) deliver(j *job, block []byte, got int) int {
	if got <= p.skip {
		return 0
	}
	return copy(j.rest(), block[p.skip:got])
}
