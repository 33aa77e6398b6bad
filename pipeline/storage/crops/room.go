package crops

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/zarr"
	"github.com/lsiofs/lsiofs/pipeline/zarr/blosc"
)

// room is the memory that chunks and indexes of shards are decoded in. Each worker may always hold
// eachBytes, in buffers that it reuses. A job that needs more reserves the rest, and frees it
// afterwards: as many such jobs run at a time as there is room for, at least one. So at most
// mostBytes are held in total. The size of a job follows from documents and object sizes, so it is
// known before anything is decoded. It is safe for concurrent use.
type room struct {
	totalBytes int64 // including cells and indexes; 0: no bound
	workers    int64

	eachBytes atomic.Int64
	leftBytes atomic.Int64 // of totalBytes, what descriptions leave

	mu        sync.Mutex
	mostBytes int64 // bound of everything held
	poolBytes int64 // of mostBytes, the part that is not the workers' own
	usedBytes int64 // of poolBytes
	// line are the waiters that there was no room for, in order of arrival. Only the first of them
	// may take anything, so that a large one is not overtaken forever by smaller ones.
	line []*waiter
}

// waiter is an entry in the line of a room. wake makes it try again; it may take locks.
type waiter struct{ wake func() }

// leastRoom is the size of the smallest room: a mount uses as much for its tables.
const leastRoom = 16 << 20

// fewEach: if not all workers can decode at a time, they hold 1/fewEach of the room.
const fewEach = 4

func newRoom(memoryBytes int64, workers int) *room {
	r := &room{workers: int64(workers)}
	if memoryBytes > 0 {
		r.totalBytes = max(memoryBytes, leastRoom)
	}
	r.share(0, 0, 0)
	return r
}

// share makes room for jobs that usually take up to usualBytes, and seldom up to mostBytes, in
// addition to descriptions. It returns the size of the room: enough for all workers, or else half
// of the memory that is left, or else enough for one.
func (r *room) share(usualBytes, mostBytes, describedBytes int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.totalBytes == 0 {
		r.eachBytes.Store(math.MaxInt64)
		r.leftBytes.Store(math.MaxInt64)
		return 0
	}
	left := max(r.totalBytes-describedBytes, min(r.totalBytes, leastRoom))
	r.mostBytes = min(max(min(r.workers*usualBytes+mostBytes-usualBytes, left/2), mostBytes), left)
	each := r.mostBytes
	if others := r.workers - 1; others > 0 {
		// The others' share leaves enough for the largest job.
		if each = max(r.mostBytes-mostBytes, 0) / others; each < usualBytes {
			each = min(each, r.mostBytes/(fewEach*r.workers))
		}
		each = min(each, r.mostBytes/r.workers)
	}
	r.poolBytes = r.mostBytes - r.workers*each
	r.eachBytes.Store(each)
	r.leftBytes.Store(left)
	for _, w := range r.line { // they may not need the pool any more
		go w.wake()
	}
	r.line = nil
	return r.mostBytes
}

// try takes n bytes of the pool if they are free, or if none of it is taken, provided that nothing
// has waited longer than w. Otherwise it puts w in line.
func (r *room) try(n int64, w *waiter) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := slices.Index(r.line, w)
	if first := len(r.line) == 0 || at == 0; !first || r.usedBytes > 0 && r.usedBytes+n > r.poolBytes {
		if at < 0 {
			r.line = append(r.line, w)
		}
		return false
	}
	r.usedBytes += n
	if at == 0 {
		r.line = slices.Delete(r.line, 0, 1)
		r.wakeFirst()
	}
	return true
}

// take repeats try until there is room.
func (r *room) take(n int64) {
	again := make(chan struct{}, 1)
	w := &waiter{func() {
		select {
		case again <- struct{}{}:
		default:
		}
	}}
	for !r.try(n, w) {
		<-again
	}
}

// give returns what was taken.
func (r *room) give(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.usedBytes -= n
	r.wakeFirst()
}

