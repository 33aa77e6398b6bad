package cubes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/cubes/listing"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// Config says what cubes are made of.
type Config struct {
	Spec spec.Zarr
	// Base is the path of the cube if the root of the storage below is itself a hierarchy.
	Base string
	// Named are paths that a cube each has to have, as the user has named them one by one.
	Named []string
	// MemoryBytes bounds the decoded bricks that are kept, the indexes of shards, and what is decoded; 0:
	// nothing is kept, and what is decoded has no bound.
	MemoryBytes int64
	// Seed is the order's, for jitter.
	Seed uint64
	// MaxBrickBytes refuses arrays of larger bricks; 0: no bound.
	MaxBrickBytes int64
	// SkipDamaged leaves crops out that need a damaged object. Else Check finds it.
	SkipDamaged bool
	// Group opens the storage of the directory that the root of the storage below lies in, for the
	// coordinates of an array by itself; nil: there are none. Who opened it closes it.
	Group func() (storage.Storage, error)
	// TrustAbsence does not look again whether what was absent still is: at a service that would
	// be a request each time.
	TrustAbsence bool

	room *room // of another Storage; nil: its own
}

// Storage is a storage.Storage of cubes. Its methods may be called concurrently.
type Storage struct {
	config   Config
	under    storage.Storage
	resident storage.ResidentOpener // nil where nothing of under can be read from memory

	mu     sync.Mutex
	some   sync.Cond // a job, or the end
	quiet  sync.Cond // underWay or refusals has become 0
	cubes  map[string]*cube
	unused []Unused
	closed bool
	// underWay are reads whose Done has not returned, and refusals those that came after Close: each
	// has a goroutine, which tells so.
	underWay, refusals int
	jobs               queue[job]    // that go first
	tasks              queue[*task]  // that were not begun, in order
	largeJobs          queue[job]    // those of jobs that there was no room for
	largeTasks         queue[*task]  // and those of tasks
	inLine             waiter        // for the first of them
	waiting            map[key]*task // those, which may get more wants
	inFlight           int64         // bytes of reads below
	reserved           int64         // bytes that bricks which are being begun may read

	maxInFlight int64 // is where no more bricks are begun
	// From how many stored bytes on a brick's head is read first.
	longInMemory, longBelow int64

	room        *room
	cells       *cells
	future      *future
	indexes     *indexes
	submissions sync.Pool // of *submission
	workers     sync.WaitGroup

	bricks, storedBytes, hits, blockCount atomic.Uint64
}

var (
	_ storage.Storage   = (*Storage)(nil)
	_ profile.Adjuster  = (*Storage)(nil)
	_ storage.Checker   = (*Storage)(nil)
	_ storage.Outliner  = (*Storage)(nil)
	_ storage.Assembler = (*Storage)(nil)
)

// cube is a listed cube. It does not change.
type cube struct {
	*listing.Cube
	header  []byte
	leftOut LeftOut
	row     zarr.Row
	fields  []*field
}

// field is an array of a cube.
type field struct {
	*listing.Field
	copier     *zarr.Copier
	bricks     zarr.Grid
	objects    zarr.Grid
	brickBytes int64
	usual      sizes        // what decoding a brick takes, but a few
	most       int64        // and what decoding any takes
	firstBytes int64        // what the first step of decoding gives; of bricks that are stored as they are, all
	longest    *zarr.Part   // of all that crops have of bricks
	blockBytes atomic.Int64 // the size of blocks that are cells, or why there are none
}

// Over makes cubes of the arrays below the root of under, which the result closes.
func Over(under storage.Storage, c Config) *Storage {
	s := &Storage{config: c, under: under, cubes: map[string]*cube{}, waiting: map[key]*task{}, maxInFlight: inFlightBytes(c.MemoryBytes), longInMemory: longInMemory, longBelow: longBelow}
	s.some.L, s.quiet.L = &s.mu, &s.mu
	s.inLine.wake = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.some.Broadcast()
	}
	s.resident, _ = under.(storage.ResidentOpener)
	if s.room = c.room; s.room == nil {
		s.room = newRoom(c.MemoryBytes, runtime.GOMAXPROCS(0))
	}
	s.cells = newCells(c.MemoryBytes)
	s.future = newFuture(c.MemoryBytes)
	s.indexes = newIndexes(c.MemoryBytes / 8)
	for range runtime.GOMAXPROCS(0) {
		s.workers.Go(s.work)
	}
	return s
}

