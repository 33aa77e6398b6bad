package uring

import (
	"sync"
)

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