// wakeFirst makes the first in line try again. It runs in a goroutine of its own, because the
// caller may hold the waiter's locks. The caller holds mu.
func (r *room) wakeFirst() {
	if len(r.line) > 0 {
		go r.line[0].wake()
	}
}

// has reports whether there is room for n bytes.
func (r *room) has(n int64) bool { return n <= r.leftBytes.Load() }

// fits returns an error if what, which takes n bytes, can never have room. instead is an
// alternative to more memory.
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

// Alternatives to more memory.
const (
	smallerChunks = "write the array in smaller chunks"
	smallerIndex  = "write the array with larger chunks or smaller shards"
)

// indexBytes returns what the index of a shard takes while it is read.
func (f *field) indexBytes(level int) int64 {
	return checkedEntryBytes * f.Array.Levels[level].Entries()
}

// sizesOf returns what decoding any chunk of a takes: the chunk, the output of intermediate codecs,
// and the largest block of blosc, which is decoded twice and may be as long as its buffer.
func sizesOf(a *zarr.Array) (x sizes) {
	x.chunk = a.ChunkBytes()
	steps := a.Chain.Sizes(x.chunk)
	for i := 1; i < len(steps)-1; i++ {
		if i%2 == 1 { // same alternation as in codec.Decoder
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
		return a.ChunkBytes()
	}
	return a.Chain.Sizes(a.ChunkBytes())[1].Bytes
}

// usuallyStored returns how many bytes a chunk is usually stored in at most. If chunks are in
// shards, their sizes are not known: compressors may make a chunk a little longer, and a few chunks
// exceed the bound.
func (f *field) usuallyStored() int64 {
	if len(f.Array.Levels) > 0 {
		return f.chunkBytes + togetherBytes
	}
	return min(f.LargestObject(), zarr.Bound(f.chunkBytes))
}

// measure returns what decoding chunks of the field takes: all but a few, and any at all.
func (f *field) measure() (usual sizes, most int64) {
	if f.Array.Chain.Raw() {
		begin, end := f.copier.Span(f.longest)
		usual.stored = min(f.chunkBytes, end-begin+rawPieceBytes)
		return usual, usual.stored
	}
	usual = sizesOf(f.Array)
	usual.stored = f.usuallyStored()
	longer := usual
	if len(f.Array.Levels) > 0 {
		longer.stored = max(longer.stored, zarr.Bound(f.chunkBytes))
	}
	return usual, longer.sum()
}

// mostIndexBytes returns the size of the largest index that a job which decodes a chunk may read.
func (f *field) mostIndexBytes() (n int64) {
	for i := range f.Array.Levels {
		n = max(n, f.indexBytes(i))
	}
	return n
}

// fits returns an error if a chunk of the field stored in storedBytes, with blosc blocks of
// blockBytes, has no room next to an index of its shards.
func (s *Storage) fits(f *field, storedBytes, blockBytes int64) error {
	n := f.mostIndexBytes()
	if f.Array.Chain.Raw() {
		begin, end := f.copier.Span(f.longest)
		if n += min(end-begin, f.chunkBytes); s.room.has(n) {
			return nil // the common case, which formats no message
		}
		return s.room.fits(n, fmt.Sprintf("what a crop needs of a chunk of %s (%s)%s", f.shown(), humanize.IBytes(uint64(f.chunkBytes)), f.besideIndex()), smallerChunks)
	}
	if n += storedBytes + f.usual.chunk + f.usual.first + f.usual.second + blockBytes; s.room.has(n) {
		return nil
	}
	return s.room.fits(n, fmt.Sprintf("decoding a chunk of %s (%s, stored in %s)%s", f.shown(), humanize.IBytes(uint64(f.chunkBytes)), humanize.IBytes(uint64(storedBytes)), f.besideIndex()), smallerChunks)
}

// besideIndex names the index that is held together with a chunk, if it is large.
func (f *field) besideIndex() string {
	n := f.mostIndexBytes()
	if n < leastEach {
		return ""
	}
	return fmt.Sprintf(" next to an index of %s", humanize.IBytes(uint64(n)))
}

// fitsBlocks is fits for a chunk that is a blosc buffer, whose header has the size of its blocks.
func (s *Storage) fitsBlocks(f *field, stored []byte) error {
	if f.Array.Chain.Steps[0].Codec != zarr.Blosc || s.config.dry != nil {
		return nil
	}
	h, err := blosc.Parse(stored, int64(len(stored)), f.firstBytes)
	if err != nil {
		return nil // decoding it returns the error
	}
	return s.fits(f, int64(len(stored)), h.BlockBytes)
}

// share divides the memory between descriptions, decoding, indexes of shards, and the cache of
// cells, which gets the rest.
func (s *Storage) share(cubes map[string]*cube) error {
	if s.config.room != nil {
		return nil // the memory is shared with its owner
	}
	indexes := int64(0)
	var largest *field
	var of *cube
	most := int64(0) // of the few longer chunks
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
		decoding = 0 // with so little memory, crops are decoded without a reservation
	}
	s.cells.Allow(max(s.config.MemoryBytes-decoding-indexes-described, 0))
	return nil
}