// List implements storage.Storage: it finds the cubes. What was listed before is forgotten.
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

// Unused is what lies where cubes do, and gives no crop.
type Unused = listing.Unused

// Unused are those that the last List has found beside the cubes, and cubes without a crop.
func (s *Storage) Unused() []Unused {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unused
}

// Omitted implements storage.Omitter.
func (s *Storage) Omitted() (list []storage.Omission) {
	for _, u := range s.Unused() {
		if len(list) == storage.MaxOmitted {
			break
		}
		list = append(list, storage.Omission{Path: u.Path, Reason: u.Why})
	}
	return list
}

// lacksNamed is the error where a path that was named is no cube, or one without a crop.
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

// open makes ready what reads of a cube go by.
func (s *Storage) open(x *listing.Cube) (*cube, error) {
	c := &cube{Cube: x, header: x.Cut.Header(), row: x.Cut.Row()}
	for k := range x.Fields {
		a := x.Fields[k].Array
		f := &field{Field: &x.Fields[k], copier: x.Cut.Copier(k), bricks: a.Bricks(), objects: a.Objects(), brickBytes: a.BrickBytes(), firstBytes: firstBytes(a), longest: longestPart(x.Cut.NewCrop(k), a.Brick)}
		if most := s.config.MaxBrickBytes; most > 0 && f.brickBytes > most {
			return nil, fmt.Errorf("%s: array %s has chunks of %s, more than the %s of --max-record: raise that if memory holds two of them for each core", x.Object.Path, f.Path, humanize.IBytes(uint64(f.brickBytes)), humanize.IBytes(uint64(most)))
		}
		f.usual, f.most = f.measure()
		if err := s.checkRoom(f); err != nil {
			return nil, fmt.Errorf("%s: %w", x.Object.Path, err)
		}
		c.fields = append(c.fields, f)
	}
	return c, nil
}

// Stat implements storage.Storage: a cube is what it was listed as, while its documents are. Its
// objects are looked at when they are read.
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

// Cube is one of those that List has found; nil if there is none with that path.
func (s *Storage) Cube(path string) *listing.Cube {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.cubes[path]; c != nil {
		return c.Cube
	}
	return nil
}

// Parts implements storage.Assembler: a cube is cut from its arrays.
func (s *Storage) Parts(path string) (list []string) {
	if c := s.Cube(path); c != nil {
		for i := range c.Fields {
			list = append(list, c.Fields[i].Path)
		}
	}
	return list
}

// Under is the storage that arrays are read from.
func (s *Storage) Under() storage.Storage { return s.under }

// AdjustProfile implements profile.Adjuster: a record is computed by itself, so that reading what
// lies between records saves nothing, and half of one costs as much as all of it.
func (s *Storage) AdjustProfile(p profile.Profile) profile.Profile {
	p.GapBytes, p.Apart = 0, true
	return p
}

// Stats are for status.
type Stats struct {
	// Decoded bricks, with those that are stored as they are, and how often one was found decoded.
	Decoded uint64 `json:"decoded"`
	Found   uint64 `json:"found"`
	// StoredBytes are what the decoded ones take where they are stored.
	StoredBytes uint64 `json:"stored_bytes"`
	// Blocks are those of bricks of which no more were decoded.
	Blocks uint64 `json:"blocks"`
	// HeldBytes are those of decoded bricks that are kept.
	HeldBytes int64 `json:"held_bytes"`
}

// Stats gives the figures of all reads so far.
func (s *Storage) Stats() Stats {
	return Stats{Decoded: s.bricks.Load(), Found: s.hits.Load(), StoredBytes: s.storedBytes.Load(), Blocks: s.blockCount.Load(), HeldBytes: s.cells.heldBytes()}
}

// MostHeldBytes is how many bytes of decoded bricks may be kept: what descriptions, indexes and what is being
// decoded leave of the memory.
func (s *Storage) MostHeldBytes() int64 { return s.cells.mostBytes() }

var errClosed = fmt.Errorf("the storage is closed: %w", fs.ErrClosed)

// Close waits for the reads under way. It is idempotent.
func (s *Storage) Close() error {
	s.mu.Lock()
	s.closed = true
	for s.underWay > 0 || s.refusals > 0 {
		s.quiet.Wait()
	}
	s.some.Broadcast()
	s.mu.Unlock()
	s.workers.Wait()
	s.cells.close()
	return s.under.Close()
}
