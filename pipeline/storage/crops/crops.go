package crops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/blockcache"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/listing"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// Config describes the cubes to make.
type Config struct {
	Spec spec.Zarr
	// Base is the path of the cube if the root of the storage below is itself a hierarchy.
	Base string
	// Named are the paths that the user named one by one: each has to be a cube.
	Named []string
	// MemoryBytes bounds the memory of cached chunks, indexes of shards, and decoding. 0: nothing
	// is cached, and decoding is unbounded.
	MemoryBytes int64
	// Seed is the seed of the order, for jitter.
	Seed uint64
	// IDPrefix comes before the cubes' paths in record IDs, on which jitter depends.
	IDPrefix string
	// MaxChunkBytes refuses arrays with larger chunks; 0: no bound.
	MaxChunkBytes int64
	// SkipDamaged leaves out the crops that need a damaged object. Without it Check reports the
	// damage.
	SkipDamaged bool
	// Group opens the storage of the parent directory of the root of the storage below, for the
	// coordinates of an array served by itself; nil: there are none. The caller of Group closes the
	// storage.
	Group func() (storage.Storage, error)
	// TrustAbsence does not check again whether an absent object is still absent: on an object
	// store that would be a request each time.
	TrustAbsence bool

	room *room // shared with another Storage; nil: its own
	dry  *Dry  // what the storage is in a dry run; nil: it reads
}

// Storage is a storage.Storage of cubes. Its methods may be called concurrently.
type Storage struct {
	config Config
	under  storage.Storage
	caps   storage.Caps // of under

	mu     sync.Mutex
	some   sync.Cond // signals a job, or the end
	quiet  sync.Cond // signals that underWay or refusals has become 0
	cubes  map[string]*cube
	unused []Unused
	closed bool
	// underWay counts reads whose Done has not returned. refusals counts reads that came after
	// Close: each has a goroutine that calls Done.
	underWay, refusals int
	jobs               queue[job]    // these go first
	tasks              queue[*task]  // not begun, in order
	largeJobs          queue[job]    // jobs that there was no room for
	largeTasks         queue[*task]  // tasks that there was no room for
	inLine             waiter        // for the first of them
	waiting            map[key]*task // tasks not begun, which may get more wants
	reading            map[key]*task // tasks being read below, which may get more wants
	inFlight           int64         // bytes of reads under way below
	reserved           int64         // bytes that chunks being begun may read

	maxInFlight int64 // at this many bytes no more chunks are begun
	// Chunks stored in at least this many bytes have their head read first.
	longInMemory, longBelow int64

	room        *room
	cells       *blockcache.Cache[key]
	future      *future
	indexes     *indexes
	submissions sync.Pool // of *submission
	workers     sync.WaitGroup

	chunks, storedBytes, decodedBytes, hits, blockCount atomic.Uint64
}

var _ storage.Storage = (*Storage)(nil)

// Caps implements storage.Storage. Ranges of the arrays' objects are not ranges of cubes, so what
// reads or announces ranges below is not passed on.
func (s *Storage) Caps() storage.Caps {
	return storage.Caps{
		Omitted: s.Omitted, Parts: s.Parts, Outline: s.Outline, Check: s.Check, Verifier: s,
		Hints: s, Status: s.caps.Status, AdjustProfile: s.AdjustProfile,
	}
}

// cube is a listed cube. It does not change.
type cube struct {
	*listing.Grid
	header  []byte
	leftOut LeftOut
	row     zarr.Row
	fields  []*field
}

// field is an array of a cube.
type field struct {
	*listing.Field
	copier     *zarr.Copier
	chunks     zarr.Grid
	objects    zarr.Grid
	chunkBytes int64
	usual      sizes        // what decoding takes for all but a few chunks
	most       int64        // what decoding takes for any chunk
	firstBytes int64        // output of the first step of decoding; the whole chunk if it is stored uncompressed
	longest    *zarr.Part   // the longest that any crop has of any chunk
	blockBytes atomic.Int64 // the size of blocks that are cells, or blocksUnknown or blocksNone
}

