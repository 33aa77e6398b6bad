package cubes

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/storage/cubes/listing"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
	"github.com/lsiofs/lsiofs/pipeline/zarr/blosc"
	"github.com/lsiofs/lsiofs/pipeline/zarr/codec"
)

// room is the memory that chunks and indexes of shards are decoded in. A worker keeps buffers of eachBytes.
// What takes more is decoded by as many workers at a time as there is room for, down to one. How large
// something is follows from documents and from sizes of objects, so it is known before it is decoded. It is
// safe for concurrent use.
type room struct {
	totalBytes int64 // with cells and indexes; 0: no bound
	workers    int64

	eachBytes atomic.Int64

	mu        sync.Mutex
	some      sync.Cond
	mostBytes int64 // of all that is decoded at a time
	usedBytes int64 // of mostBytes, by what takes more than eachBytes
}

// What a worker may keep, however little memory there is: bricks are taken in groups of groupBytes.
const leastEach = groupBytes

// leastRoom is the room of the least memory: a mount has as much for its tables.
const leastRoom = 16 << 20

func newRoom(memoryBytes int64, workers int) *room {
	r := &room{workers: int64(workers)}
	if r.some.L = &r.mu; memoryBytes > 0 {
		r.totalBytes = max(memoryBytes, leastRoom)
	}
	r.share(0, 0)
	return r
}

// share makes room for what takes up to largestBytes besides what is held of descriptions, and returns how
// much that is: enough for all workers, or else half of the memory that is left, or else enough for one.
func (r *room) share(largestBytes, describedBytes int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := max(r.totalBytes-describedBytes, min(r.totalBytes, leastRoom))
	r.mostBytes = min(max(min(r.workers*largestBytes, left/2), largestBytes), left)
	r.eachBytes.Store(max(r.mostBytes/r.workers, leastEach))
	r.some.Broadcast()
	return r.mostBytes
}

