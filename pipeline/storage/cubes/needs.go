package cubes

import (
	"fmt"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/storage/cubes/listing"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
	"github.com/lsiofs/lsiofs/pipeline/zarr/blosc"
)

// has reports whether there is room for something that takes n bytes.
func (r *room) has(n int64) bool { return n <= r.leftBytes.Load() }

// fits is an error if something that takes n bytes has no room at all. instead is what else helps than memory.
func (r *room) fits(n int64, what, instead string) error {
	if r.has(n) {
		return nil
	}
	described := r.totalBytes - r.leftBytes.Load()
	half := fmt.Sprintf("half of --memory is %s", humanize.IBytes(uint64(r.totalBytes)))
	if n <= r.totalBytes {
		half = fmt.Sprintf("what describes the dataset leaves %s of half of --memory", humanize.IBytes(uint64(r.leftBytes.Load())))
	} else {
		described = 0
	}
	return fmt.Errorf("%s takes %s of memory, and %s: use --memory %dMiB or more, or %s",
		what, humanize.IBytes(uint64(n)), half, 2*((n+described+1<<20-1)>>20), instead)
}

// What helps where something is too large.
const (
	smallerChunks = "write the array in smaller chunks"
	smallerIndex  = "write the array with larger chunks or smaller shards"
)

// indexBytes is what the index of a shard takes while it is read.
func (f *field) indexBytes(level int) int64 {
	return checkedEntryBytes * f.Array.Levels[level].Entries()
}

// sizesOf is what decoding any brick of a takes: the brick, what is between the steps of its codecs, and the
// largest block of blosc, which is decoded twice and may be as long as its buffer.
func sizesOf(a *zarr.Array) (x sizes) {
	x.brick = a.BrickBytes()
	steps := a.Chain.Sizes(x.brick)
	for i := 1; i < len(steps)-1; i++ {
		if i%2 == 1 { // as of codec.Decoder
			x.first = max(x.first, steps[i].Bytes)
		} else {
			x.second = max(x.second, steps[i].Bytes)
		}
	}
	for i, s := range a.Chain.Steps {
		if s.Codec == zarr.Blosc {
			x.block = max(x.block, steps[i+1].Bytes)
		}
	}
	return x
}

func firstBytes(a *zarr.Array) int64 {
	if a.Chain.Raw() {
		return a.BrickBytes()
	}
	return a.Chain.Sizes(a.BrickBytes())[1].Bytes
}

// usuallyStored is how many bytes a brick is stored in at most. Where bricks lie in shards that is not known:
// compressors may make a brick a little longer, and a few are longer than that.
func (f *field) usuallyStored() int64 {
	if len(f.Array.Levels) > 0 {
		return f.brickBytes + togetherBytes
	}
	return min(f.LargestObject(), zarr.Bound(f.brickBytes))
}

// measure finds out what decoding bricks of the field takes: any but a few, and any at all.
func (f *field) measure() (usual sizes, most int64) {
	if f.Array.Chain.Raw() {
		begin, end := f.copier.Span(f.longest)
		usual.stored = min(f.brickBytes, end-begin+rawPieceBytes)
		return usual, usual.stored
	}
	usual = sizesOf(f.Array)
	usual.stored = f.usuallyStored()
	longer := usual
	if len(f.Array.Levels) > 0 {
		longer.stored = max(longer.stored, zarr.Bound(f.brickBytes))
	}
	return usual, longer.sum()
}

// mostIndexBytes is what the largest index takes that may be read by the job that decodes a brick.
func (f *field) mostIndexBytes() (n int64) {
	for i := range f.Array.Levels {
		n = max(n, f.indexBytes(i))
	}
	return n
}

// fits is an error if a brick of the field that is stored in so many bytes has no room beside an index of its
// shards, with blocks of blosc of so many.
func (s *Storage) fits(f *field, storedBytes, blockBytes int64) error {
	n := f.mostIndexBytes()
	if f.Array.Chain.Raw() {
		begin, end := f.copier.Span(f.longest)
		if n += min(end-begin, f.brickBytes); s.room.has(n) {
			return nil // most of all, and no text is made
		}
		return s.room.fits(n, fmt.Sprintf("what a crop needs of a chunk of %s (%s)%s", f.shown(), humanize.IBytes(uint64(f.brickBytes)), f.besideIndex()), smallerChunks)
	}
	if n += storedBytes + f.usual.brick + f.usual.first + f.usual.second + blockBytes; s.room.has(n) {
		return nil
	}
	return s.room.fits(n, fmt.Sprintf("decoding a chunk of %s (%s, stored in %s)%s", f.shown(), humanize.IBytes(uint64(f.brickBytes)), humanize.IBytes(uint64(storedBytes)), f.besideIndex()), smallerChunks)
}

// besideIndex names the index that is held beside a brick, if it is large.
func (f *field) besideIndex() string {
	n := f.mostIndexBytes()
	if n < leastEach {
		return ""
	}
	return fmt.Sprintf(" next to an index of %s", humanize.IBytes(uint64(n)))
}

// fitsBlocks is fits for a brick that is a buffer of blosc, which says how long its blocks are.
func (s *Storage) fitsBlocks(f *field, stored []byte) error {
	if f.Array.Chain.Steps[0].Codec != zarr.Blosc {
		return nil
	}
	h, err := blosc.Parse(stored, int64(len(stored)), f.firstBytes)
	if err != nil {
		return nil // decoding it says what is wrong
	}
	return s.fits(f, int64(len(stored)), h.BlockBytes)
}

