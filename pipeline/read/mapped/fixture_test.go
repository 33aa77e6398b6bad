package mapped

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

const (
	block      = int64(storage.MapBlockBytes)
	shardBytes = 4 * block // four pieces of one block each
)

// files is a mapper of shards in memory, controlled by a test. What is not populated is
// overwritten.
type files struct {
	mu       sync.Mutex
	mappings []*file // all that were ever made
	open     int
	most     int           // maximum of concurrent mappings, 0 for any number
	fails    error         // the error of each attempt to open
	hangs    chan struct{} // if set, opening waits for it

	evictions atomic.Uint64
	breaks    atomic.Uint64
	unleased  atomic.Bool
	changed   atomic.Bool
	cold      atomic.Bool
	checks    atomic.Int64
	looks     atomic.Int64 // at the page cache
	held      atomic.Int64 // times that ranges are populated
}

func (s *files) Evictions() uint64              { return s.evictions.Load() }
func (s *files) Breaks() uint64                 { return s.breaks.Load() }
func (s *files) Unbroken(breaks uint64) bool    { return breaks == s.breaks.Load() }
func (s *files) LeaseStats() storage.LeaseStats { return storage.LeaseStats{Held: 7} }

func object(shard int) storage.Object {
	return storage.Object{Path: fmt.Sprintf("shard-%d", shard), SizeBytes: shardBytes}
}

func (s *files) Map(o storage.Object, done func(storage.Mapping, error)) {
	go func() {
		if s.hangs != nil {
			<-s.hangs
		}
		done(s.openNow(o))
	}()
}

func (s *files) openNow(o storage.Object) (storage.Mapping, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails != nil {
		return nil, s.fails
	}
	if s.most > 0 && s.open >= s.most {
		return nil, storage.ErrTooManyMappings
	}
	s.open++
	f := &file{s: s, path: o.Path, mem: bytes.Repeat([]byte{poison}, int(shardBytes))}
	s.mappings = append(s.mappings, f)
	return f, nil
}

// last returns the most recently opened mapping of a shard.
func (s *files) last(shard int) *file {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range slices.Backward(s.mappings) {
		if f.path == object(shard).Path {
			return f
		}
	}
	return nil
}

// file is a mapping. Each of its populated bytes is the number of its block.
type file struct {
	s    *files
	path string
	mem  []byte
	lost atomic.Bool // it is of a copy that is gone

	mu     sync.Mutex
	uses   [shardBytes / block]int
	closed bool
}

const poison = 0xee

func (f *file) Bytes() []byte { return f.mem }

func (f *file) Populate(off, size int64) (added int64, ok bool) {
	if f.s.cold.Load() {
		return 0, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.s.held.Add(1)
	for b := off / block; b <= (off+size-1)/block; b++ {
		if f.uses[b]++; f.uses[b] == 1 {
			added += block
			copy(f.mem[b*block:(b+1)*block], bytes.Repeat([]byte{byte(b)}, int(block)))
		}
	}
	return added, true
}

func (f *file) Drop(off, size int64) (freed int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.s.held.Add(-1)
	for b := off / block; b <= (off+size-1)/block; b++ {
		if f.uses[b]--; f.uses[b] == 0 {
			freed += block
			copy(f.mem[b*block:(b+1)*block], bytes.Repeat([]byte{poison}, int(block)))
		}
	}
	return freed
}

func (f *file) Trim(int64, int64) {}

func (f *file) Resident(int64, int64) bool {
	f.s.looks.Add(1)
	return !f.s.cold.Load()
}

func (f *file) Check() error {
	f.s.checks.Add(1)
	if f.lost.Load() {
		return &storage.Error{Object: f.path, SizeBytes: shardBytes, Err: storage.ErrReadAgain}
	}
	if f.s.changed.Load() {
		return &storage.Error{Object: f.path, SizeBytes: shardBytes, Err: storage.ErrChanged}
	}
	return nil
}

func (f *file) Leased() bool         { return !f.s.unleased.Load() }
func (f *file) OpenForWriting() bool { return false }
func (f *file) Lost() error          { return nil }

func (f *file) Close() error {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if f.closed {
		return errors.New("closed twice")
	}
	f.closed = true
	f.s.open--
	return nil
}

// owner has tables, and records its calls. It takes its lock as an owner does, and calls Maps while
// it holds it.
type owner struct {
	t    *testing.T
	maps *Maps

	mu        sync.Mutex
	tables    map[int]*Region
	refused   []int
	forgotten []int
	lost      []string
	answers   chan int             // of pieces, if set
	onForget  func(victim *Region) // before its table is forgotten
}

func (o *owner) lock() func() {
	o.mu.Lock()
	o.maps.Stats() // deadlocks if Maps has kept its lock
	return o.mu.Unlock
}

func (o *owner) Mapped(piece int, r *Region) {
	defer o.answer(piece)
	defer o.lock()()
	require.Equal(o.t, piece, r.Piece())
	require.EqualValues(o.t, 1, r.Pins.Count())
	o.tables[piece] = r
	r.Live.Add(int64(len(r.Bytes)))
	r.Pins.Unpin()
}

func (o *owner) Refused(pieces []int) {
	unlock := o.lock()
	o.refused = append(o.refused, pieces...)
	unlock()
	for _, p := range pieces {
		o.answer(p)
	}
}

func (o *owner) answer(piece int) {
	if o.answers != nil {
		o.answers <- piece
	}
}

func (o *owner) Forget(regions []*Region) {
	defer o.lock()()
	for _, r := range regions {
		if o.tables[r.Piece()] != r {
			continue
		}
		if o.onForget != nil {
			o.onForget(r)
		}
		delete(o.tables, r.Piece())
		o.forgotten = append(o.forgotten, r.Piece())
	}
}

func (o *owner) Lost(piece, record int, err error) error {
	defer o.lock()()
	o.lost = append(o.lost, fmt.Sprintf("record %d of piece %d", record, piece))
	return fmt.Errorf("record %d of piece %d: %w", record, piece, err)
}

// newMaps returns Maps that wait for files to be opened however long it takes; everything is closed
// when the test ends, and nothing must be left.
func newMaps(t *testing.T, s *files, change func(c *Config)) (*Maps, *owner) {
	t.Helper()
	c := Config{Mapper: s, Object: object, LimitBytes: 1 << 30, TableLimitBytes: 1 << 20, Patience: time.Hour}
	if change != nil {
		change(&c)
	}
	o := &owner{t: t, tables: map[int]*Region{}, answers: make(chan int, 100)}
	o.maps = New(c, o)
	t.Cleanup(func() {
		require.NoError(t, o.maps.Close())
		require.Equal(t, Stats{Leases: s.LeaseStats()}, o.maps.Stats(), "nothing is counted that is not there")
		require.Zero(t, s.held.Load(), "what was populated is dropped")
		require.Zero(t, s.open, "all mappings are closed")
		require.Empty(t, o.tables, "the owner was told")
	})
	return o.maps, o
}

// request returns a request for a piece of one block. The pieces of a shard are numbered from 10
// times its number on.
func request(piece int) Request {
	return Request{Piece: piece, Shard: piece / 10, OffsetBytes: int64(piece%10) * block, SizeBytes: block, TableBytes: 100}
}

// ask has a piece mapped, and waits for the answer: nil means that it is read.
func (o *owner) ask(piece int) *Region {
	o.t.Helper()
	var w Work
	if !o.maps.Request(&w, request(piece)) {
		return nil
	}
	o.maps.Do(&w)
	require.Equal(o.t, piece, <-o.answers)
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tables[piece]
}