// Wrap returns a storage of the cubes made of the arrays below the root of under. Closing it closes
// under.
func Wrap(under storage.Storage, c Config) *Storage {
	s := &Storage{config: c, under: under, caps: under.Caps(), cubes: map[string]*cube{}, waiting: map[key]*task{}, reading: map[key]*task{}, maxInFlight: inFlightBytes(c.MemoryBytes), longInMemory: longInMemory, longBelow: longBelow}
	s.some.L, s.quiet.L = &s.mu, &s.mu
	s.inLine.wake = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.some.Broadcast()
	}
	if s.room = c.room; s.room == nil {
		s.room = newRoom(c.MemoryBytes, runtime.GOMAXPROCS(0))
	}
	s.cells = blockcache.New[key](c.MemoryBytes)
	s.future = newFuture(c.MemoryBytes)
	s.indexes = newIndexes(c.MemoryBytes / 8)
	if c.dry != nil {
		return s
	}
	for range runtime.GOMAXPROCS(0) {
		s.workers.Go(s.work)
	}
	return s
}

// List implements storage.Storage: it finds the cubes, and forgets those of the last listing.
func (s *Storage) List(ctx context.Context, match func(path string, isDir bool) bool, visit func(storage.Object) error) error {
	var unused []Unused
	found, err := listing.Find(ctx, listing.Config{Under: s.under, Spec: s.config.Spec, Base: s.config.Base, Match: match, MemoryBytes: s.room.totalBytes, LeftOut: func(u Unused) {
		unused = append(unused, u)
	}})
	if err != nil {
		return err
	}
	cubes := map[string]*cube{}
	for _, x := range found {
		c, err := s.open(x)
		if err == nil {
			err = s.leaveOut(ctx, c)
		}
		if err != nil {
			return err
		}
		cubes[x.Object.Path] = c
	}
	if err := cmp.Or(anyLeft(cubes), s.lacksNamed(cubes, unused)); err != nil {
		return err
	}
	if err := s.share(cubes); err != nil {
		return err
	}
	s.mu.Lock()
	s.cubes, s.unused = cubes, unused
	s.mu.Unlock()
	for _, x := range found {
		if err := visit(x.Object); err != nil {
			return err
		}
	}
	return nil
}

// Unused is something found among the cubes that gives no crop.
type Unused = listing.Unused

// Unused returns what the last List found besides the cubes, and cubes without a crop.
func (s *Storage) Unused() []Unused {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unused
}

// Omitted implements storage.Caps.
func (s *Storage) Omitted() (list []storage.Omission) {
	for _, u := range s.Unused() {
		if len(list) == storage.MaxOmitted {
			break
		}
		list = append(list, storage.Omission{Path: u.Path, Reason: u.Why})
	}
	return list
}

// lacksNamed returns an error if a named path is not a cube, or has no crop.
func (s *Storage) lacksNamed(cubes map[string]*cube, unused []Unused) error {
	for _, path := range s.config.Named {
		why := "nothing there has that name"
		if i := slices.IndexFunc(unused, func(u Unused) bool { return u.Path == path }); i >= 0 {
			why = unused[i].Why
		} else if cubes[path] != nil {
			continue
		}
		return fmt.Errorf("%s is named by the pattern, and crops can't be cut from it: %s: change the pattern, or mend the store", path, why)
	}
	return nil
}

// open prepares a cube for reading.
func (s *Storage) open(x *listing.Grid) (*cube, error) {
	c := &cube{Grid: x, header: x.Cut.Header(), row: x.Cut.Row()}
	for k := range x.Fields {
		a := x.Fields[k].Array
		f := &field{Field: &x.Fields[k], copier: x.Cut.Copier(k), chunks: a.Chunks(), objects: a.Objects(), chunkBytes: a.ChunkBytes(), firstBytes: firstBytes(a), longest: longestPart(x.Cut.NewCrop(k), a.Chunk)}
		if most := s.config.MaxChunkBytes; most > 0 && f.chunkBytes > most {
			return nil, fmt.Errorf("%s: array %s has chunks of %s, more than the %s of --max-record: raise that if memory holds two of them for each core", x.Object.Path, f.Path, humanize.IBytes(uint64(f.chunkBytes)), humanize.IBytes(uint64(most)))
		}
		f.usual, f.most = f.measure()
		if err := s.checkRoom(f); err != nil {
			return nil, fmt.Errorf("%s: %w", x.Object.Path, err)
		}
		c.fields = append(c.fields, f)
	}
	return c, nil
}

