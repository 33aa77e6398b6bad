package uring

import (
	"fmt"
	"os"
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
// Map asks the kernel for huge pages. If nBytes is a multiple of HugePageBytes, all pages are huge.
// Pages are allocated when first written to.
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
		return nil, err
	}
	if err := trim(unsafe.Add(p, size), HugePageBytes-before); err != nil {
		return nil, err
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
		return fmt.Errorf("unmap %d bytes around an aligned mapping: %w", size, err)
	}
	return nil
}

func roundUp(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }
