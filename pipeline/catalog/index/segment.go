package index

import (
	"fmt"
	"math"
	"os"
	"sync/atomic"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/uring/filesystem"
)

// segmentCapacity is the size of a growing dataset's journal at which the next one is begun. A
// single blob may be larger.
const segmentCapacity = 32 << 20

// Segment is a file that contains Places: a journal, or a sealed index.
type Segment struct {
	f        *os.File // locked, if it is this process's own; nil for others, and in memory
	m        *mapping // of capacity bytes, of which bytes are written
	copied   bool     // data written to f must be copied to m
	capacity int64
	bytes    int64 // whole entries
	image    *Image
	snapshot bool         // the image is a snapshot's, which will soon be removed
	live     atomic.Int64 // bytes of entries in use
	retired  bool
}

// Place is the location of a shard's blob. The zero Place refers to nothing.
type Place struct {
	segment *Segment
	at      uint64
	bytes   uint32
}

// In reports whether the place is in a segment.
func (p Place) In(s *Segment) bool { return p.segment == s }

// Blob returns the blob at the place. It is valid until the segment is retired and has no readers
// (Journals.Acquire), or the journals are closed.
func (p Place) Blob() Blob {
	return Blob(p.segment.m.data[p.at : p.at+uint64(p.bytes) : p.at+uint64(p.bytes)])
}

// Passing reports whether the place is in a file that will soon be removed, so that the next run
// may not find it.
func (p Place) Passing() bool { return p.segment.snapshot }

// Whole reports whether the blob, of a shard with that path, is as it was written. Disks may lose
// writes.
func (p Place) Whole(path string) bool {
	if p.segment.image != nil {
		return true // checked when it was opened
	}
	head := uint64(entryHeadBytes) + pad8(uint64(len(path)))
	if p.at < head {
		return false
	}
	entry := p.segment.m.data[p.at-head : p.at+uint64(p.bytes)]
	return xxh3.Hash(entry[8:]) == Blob(entry).word(0)
}

// entryBytes returns how many bytes of a journal a shard takes.
func entryBytes(path string, blobBytes uint32) int64 {
	return int64(entryHeadBytes + pad8(uint64(len(path))) + uint64(blobBytes))
}

// newSegment makes a journal with room for that many bytes after its head.
func (s *Store) newSegment(head []byte, room int64) (*Segment, error) {
	f, err := s.create("journal")
	if err != nil {
		return nil, err
	}
	g := &Segment{f: f, capacity: max(segmentCapacity, int64(len(head))+room)}
	if g.copied = filesystem.Of(int(f.Fd())).Remote; g.copied {
		g.m, err = anonymous(g.capacity)
	} else {
		g.m, err = mapPages(f, g.capacity)
	}
	if err == nil {
		err = g.write(head)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		g.close()
		return nil, err
	}
	return g, nil
}

// memorySegment returns a segment without a file.
func memorySegment(room int64) (*Segment, error) {
	g := &Segment{copied: true, capacity: max(segmentCapacity, room)}
	var err error
	g.m, err = anonymous(g.capacity)
	return g, err
}

// anonymous returns memory that is allocated as it is written.
func anonymous(size int64) (*mapping, error) {
	if size > math.MaxInt {
		return nil, fmt.Errorf("%d bytes can't be held", size)
	}
	data, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("memory for the index: %w", err)
	}
	return &mapping{data: data}, nil
}

// write appends data. There must be room.
func (g *Segment) write(data ...[]byte) error {
	at := g.bytes
	if g.f != nil {
		if _, err := writeAll(g.f, at, data...); err != nil {
			_ = g.f.Truncate(at)
			return err
		}
	}
	for _, d := range data {
		if g.copied {
			copy(g.m.data[at:], d)
		}
		at += int64(len(d))
	}
	g.bytes = at
	return nil
}

// fits reports whether there is room for that many more bytes.
func (g *Segment) fits(bytes int64) bool { return g.bytes+bytes <= g.capacity }

func (g *Segment) close() {
	switch {
	case g.image != nil:
		_ = g.image.Close()
	default:
		_ = g.m.Close()
	}
	if g.f != nil {
		_ = g.f.Close() // this unlocks it
	}
}

// entries calls visit for each whole entry of a journal.
func (g *Segment) entries(head []byte, visit func(Place, Shard)) error {
	if g.bytes == 0 || len(g.m.data) < len(head) || string(g.m.data[:len(head)]) != string(head) {
		return errJournal
	}
	for at := uint64(len(head)); ; {
		s, n, ok := readEntry(g.m.data[at:g.bytes])
		if !ok {
			return nil
		}
		visit(Place{g, at + n - uint64(len(s.Blob)), uint32(len(s.Blob))}, s)
		at += n
	}
}

// imageEntries calls visit for each shard of a sealed index.
func (g *Segment) imageEntries(visit func(Place, Shard)) {
	for i := range g.image.Shards() {
		at, n := g.image.blobAt(i)
		if n <= math.MaxUint32 {
			visit(Place{g, at, uint32(n)}, Shard{Object: g.image.Object(i), Codec: g.image.Codec(i), Blob: g.image.Blob(i)})
		}
	}
}