// leastEach is enough for decoding small chunks.
const leastEach = 1 << 20

// largestJob returns what the largest job that decodes something of the field usually takes.
func (f *field) largestJob() int64 {
	return f.mostIndexBytes() + f.usual.sum()
}

// describedBytes returns the memory held by descriptions: references, and the tables of objects.
func (s *Storage) describedBytes(cubes map[string]*cube) (n int64) {
	if held := s.caps.HeldBytes; held != nil {
		n = held()
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

// checkRoom returns an error if chunks of a field, or indexes of its shards, have no room.
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

// OneAtATime returns what decoding a chunk takes if there is no room for two at a time, and 0
// otherwise.
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

// together reports whether there is room for a number of jobs of n bytes each at the same time.
func (r *room) together(n, jobs int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.totalBytes == 0 || r.workers < jobs || jobs*(n-r.eachBytes.Load()) <= r.poolBytes
}

// rawPieceBytes is how far apart the beginnings of two wanted parts of an uncompressed chunk may be
// to be read at once: such chunks may be as long as an array.
const rawPieceBytes = 8 << 20

// rawPiece returns the number of the piece of an uncompressed chunk that a part begins in. Parts in
// different pieces are read separately. It is 0 for chunks that are decoded.
func (f *field) rawPiece(p *zarr.Part) int64 {
	if f.chunkBytes <= rawPieceBytes || !f.Array.Chain.Raw() {
		return 0
	}
	begin, _ := f.copier.Span(p)
	return begin / rawPieceBytes
}

// shown returns the name of a field's array for messages.
func (f *field) shown() string {
	if f.Path == "" {
		return "the array"
	}
	return "array " + f.Path
}

// sizes returns the most that a job takes while it is done. Stored bytes that were read from below
// are counted twice: here and as under way.
func (j job) sizes() sizes {
	switch {
	case j.came != nil:
		x := j.came.field.usual
		x.stored = j.came.size()
		return x
	case j.index != nil:
		return sizes{index: j.index.of.field.indexBytes(j.index.of.level)}
	case len(j.group) > 0:
		return j.group[0].sizes() // and the others take the same
	}
	return sizes{}
}

// sizes returns what beginning a task takes, which may also complete it.
func (t *task) sizes() sizes {
	x := t.field.usual
	if !t.placed() {
		x.index = t.field.indexBytes(t.level)
	}
	return x
}

// each returns how much each worker may hold. The workers of a storage that shares another's memory
// hold nothing.
func (s *Storage) each() int64 {
	if s.config.room != nil && s.room.totalBytes > 0 {
		return 0
	}
	return s.room.eachBytes.Load()
}

// take reserves what a job needs beyond what its worker may hold, if there is room. The caller
// holds s.mu.
func (s *Storage) take(n sizes) (taken int64, ok bool) {
	if taken = n.sum() - s.each(); taken <= 0 {
		return 0, true
	}
	if s.room.try(taken, &s.inLine) {
		return taken, true
	}
	return 0, false
}
