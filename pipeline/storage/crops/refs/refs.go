// Package refs presents a file that describes a Zarr hierarchy as a directory of that hierarchy.
// Such a file is a reference file (package kerchunk), whose objects are ranges of other files, or a
// zip file (package zipped), whose objects are its members. The directory has the file's name:
//
//	storage below         this one
//	refs.json        ──►  refs.json/t2m/.zarray     text that is in refs.json
//	data/2018.nc          refs.json/t2m/0.0         [41240, 49363) of data/2018.nc
//
// Package crops uses it like any other storage.
//
// # What may be read
//
// A reference file determines which files are read on behalf of its user, and may come from
// anywhere. So it may only name files below the root, by paths relative to its own directory, or by
// paths and URLs that begin with one of Config.Roots. Links are followed: the root's owner made
// them. Each range has to be within its file when the file is listed, and a read never leaves the
// range.
//
// # Changing files
//
// The version of an object is a hash of its file's version and its place there, or of its text. So
// after a file is rewritten, reads of all objects in it fail, and after a reference file is
// rewritten, reads of the objects that differ now. Stat looks at both. Reads use what was last
// listed or looked up, and the storage below compares the file's version around each.
//
// # Checksums
//
// A member of a zip file that is read whole has to have the CRC-32 of the zip directory. That
// covers documents, and chunks that are objects by themselves. Shards and uncompressed chunks are
// read in part, which that checksum can't verify: a shard's index and most codecs have their own.
//
// # Memory
//
// Up to maxIdle files stay open. The content of the describing files stays in memory (package
// table), up to Config.MemoryBytes, and so do the versions of all listed files.
package refs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/refs/table"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/refs/zipped"
)

// Config describes which files describe hierarchies.
type Config struct {
	// One is the only describing file, below the root. If it is "", Match reports which files are.
	One   string
	Match func(path string, isDir bool) bool
	// Roots are other names of the root, absolute paths or URLs, that the names of files may begin
	// with.
	Roots []string
	// Foreign is called with the first bytes of a file that does not describe a hierarchy. It
	// returns an error if they show what the file is. It may be nil.
	Foreign func(head []byte) error
	// MemoryBytes bounds the content of all describing files together, at least leastHeldBytes; 0:
	// up to maxHeldBytes.
	MemoryBytes int64
}

// Is reports whether a file can describe a hierarchy, by its name.
func Is(name string) bool {
	return zipped.Is(name) || strings.HasSuffix(strings.ToLower(name), ".json")
}

// Storage is a storage.Storage of hierarchies. Its methods may be called concurrently.
type Storage struct {
	config Config
	under  storage.Storage
	caps   storage.Caps // of under

	maxHeld int64
	loading sync.Mutex // held while one file is read

	mu       sync.RWMutex
	archives map[string]*archive // by path
	inflight storage.Inflight
	idle     idle
}

var _ storage.Storage = (*Storage)(nil)

// Caps implements storage.Storage.
func (s *Storage) Caps() storage.Caps {
	c := storage.Caps{StatStable: s.StatStable, HeldBytes: s.HeldBytes, OpenResident: s.OpenResident}
	c.Omitted, c.Status, c.AdjustProfile = s.caps.Omitted, s.caps.Status, s.caps.AdjustProfile
	return c
}

const (
	maxHeldBytes   = 4 << 30 // about 50 million references
	leastHeldBytes = 16 << 20
)

// Wrap returns a storage of the hierarchies that files of under describe. Closing it closes under.
func Wrap(under storage.Storage, c Config) *Storage {
	s := &Storage{config: c, under: under, caps: under.Caps(), maxHeld: maxHeldBytes, archives: map[string]*archive{}}
	if c.MemoryBytes > 0 {
		s.maxHeld = min(max(c.MemoryBytes, leastHeldBytes), maxHeldBytes)
	}
	return s
}

// HeldBytes returns about what the describing files take in memory.
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

// Stat implements storage.Storage. The describing file is read again if it has changed.
func (s *Storage) Stat(ctx context.Context, path string) (storage.Object, error) {
	return s.describe(ctx, path, s.under.Stat)
}

// StatStable implements storage.Caps.
func (s *Storage) StatStable(ctx context.Context, path string) (storage.Object, error) {
	return s.describe(ctx, path, s.settled)
}

// describe is Stat, with a function to look files up.
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

// look looks up a file in the storage below.
type look func(ctx context.Context, path string) (storage.Object, error)

// settled looks up a file, and waits until a later change would be visible in its version.
func (s *Storage) settled(ctx context.Context, path string) (storage.Object, error) {
	o, err := s.under.Stat(ctx, path)
	if s.caps.StatStable != nil && err == nil { // it exists
		return s.caps.StatStable(ctx, path)
	}
	return o, err
}

// cut splits a path after the file that describes a hierarchy.
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

// load reads the file that describes a hierarchy, unless this version has been read.
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

// known returns the archive of the present version of a file, or nil.
func (s *Storage) known(now storage.Object) *archive {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if a := s.archives[now.Path]; a != nil && a.listed == now {
		return a
	}
	return nil
}