// take waits until n bytes can be taken. It returns what the caller gives back; it takes nothing else before.
func (r *room) take(n int64) (taken int64) {
	if n <= r.eachBytes.Load() || r.totalBytes == 0 {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.usedBytes > 0 && r.usedBytes+n > r.mostBytes {
		r.some.Wait()
	}
	r.usedBytes += n
	return n
}

func (r *room) give(taken int64) {
	if taken == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.usedBytes -= taken
	r.some.Broadcast()
}

// has reports whether there is room for something that takes n bytes.
func (r *room) has(n int64) bool { return n <= r.totalBytes || r.totalBytes == 0 }

// fits is an error if something that takes n bytes has no room at all.
func (r *room) fits(n int64, what string) error {
	if r.has(n) {
		return nil
	}
	return fmt.Errorf("%s takes %s of memory, and half of --memory is %s: use --memory %dMiB or more, or write the array in smaller chunks",
		what, humanize.IBytes(uint64(n)), humanize.IBytes(uint64(r.totalBytes)), 2*((n+1<<20-1)>>20))
}

// indexBytes is what the index of a shard takes while it is read.
func (f *field) indexBytes(level int) int64 {
	return checkedEntryBytes * f.Array.Levels[level].Entries()
}

// decodedBytes is what decoding a brick of a takes besides its stored bytes: the brick, and what is between
// the steps of its codecs.
func decodedBytes(a *zarr.Array) int64 {
	sizes := a.Chain.Sizes(a.BrickBytes())
	var between [2]int64 // as of codec.Decoder
	for i := 1; i < len(sizes)-1; i++ {
		between[i%2] = max(between[i%2], sizes[i].Bytes)
	}
	return a.BrickBytes() + between[0] + between[1]
}

func firstBytes(a *zarr.Array) int64 {
	if a.Chain.Raw() {
		return a.BrickBytes()
	}
	return a.Chain.Sizes(a.BrickBytes())[1].Bytes
}

// mostStored is how many bytes a brick is stored in at most. Where bricks lie in shards it is not known, and
// compressors may make a brick a little longer.
func (f *field) mostStored() int64 {
	if len(f.Array.Levels) > 0 {
		return f.brickBytes + togetherBytes
	}
	return min(f.LargestObject(), zarr.Bound(f.brickBytes))
}

// needs is what decoding any brick of the field takes at most. A block of blosc is decoded twice, and may be
// as long as its buffer.
func (f *field) needs() int64 {
	if f.Array.Chain.Raw() {
		begin, end := f.copier.Span(f.longest)
		return min(f.brickBytes, end-begin+rawPieceBytes)
	}
	n := f.mostStored() + f.decodedBytes
	if f.blosc() {
		n += f.brickBytes
	}
	return n
}

func (f *field) blosc() bool {
	return slices.ContainsFunc(f.Array.Chain.Steps, func(s zarr.Step) bool { return s.Codec == zarr.Blosc })
}

// fits is an error if a brick of the field that is stored in so many bytes has no room, with blocks of
// blosc of so many.
func (s *Storage) fits(f *field, storedBytes, blockBytes int64) error {
	if f.Array.Chain.Raw() {
		begin, end := f.copier.Span(f.longest)
		n := min(end-begin, f.brickBytes)
		if s.room.has(n) {
			return nil // most of all, and no text is made
		}
		return s.room.fits(n, fmt.Sprintf("what a crop needs of a chunk of %s (%s)", f.shown(), humanize.IBytes(uint64(f.brickBytes))))
	}
	n := storedBytes + f.decodedBytes + blockBytes
	if s.room.has(n) {
		return nil
	}
	return s.room.fits(n, fmt.Sprintf("decoding a chunk of %s (%s, stored in %s)", f.shown(), humanize.IBytes(uint64(f.brickBytes)), humanize.IBytes(uint64(storedBytes))))
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
	for _, c := range cubes {
		for _, f := range c.fields {
			for _, l := range f.Array.Levels {
				indexes = max(indexes, s.indexes.maxBytes, placeBytes*l.Entries())
			}
			if largest == nil || f.largestJob() > largest.largestJob() {
				largest, of = f, c
			}
		}
	}
	described, most := s.describedBytes(cubes), largest.largestJob()
	if total := s.room.totalBytes; total > 0 && most > leastRoom && most+described > total && len(largest.Array.Levels) == 0 {
		return fmt.Errorf("%s: decoding a chunk of %s takes %s of memory, and what describes the dataset %s, which is more than the half of --memory, %s: use --memory %dMiB or more",
			of.Object.Path, largest.shown(), humanize.IBytes(uint64(most)), humanize.IBytes(uint64(described)), humanize.IBytes(uint64(total)), 2*((most+described)>>20+1))
	}
	decoding := s.room.share(most, described)
	if most <= leastEach {
		decoding = 0
	}
	s.cells.allow(max(s.config.MemoryBytes-decoding-indexes-described, 0))
	return nil
}

// largestJob is what the largest of jobs takes that decode something of the field.
func (f *field) largestJob() int64 {
	n := f.most
	for i := range f.Array.Levels {
		n = max(n, f.indexBytes(i))
	}
	return n
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
		if err := s.room.fits(f.indexBytes(i), fmt.Sprintf("the index of a shard of %s, of %d chunks,", f.shown(), l.Entries())); err != nil {
			return err
		}
	}
	if len(f.Array.Levels) > 0 {
		return s.fits(f, 0, 0)
	}
	return s.fits(f, f.mostStored(), 0)
}

// OneAtATime returns what decoding a chunk takes if there is no room for two at a time, else 0.
func (s *Storage) OneAtATime() (bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.cubes {
		for _, f := range c.fields {
			bytes = max(bytes, f.most)
		}
	}
	if s.room.totalBytes == 0 || s.room.workers == 1 || 2*bytes <= s.room.mostBytes || bytes <= leastEach {
		return 0
	}
	return bytes
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

// needs is what a job takes at most while it is done. What its bricks are stored in may be under way, and
// counted twice.
func (j job) needs() (n int64) {
	switch {
	case j.came != nil:
		return j.came.field.most
	case j.index != nil:
		return j.index.of.field.indexBytes(j.index.of.level)
	}
	for _, t := range j.group {
		n = max(n, t.field.most)
		if !t.placed() {
			n = max(n, t.field.indexBytes(t.level))
		}
	}
	return n
}

// buffers are what a worker decodes with.
type buffers struct {
	decoder *codec.Decoder
	blosc   *blosc.Decoder
	unkept  unkept // where bricks are decoded that are not kept
	stored  unkept // what is read from memory
	between [2]unkept
}

func newBuffers() *buffers {
	b := &buffers{blosc: blosc.NewDecoder()}
	b.decoder = codec.NewDecoderIn(func(i int, n int64) ([]byte, error) { return b.between[i].room(n) })
	return b
}

// trim lets go of what large bricks need.
func (b *buffers) trim() {
	b.unkept.close()
	b.stored.close()
	for i := range b.between {
		b.between[i].close()
	}
	b.decoder.Trim()
	b.blosc.Trim()
}

func (b *buffers) close() {
	b.trim()
	b.decoder.Close()
	b.blosc.Close()
}
