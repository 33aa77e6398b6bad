package crops

import (
	"slices"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// future is what readers are going to read: which chunks, and in which order.
//
// Positions make readers comparable: when a reader begins, its next record gets the position that
// any reader passed last, plus one, and each record after it the next. If a reader stands still or
// is slow, others pass all of its positions; what it wants is then dropped until it announces it
// again.
type future struct {
	maxChunks int // bound of chunks, over all readers

	mu      sync.Mutex
	readers map[uint64]*expecting
	chunks  int    // number of chunks expected
	now     uint64 // the position that was passed last
}

// expecting is what one reader expects.
type expecting struct {
	located submission // scratch for locating its records
	next    uint64     // position after that of the last block
	blocks  queue[expectedBlock]
}

// expectedBlock is the chunks of a block. A chunk that the block has two parts of is listed twice.
type expectedBlock struct {
	position uint64
	cells    []*cell

	cube                   *cube // nil if the object is unknown
	offsetBytes, sizeBytes int64
	epoch                  uint64
}

// Bounds of future.s: an expected chunk that is not cached costs about 200 bytes.
const (
	leastExpected = 16 << 10
	mostExpected  = 256 << 10
	// notedAtOnce bounds the blocks that one Want notes, because other readers wait meanwhile. The
	// next call, which repeats the list, notes more.
	notedAtOnce = 2048
)

func newFuture(memoryBytes int64) *future {
	return &future{readers: map[uint64]*expecting{}, maxChunks: int(min(max(memoryBytes>>11, leastExpected), mostExpected))}
}

var _ storage.Hints = (*Storage)(nil)

// Use implements storage.Hints.
func (s *Storage) Use() storage.HintUse { return storage.HintUse{Exact: true} }

// SetShare implements storage.Hints.
func (s *Storage) SetShare(int64) {}

// Want implements storage.Hints. What the reader wants already is noted already, so only what
// follows is looked at, as long as there is room. Chunks that are stored uncompressed are not
// cached, so they are not expected either.
func (s *Storage) Want(reader uint64, blocks []storage.Block) {
	f := s.future
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.readers[reader]
	if r == nil {
		r = &expecting{located: s.newSubmission()}
		f.readers[reader] = r
	}
	noted := r.blocks.len()
	if noted > 0 && (noted > len(blocks) || !r.blocks.at(0).is(s, &blocks[0]) || !r.blocks.at(noted-1).is(s, &blocks[noted-1])) {
		s.unwant(r, noted) // it is another list
		noted = 0
	}
	if noted == 0 {
		r.next = max(r.next, f.now+1)
	}
	defer r.located.trim()
	for i := noted; i < min(len(blocks), noted+notedAtOnce) && f.chunks < f.maxChunks; i++ {
		b := &blocks[i]
		x := expectedBlock{position: r.next, cube: s.cubeOf(b), offsetBytes: b.OffsetBytes, sizeBytes: b.SizeBytes, epoch: b.Epoch}
		x.cells = s.expect(&r.located, &x)
		r.blocks.push(x)
		r.next++
		f.chunks += len(x.cells)
	}
}

// cubeOf returns the cube that a block is of; nil if the object is unknown.
func (s *Storage) cubeOf(b *storage.Block) *cube {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cubes[b.Object.Path]
}

// is reports whether x was noted for a block.
func (x *expectedBlock) is(s *Storage, b *storage.Block) bool {
	return x.offsetBytes == b.OffsetBytes && x.sizeBytes == b.SizeBytes && x.epoch == b.Epoch && x.cube == s.cubeOf(b)
}

// expect notes that the chunks of a block, or blocks of these chunks, are wanted.
func (s *Storage) expect(b *submission, x *expectedBlock) (list []*cell) {
	c := x.cube
	if c == nil {
		return nil
	}
	from := x.offsetBytes - int64(len(c.header))
	first, last := max(from, 0)/c.row.Bytes, min((from+x.sizeBytes-1)/c.row.Bytes, int64(c.Cut.Total())-1)
	cells := s.cells.Lock()
	defer cells.Unlock()
	for n := first; n <= last; n++ {
		at := b.locate(c, uint64(n), x.epoch)
		for k, f := range c.fields {
			if f.Array.Chain.Raw() {
				continue
			}
			size := f.blockSize()
			c.Cut.Place(k, at.crops[k], at.spot)
			_ = at.crops[k].Parts(f.Array.Shape, f.Array.Chunk, func(p *zarr.Part) error {
				k := key{f, f.chunks.Number(p.Chunk), 0}
				if size == 0 {
					list = append(list, cells.Want(k, x.position))
					return nil
				}
				first, last := f.blocksOf(p, size)
				for k.block = first + 1; k.block <= last; k.block++ {
					list = append(list, cells.Want(k, x.position))
				}
				return nil
			})
		}
	}
	return list
}

// expectAgain recomputes what is expected of a field after its blocks have become cells.
func (s *Storage) expectAgain(f *field) {
	s.future.mu.Lock()
	defer s.future.mu.Unlock()
	for _, r := range s.future.readers {
		for i := range r.blocks.len() {
			x := r.blocks.at(i)
			if x.cube == nil || !slices.Contains(x.cube.fields, f) {
				continue
			}
			was := x.cells
			if x.cells = nil; s.future.chunks < s.future.maxChunks { // the new list may be longer than the old one
				x.cells = s.expect(&r.located, x)
			}
			s.unwantCells(x.position, was)
			s.future.chunks += len(x.cells) - len(was)
		}
		r.located.trim()
	}
}

func (s *Storage) unwantCells(position uint64, list []*cell) {
	cells := s.cells.Lock()
	defer cells.Unlock()
	for _, c := range list {
		cells.Passed(c, position)
	}
}

// Passed implements storage.Hints. The blocks are the first ones that the reader wants.
func (s *Storage) Passed(reader uint64, blocks []storage.Block) {
	f := s.future
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.readers[reader]
	if r == nil {
		return
	}
	f.now = max(f.now, s.unwant(r, len(blocks)))
	for _, x := range f.readers {
		if x.next <= f.now {
			s.unwant(x, x.blocks.len())
		}
	}
}

// Drop implements storage.Hints.
func (s *Storage) Drop(reader uint64) {
	s.future.mu.Lock()
	defer s.future.mu.Unlock()
	if r := s.future.readers[reader]; r != nil {
		s.unwant(r, r.blocks.len())
		delete(s.future.readers, reader)
	}
}

// unwant removes the first n blocks of a reader, and returns the position of the last one. The
// caller holds future.mu.
func (s *Storage) unwant(r *expecting, n int) (last uint64) {
	cells := s.cells.Lock()
	defer cells.Unlock()
	for range min(n, r.blocks.len()) {
		x := r.blocks.pop()
		for _, c := range x.cells {
			cells.Passed(c, x.position)
		}
		s.future.chunks -= len(x.cells)
		last = x.position
	}
	return last
}