// Close waits for the reads in flight. It is idempotent.
func (s *Storage) Close() error {
	s.inflight.Close()
	return errors.Join(s.idle.close(), s.under.Close())
}

// find returns the source of a listed object.
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

// Submit implements storage.Storage.
func (s *Storage) Submit(reads []*storage.Read) {
	var below []*storage.Read
	var own []func()
	open := s.inflight.Begin(len(reads))
	for _, r := range reads {
		x, err := source{}, storage.ErrClosed
		if open {
			if err = r.Check(); err == nil {
				x, err = s.find(r.Object)
			}
		}
		done := func(err error) {
			defer s.inflight.End()
			if err == nil {
				err = x.check(r.Buf)
			}
			r.Done(r.Failure(err))
		}
		if err != nil || x.own {
			own = append(own, func() { done(copyInline(r, x, err)) })
			continue
		}
		below = append(below, &storage.Read{Object: x.of, OffsetBytes: x.offset + r.OffsetBytes, Epoch: r.Epoch, Buf: r.Buf, Wanted: r.Wanted, Done: done})
	}
	if len(own) > 0 {
		go func() {
			for _, one := range own {
				one()
			}
		}()
	}
	if len(below) > 0 {
		s.under.Submit(below)
	}
}

// copyInline completes a read of inline bytes, or one that has failed.
func copyInline(r *storage.Read, x source, err error) error {
	if err != nil {
		return err
	}
	if r.Wanted != nil && !r.Wanted() {
		return storage.ErrUnwanted
	}
	copy(r.Buf, x.inline[r.OffsetBytes:])
	return nil
}

// OpenResident implements storage.Caps.
func (s *Storage) OpenResident(o storage.Object) (storage.Resident, error) {
	x, err := s.find(o)
	if err != nil {
		return nil, &storage.Error{Object: o.Path, SizeBytes: o.SizeBytes, Err: err}
	}
	if x.own {
		return inMemory(x.inline), nil
	}
	if s.caps.OpenResident == nil {
		return nil, nil
	}
	r := s.idle.take(x.of)
	if r == nil {
		if r, err = s.caps.OpenResident(x.of); r == nil || err != nil {
			return nil, err
		}
	}
	return &part{Resident: r, source: x, idle: &s.idle}, nil
}

// part is a range of a file that is read from memory.
type part struct {
	storage.Resident
	source
	idle    *idle
	changed bool
}

// Unchanged implements storage.Resident.
func (p *part) Unchanged() error {
	err := p.Resident.Unchanged()
	p.changed = p.changed || err != nil
	return err
}

// Close implements storage.Resident: the file stays open for other ranges of it.
func (p *part) Close() error {
	if p.changed {
		return p.Resident.Close()
	}
	return p.idle.give(p.of, p.Resident)
}

// maxIdle is how many files stay open that are not being read.
const maxIdle = 32

// idle holds files that are open after a read from memory, because one file holds many objects.
// Unchanged checks what was read from them, as for any other file.
type idle struct {
	mu     sync.Mutex
	list   []idleFile // most recently read last
	closed bool
}

type idleFile struct {
	of storage.Object
	r  storage.Resident
}

// take returns an open file, or nil if there is none.
func (x *idle) take(of storage.Object) storage.Resident {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, f := range slices.Backward(x.list) {
		if f.of == of {
			x.list = slices.Delete(x.list, i, i+1)
			return f.r
		}
	}
	return nil
}

// give keeps an open file; if there are too many, it closes the least recently read one.
func (x *idle) give(of storage.Object, r storage.Resident) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return r.Close()
	}
	x.list = append(x.list, idleFile{of, r})
	if len(x.list) <= maxIdle {
		return nil
	}
	first := x.list[0]
	x.list = slices.Delete(x.list, 0, 1)
	return first.r.Close()
}

// close closes them, and those that are given later.
func (x *idle) close() (err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	for _, f := range x.list {
		err = errors.Join(err, f.r.Close())
	}
	x.list = nil
	return err
}

func (p *part) Holds(off, size int64) bool {
	return p.has(off, size) && p.Resident.Holds(p.offset+off, size)
}

func (p *part) ReadAt(b []byte, off int64) bool {
	// For damaged bytes, the ordinary read returns the error.
	return p.has(off, int64(len(b))) && p.Resident.ReadAt(b, p.offset+off) && p.check(b) == nil
}

func (p *part) has(off, size int64) bool {
	return off >= 0 && size <= p.object.SizeBytes && off <= p.object.SizeBytes-size
}

// inMemory is an object whose bytes are in the reference file.
type inMemory []byte

func (m inMemory) Holds(off, size int64) bool {
	return off >= 0 && size <= int64(len(m)) && off <= int64(len(m))-size
}

func (m inMemory) ReadAt(b []byte, off int64) bool {
	return m.Holds(off, int64(len(b))) && copy(b, m[off:]) == len(b)
}

// Unchanged implements storage.Resident: the bytes in memory are those that were listed.
func (m inMemory) Unchanged() error { return nil }

func (m inMemory) Close() error { return nil }
