// Package refs is storage of Zarr hierarchies that one file describes each: a reference file (package
// kerchunk), whose objects are ranges of other files, or a zip file (package zipped), whose objects
// are its members. Each is shown as a directory that has the file's name:
//
//	storage below         this one
//	refs.json        ──►  refs.json/t2m/.zarray     text that is in refs.json
//	data/2018.nc          refs.json/t2m/0.0         [41240, 49363) of data/2018.nc
//
// Package cubes lies over it as over any other storage.
//
// # What may be read
//
// A reference file says what is read on behalf of its reader, and may come from anywhere. So it
// names files below the root alone, by paths relative to its own directory, or by paths and URLs
// that begin with one of Config.Roots. Links are followed: they are those of the root's owner. Each
// range has to lie within its file when the file is listed, and a read never leaves the range.
//
// # What changes
//
// The version of an object is a hash of its file's version and its place there, or of its text. So
// a file that is written again is an error for all objects in it, and a reference file that is
// written again for those that are different now. Stat looks at both; reads go by what was listed or
// looked at last, and the storage below compares the file around each.
//
// # Checksums
//
// A member of a zip file that is read whole has to have the CRC-32 that the directory says: documents,
// and bricks that are objects by themselves. Of a shard, and of a brick that is stored as it is, parts
// are read, which that checksum says nothing about: a shard's index, and most codecs, have their own.
//
// # Memory
//
// Up to maxIdle files stay open. What the describing files say stays in memory (package table), up to
// Config.MemoryBytes, and the versions of all files that were listed.
package refs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/cubes/refs/table"
	"github.com/lsiofs/lsiofs/pipeline/storage/cubes/refs/zipped"
)

// Config says which files describe hierarchies.
type Config struct {
	// One is the only one, below the root. If it is "", Match says which files are.
	One   string
	Match func(path string, isDir bool) bool
	// Roots are other names of the root, absolute paths or URLs, that names of files may begin
	// with.
	Roots []string
	// Foreign is asked about the first bytes of a file that describes no hierarchy: it returns an error
	// if they show what the file is. It may be nil.
	Foreign func(head []byte) error
	// MemoryBytes bounds what all files say together, but not below leastHeldBytes; 0: up to maxHeldBytes.
	MemoryBytes int64
}

// Is says whether a file can describe a hierarchy, by its name.
func Is(name string) bool {
	return zipped.Is(name) || strings.HasSuffix(strings.ToLower(name), ".json")
}

// Storage is a storage.Storage of hierarchies. Its methods may be called concurrently.
type Storage struct {
	config Config
	under  storage.Storage

	maxHeld int64
	loading sync.Mutex // one at a time

	mu       sync.RWMutex
	archives map[string]*archive // by path
	closed   bool
	// underWay are reads whose Done has not returned.
	underWay sync.WaitGroup
	idle     idle
}

var (
	_ storage.Storage        = (*Storage)(nil)
	_ storage.Settler        = (*Storage)(nil)
	_ storage.ResidentOpener = (*Storage)(nil)
)

const (
	maxHeldBytes   = 4 << 30 // some 50 million references
	leastHeldBytes = 16 << 20
)

// Over shows hierarchies that files of under describe. Closing the result closes under.
func Over(under storage.Storage, c Config) *Storage {
	s := &Storage{config: c, under: under, maxHeld: maxHeldBytes, archives: map[string]*archive{}}
	if c.MemoryBytes > 0 {
		s.maxHeld = min(max(c.MemoryBytes, leastHeldBytes), maxHeldBytes)
	}
	return s
}

// HeldBytes is about what the describing files take in memory.
func (s *Storage) HeldBytes() int64 { return s.heldBut("") }

// heldBut is HeldBytes without one file.
func (s *Storage) heldBut(name string) (n int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for at, x := range s.archives {
		if at != name {
			n += x.table.HeldBytes()
		}
	}
	return n
}

// Stat implements storage.Storage. What describes the hierarchy is read again if it has changed.
func (s *Storage) Stat(ctx context.Context, path string) (storage.Object, error) {
	return s.describe(ctx, path, s.under.Stat)
}

// Settled implements storage.Settler.
func (s *Storage) Settled(ctx context.Context, path string) (storage.Object, error) {
	return s.describe(ctx, path, s.settled)
}

