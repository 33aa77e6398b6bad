package uring

import (
	"sync"
)

// Direct reads want their offset, size and address aligned, which those of
// records are not. They go into aligned blocks and are copied from there: the
// copy costs a tenth of what the page cache does, and the blocks lie in 2 MiB
// pages, which doubles the speed of the disk.
const (
	// blockAlignment is what blocks are multiples of, in address and size.
	blockAlignment = 64 << 10

	// blockBytes holds 1 MiB at any offset. What is larger is read in parts.
	blockBytes = 1<<20 + blockAlignment

	// blockReadAlignment is of the reads into blocks. Disks with sectors of 512
	// bytes have pages of 4 KiB behind those: a read that cuts such a page was
	// a sixth slower.
	blockReadAlignment = 4096

	// numBlocks is one for each reader of the pread engine; as many large
	// reads keep a disk busy.
	numBlocks = maxPreaders
)

// blocks lends blocks of aligned memory, which is mapped when the first is
// asked for. Its methods may be called concurrently.
type blocks struct {
	mu     sync.Mutex
	memory []byte
	free   [][]byte
	failed bool // there is no memory
}

// take gives a block, nil if there is none now. missing says that there never
// will be one.
func (b *blocks) take() (block []byte, missing bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.memory == nil && !b.failed {
		b.open()
	}
	if len(b.free) == 0 {
		return nil, b.failed
	}
	block = b.free[len(b.free)-1] // the one used last: those never needed stay untouched
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

// close frees the memory; all blocks must be back.
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

// part is one direct read: of so many bytes at off, of which those from skip on
// are wanted.
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

// deliver copies what a read of got bytes brought for the job, and says how
// much that was: nothing where the file ends.
func (p part) deliver(j *job, block []byte, got int) int {
	if got <= p.skip {
		return 0
	}
	return copy(j.rest(), block[p.skip:got])
}