// share divides the memory: some has what is held of descriptions, some is for what is decoded, some for
// indexes of shards, and the rest for cells.
func (s *Storage) share(cubes map[string]*cube) error {
	if s.config.room != nil {
		return nil // it is another's memory
	}
	indexes := int64(0)
	var largest *field
	var of *cube
	most := int64(0) // of those few that are longer
	for _, c := range cubes {
		for _, f := range c.fields {
			for _, l := range f.Array.Levels {
				indexes = max(indexes, s.indexes.maxBytes, placeBytes*l.Entries())
			}
			most = max(most, f.most, f.largestJob())
			if largest == nil || f.largestJob() > largest.largestJob() {
				largest, of = f, c
			}
		}
	}
	described, usual := s.describedBytes(cubes), largest.largestJob()
	if total := s.room.totalBytes; total > 0 && usual > leastRoom && usual+described > total && len(largest.Array.Levels) == 0 {
		return fmt.Errorf("%s: decoding a chunk of %s takes %s of memory, and what describes the dataset %s, together more than half of --memory, %s: use --memory %dMiB or more",
			of.Object.Path, largest.shown(), humanize.IBytes(uint64(usual)), humanize.IBytes(uint64(described)), humanize.IBytes(uint64(total)), 2*((usual+described)>>20+1))
	}
	decoding := s.room.share(usual, most, described)
	if s.config.MemoryBytes < leastRoom && usual <= leastEach {
		decoding = 0 // in so little memory crops are decoded all the same
	}
	s.cells.allow(max(s.config.MemoryBytes-decoding-indexes-described, 0))
	return nil
}

// leastEach is what decoding small bricks takes.
const leastEach = 1 << 20

// largestJob is what the largest of jobs usually takes that decode something of the field.
func (f *field) largestJob() int64 {
	return f.mostIndexBytes() + f.usual.sum()
}

// describedBytes is what is held of descriptions: references, and the tables of objects.
func (s *Storage) describedBytes(cubes map[string]*cube) (n int64) {
	if x, ok := s.under.(listing.Holder); ok {
		n = x.HeldBytes()
	}
	seen := map[string]bool{}
	for _, c := range cubes {
		for _, f := range c.fields {
			if !seen[f.Path] {
				seen[f.Path] = true
				n += f.HeldBytes()
			}
		}
	}
	return n
}

// checkRoom is an error if bricks of a field, or indexes of its shards, have no room.
func (s *Storage) checkRoom(f *field) error {
	for i, l := range f.Array.Levels {
		if err := s.room.fits(f.indexBytes(i), fmt.Sprintf("the index of a shard of %s, of %d chunks,", f.shown(), l.Entries()), smallerIndex); err != nil {
			return err
		}
	}
	if len(f.Array.Levels) > 0 {
		return s.fits(f, 0, 0)
	}
	return s.fits(f, f.usuallyStored(), 0)
}

// OneAtATime returns what decoding a chunk takes if there is no room for two at a time, else 0.
func (s *Storage) OneAtATime() (bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.cubes {
		for _, f := range c.fields {
			bytes = max(bytes, f.usual.sum())
		}
	}
	if bytes <= leastEach || s.room.together(bytes, 2) {
		return 0
	}
	return bytes
}

// together reports whether a number of jobs of n bytes each are done at a time.
func (r *room) together(n, jobs int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.totalBytes == 0 || r.workers < jobs || jobs*(n-r.eachBytes.Load()) <= r.poolBytes
}

// rawPieceBytes is how far apart what is wanted of a brick that is stored as it is may begin, and be read at
// once: such bricks may be as long as an array.
const rawPieceBytes = 8 << 20

// rawPiece is a number for what is wanted of a brick that is stored as it is. Parts with other numbers are
// read by themselves. It is 0 for bricks that are decoded.
func (f *field) rawPiece(p *zarr.Part) int64 {
	if f.brickBytes <= rawPieceBytes || !f.Array.Chain.Raw() {
		return 0
	}
	begin, _ := f.copier.Span(p)
	return begin / rawPieceBytes
}

// shown names the array of a field.
func (f *field) shown() string {
	if f.Path == "" {
		return "the array"
	}
	return "array " + f.Path
}

// sizes is what a job takes at most while it is done. What its bricks are stored in may be under way, and
// counted twice.
func (j job) sizes() sizes {
	switch {
	case j.came != nil:
		x := j.came.field.usual
		x.stored = j.came.size()
		return x
	case j.index != nil:
		return sizes{index: j.index.of.field.indexBytes(j.index.of.level)}
	case len(j.group) > 0:
		return j.group[0].sizes() // and so all others
	}
	return sizes{}
}

// sizes is what beginning a task takes, which then may be done at once.
func (t *task) sizes() sizes {
	x := t.field.usual
	if !t.placed() {
		x.index = t.field.indexBytes(t.level)
	}
	return x
}

// each is what each worker may hold. Those of a storage that has another's memory hold nothing.
func (s *Storage) each() int64 {
	if s.config.room != nil && s.room.totalBytes > 0 {
		return 0
	}
	return s.room.eachBytes.Load()
}

// take takes what a job needs beside what its worker may hold, if there is room. s.mu is held.
func (s *Storage) take(n sizes) (taken int64, ok bool) {
	if taken = n.sum() - s.each(); taken <= 0 {
		return 0, true
	}
	if s.room.try(taken, &s.inLine) {
		return taken, true
	}
	return 0, false
}