// describe is Stat, with how files are looked at.
func (s *Storage) describe(ctx context.Context, path string, look look) (storage.Object, error) {
	if err := ctx.Err(); err != nil {
		return storage.Object{}, err
	}
	name, key, ok := s.cut(path)
	if !ok {
		return storage.Object{}, notThere(path)
	}
	a, err := s.load(ctx, name, look)
	if err != nil {
		return storage.Object{}, err
	}
	i, found := a.table.Find(key)
	if !found {
		return storage.Object{}, notThere(path)
	}
	return a.object(ctx, s.under, i, look)
}

func notThere(path string) error {
	return &fs.PathError{Op: "stat", Path: path, Err: fs.ErrNotExist}
}

// look looks at a file below.
type look func(ctx context.Context, path string) (storage.Object, error)

// settled waits until a change would show.
func (s *Storage) settled(ctx context.Context, path string) (storage.Object, error) {
	o, err := s.under.Stat(ctx, path)
	if x, ok := s.under.(storage.Settler); ok && err == nil {
		return x.Settled(ctx, path)
	}
	return o, err
}

// cut cuts a path behind the file that describes a hierarchy.
func (s *Storage) cut(path string) (name, key string, ok bool) {
	if s.config.One != "" {
		key, ok = strings.CutPrefix(path, s.config.One+"/")
		return s.config.One, key, ok
	}
	for i, c := range path {
		if c == '/' && Is(path[:i]) && s.config.Match(path[:i], false) {
			return path[:i], path[i+1:], true
		}
	}
	return "", "", false
}

// load reads what describes a hierarchy, unless it was read and is the same.
func (s *Storage) load(ctx context.Context, name string, look look) (*archive, error) {
	now, err := look(ctx, name)
	if err != nil {
		return nil, err
	}
	if a := s.known(now); a != nil {
		return a, nil
	}
	s.loading.Lock()
	defer s.loading.Unlock()
	if now, err = s.settled(ctx, name); err != nil {
		return nil, err
	}
	if a := s.known(now); a != nil {
		return a, nil
	}
	others := s.heldBut(name)
	a, err := s.read(ctx, now, s.maxHeld-others)
	if err != nil {
		if ctx.Err() == nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		if others > 0 && errors.Is(err, table.ErrMemory) {
			err = fmt.Errorf("%w; or name fewer of these files by a pattern: those before it take %s", err, humanize.IBytes(uint64(others)))
		}
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.archives[name]; before != nil {
		a.inherit(before)
	}
	s.archives[name] = a
	return a, nil
}

// known is the archive that was made of a file as it is now.
func (s *Storage) known(now storage.Object) *archive {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if a := s.archives[now.Path]; a != nil && a.listed == now {
		return a
	}
	return nil
}

var errClosed = fmt.Errorf("the storage is closed: %w", fs.ErrClosed)

// Close waits for the reads in flight. It is idempotent.
func (s *Storage) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.underWay.Wait()
	return errors.Join(s.idle.close(), s.under.Close())
}

// find is what an object is made of that was listed.
func (s *Storage) find(o storage.Object) (source, error) {
	name, key, ok := s.cut(o.Path)
	s.mu.RLock()
	a := s.archives[name]
	s.mu.RUnlock()
	if !ok || a == nil {
		return source{}, fmt.Errorf("it was not listed: %w", storage.ErrChanged)
	}
	i, found := a.table.Find(key)
	if !found {
		return source{}, fmt.Errorf("it is not there: %w", storage.ErrChanged)
	}
	x, known := a.source(i)
	if !known {
		return source{}, fmt.Errorf("it was not listed: %w", storage.ErrChanged)
	}
	return x, storage.Compare(o, x.object)
}

// check says whether a read is possible at all.
func check(r *storage.Read) error {
	size := int64(len(r.Buf))
	switch {
	case size == 0:
		return errors.New("a read needs a buffer")
	case r.OffsetBytes < 0 || size > r.Object.SizeBytes || r.OffsetBytes > r.Object.SizeBytes-size:
		return fmt.Errorf("the range is not inside of the object, which has %d bytes", r.Object.SizeBytes)
	}
	return nil
}