// Stat implements storage.Storage: a cube is unchanged while its documents are. Its objects are
// checked when they are read.
func (s *Storage) Stat(ctx context.Context, path string) (storage.Object, error) {
	c := s.Cube(path)
	if c == nil {
		return storage.Object{}, fmt.Errorf("%s was not listed: %w", path, fs.ErrNotExist)
	}
	for _, d := range c.Documents {
		now, err := s.under.Stat(ctx, d.Path)
		if errors.Is(err, fs.ErrNotExist) {
			err = storage.ErrChanged
		}
		if err == nil {
			err = storage.Compare(d, now)
		}
		if err != nil {
			return storage.Object{}, fmt.Errorf("%s: %w", d.Path, err)
		}
	}
	return c.Object, nil
}

// Cube returns the listed cube with a path, or nil if there is none.
func (s *Storage) Cube(path string) *listing.Grid {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.cubes[path]; c != nil {
		return c.Grid
	}
	return nil
}

// Parts implements storage.Caps: the parts of a cube are its arrays.
func (s *Storage) Parts(path string) (list []string) {
	if c := s.Cube(path); c != nil {
		for i := range c.Fields {
			list = append(list, c.Fields[i].Path)
		}
	}
	return list
}

// Under returns the storage that the arrays are read from.
func (s *Storage) Under() storage.Storage { return s.under }

// AdjustProfile implements storage.Caps: each record is computed by itself, so reading across
// gaps between records saves nothing, and half a record costs as much as a whole one.
func (s *Storage) AdjustProfile(p storage.Profile) storage.Profile {
	p.GapBytes, p.Apart = 0, true
	return p
}

// Stats are the counters in the status.
type Stats struct {
	// Decoded counts decoded chunks, including those that are stored uncompressed. Found counts
	// chunks found decoded in the cache.
	Decoded uint64 `json:"decoded"`
	Found   uint64 `json:"found"`
	// StoredBytes is the stored size of the decoded chunks.
	StoredBytes uint64 `json:"stored_bytes"`
	// DecodedBytes is the size of what was decoded: chunks, or blocks of them. Bytes that are stored
	// uncompressed are not counted.
	DecodedBytes uint64 `json:"decoded_bytes"`
	// Blocks counts decoded blocks of chunks that were decoded only in part.
	Blocks uint64 `json:"blocks"`
	// HeldBytes is the size of the cache of decoded chunks.
	HeldBytes int64 `json:"held_bytes"`
}

// Add adds the counters of another storage.
func (x *Stats) Add(y Stats) {
	x.Decoded += y.Decoded
	x.Found += y.Found
	x.StoredBytes += y.StoredBytes
	x.DecodedBytes += y.DecodedBytes
	x.Blocks += y.Blocks
	x.HeldBytes += y.HeldBytes
}

// Stats returns the counters of all reads so far.
func (s *Storage) Stats() Stats {
	return Stats{Decoded: s.chunks.Load(), Found: s.hits.Load(), StoredBytes: s.storedBytes.Load(), DecodedBytes: s.decodedBytes.Load(), Blocks: s.blockCount.Load(), HeldBytes: s.cells.Stats().HeldBytes}
}

// MostHeldBytes returns how many bytes of decoded chunks may be cached: the memory that remains
// after descriptions, indexes, and chunks being decoded.
func (s *Storage) MostHeldBytes() int64 { return s.cells.Stats().MaxBytes }

// Close waits for the reads under way, and closes the storage below. It is idempotent.
func (s *Storage) Close() error {
	s.mu.Lock()
	s.closed = true
	for s.underWay > 0 || s.refusals > 0 {
		s.quiet.Wait()
	}
	s.some.Broadcast()
	s.mu.Unlock()
	s.workers.Wait()
	s.cells.Close()
	return s.under.Close()
}

// Outline implements storage.Caps: an index pass only needs the header, so no chunk is decoded
// for it.
func (s *Storage) Outline(o storage.Object) (io.ReaderAt, error) {
	s.mu.Lock()
	c := s.cubes[o.Path]
	s.mu.Unlock()
	if c == nil {
		return nil, fmt.Errorf("%s was not listed: %w", o.Path, storage.ErrChanged)
	}
	if err := storage.Compare(o, c.Object); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Path, err)
	}
	return outline{c.header, o.SizeBytes}, nil
}

// outline is a header followed by zeros.
type outline struct {
	header    []byte
	sizeBytes int64
}

func (x outline) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read at offset %d", off)
	}
	n := int(max(0, min(int64(len(p)), x.sizeBytes-off)))
	clear(p[:n])
	if off < int64(len(x.header)) {
		copy(p[:n], x.header[off:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
