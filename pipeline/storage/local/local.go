// Package local implements a storage whose shards are files below a directory, read through an
// engine of package uring.
//
//	Read ──► file open? ──yes──► engine (uring) ──► same version? (identity) ──► Done
//	           └──no──► opener goroutine ──► same version? ──► engine
//
// A file is opened at its first read and kept open; the number of open files is bounded. It is
// compared with the listing when it is opened, and again after each read (package filesystem).
// Reads of a file that is not open wait for a goroutine that opens it, so Submit never waits for a
// disk.
//
// Openers are goroutines for work that may wait for another machine or process: opening files,
// mapping them, and closing files of network file systems. There are only a few, not counting those
// that hang.
//
// Files are mapped for readers that copy from the page cache: each file whole, and populated range
// by range. With a read lease from the kernel, a file does not change until the lease is released.
// Without one, the file is checked after each copy.
package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
	"github.com/lsiofs/lsiofs/uring"
)

// Storage is a storage.Storage. Done is never called from within Submit, so Submit may
// be called under locks that Done takes.
type Storage struct {
	root    string // absolute
	engine  uring.Engine
	direct  Direct
	omitted atomic.Pointer[[]storage.Omission] // by the last List
	// exceedsMemory is set if the files that were listed last don't fit in the page cache.
	exceedsMemory atomic.Bool
	files         fileCache
	readings      sync.Pool // of *reading

	maxMapped int64
	mapped    atomic.Int64 // files that are mapped, or about to be
	maps      bool         // files may be mapped
	evictions evictions
	leases    leases

	inflight storage.Inflight
	mu       sync.Mutex // the pool's lock
	pool     *uring.Pool[struct{}, job]
	openers  *uring.Crew[struct{}, job]
}

var _ storage.Storage = (*Storage)(nil)

// Caps implements storage.Storage. Nothing is mapped if all reads are direct, and on file systems
// that may drop pages while they are mapped.
func (s *Storage) Caps() storage.Caps {
	c := storage.Caps{StatStable: s.StatStable, Omitted: s.Omitted, OpenResident: s.OpenResident, Uncached: s.Uncached}
	if s.maps {
		c.Mapper = s
	}
	return c
}

// Open returns the storage of the files below the directory root, with DirectAuto. The caller still
// owns the engine, and closes it after the storage.
func Open(root string, engine uring.Engine) (*Storage, error) {
	return OpenDirect(root, engine, DirectAuto)
}

// OpenDirect is Open with a choice of when reads bypass the page cache.
func OpenDirect(root string, engine uring.Engine, direct Direct) (*Storage, error) {
	return OpenAmong(root, engine, direct, 1)
}

// OpenAmong is OpenDirect for one of several storages that are open at the same time: it keeps open
// and maps only its share of the files that a single storage could. Links below root must not lead
// to what filesystem.NeverVariable forbids.
func OpenAmong(root string, engine uring.Engine, direct Direct, storages int) (*Storage, error) {
	s, err := open(root, engine, direct, max(leastShare, storage.FilesShare.Of(leastOpen, maxOpen)/storages))
	if err == nil {
		s.maxMapped /= int64(storages)
	}
	return s, err
}

// leastShare is the least number of files that each of many storages may keep open: for the largest
// mixture that is a quarter of the usual limit of 1024, or half of it if each has a second
// descriptor.
const leastShare = 2

// OpenShared is Open for files that other processes write to as well: reads go through the page
// cache, and mapped files get no leases. So a program that opens a file for writing never waits for
// this process, which may have been stopped.
func OpenShared(root string, engine uring.Engine) (*Storage, error) {
	s, err := open(root, engine, DirectOff, storage.CopiesShare.Of(leastOpen, maxOpen))
	if err == nil {
		s.maxMapped = int64(storage.CopyMappingsShare.Of(0, maxMapped))
		s.leases.none = true
		s.files.never = nil // it is not a dataset
	}
	return s, err
}

// AlsoUnder sets further absolute names under which files are looked for if they are not found, or
// no longer, at their paths. A file found there is read if it is the one that was listed. AlsoUnder
// is called before anything is read; names may be called concurrently.
func (s *Storage) AlsoUnder(names func(storage.Object) []string) { s.files.others = names }

func open(root string, engine uring.Engine, direct Direct, maxOpen int) (*Storage, error) {
	absolute, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("dataset %s: %w", root, err)
	}
	info, err := os.Stat(absolute)
	if err != nil {
		return nil, fmt.Errorf("dataset: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("dataset %s is not a directory", root)
	}
	if err := direct.check(); err != nil {
		return nil, err
	}
	never, err := filesystem.NeverOf()
	if err != nil {
		return nil, err
	}
	s := &Storage{root: absolute, engine: engine, direct: direct, maxMapped: int64(storage.MappingsShare.Of(0, maxMapped)), maps: mapsAt(absolute, direct)}
	s.pool = uring.NewPool[struct{}, job](&s.mu)
	s.openers = s.pool.AddCrew(&uring.Crew[struct{}, job]{Most: func() int { return maxOpeners }, Do: s.do, Batch: 1})
	s.files.init(absolute, maxOpen)
	s.files.never = never
	s.files.later = func(f *uring.File) { s.start([]job{{closing: f}}) }
	s.evictions.start = time.Now()
	s.leases.init()
	return s, nil
}

// Stat describes a file as it is now. For Stat, anything but a regular file does not exist.
func (s *Storage) Stat(ctx context.Context, path string) (storage.Object, error) {
	if err := ctx.Err(); err != nil {
		return storage.Object{}, err
	}
	var systems filesystem.Systems
	full, now, err := s.look(path)
	if err != nil {
		return storage.Object{}, err
	}
	return describe(path, &now, systems.Traits(unix.AT_FDCWD, full, now.Device)), nil
}

// StatStable implements storage.Caps.
func (s *Storage) StatStable(ctx context.Context, path string) (storage.Object, error) {
	var systems filesystem.Systems
	settling := systems.Young()
	var before *filesystem.Attributes
	for last := false; ; {
		from := time.Now()
		full, now, err := s.look(path)
		if err != nil {
			return storage.Object{}, err
		}
		traits := systems.Traits(unix.AT_FDCWD, full, now.Device)
		young := settling.Add(&now, before, traits, from, time.Now())
		if young && last {
			now.NeverMet()
		}
		if !young || last {
			return describe(path, &now, traits), nil
		}
		before = &now
		if last, err = settling.Wait(ctx); err != nil {
			return storage.Object{}, err
		}
	}
}

// look returns the attributes of a regular file.
func (s *Storage) look(path string) (full string, now filesystem.Attributes, err error) {
	if full, err = s.files.fullPath(path); err != nil {
		return full, now, err
	}
	if now, err = filesystem.Stat(full); err != nil {
		return full, now, err
	}
	if !now.Regular() {
		err = &fs.PathError{Op: "stat", Path: full, Err: noFile{}}
	}
	return full, now, err
}

// noFile is the error about something that exists but is not a regular file.
type noFile struct{}

func (noFile) Error() string   { return "it is " + storage.ErrNoFile.Error() }
func (noFile) Unwrap() []error { return []error{storage.ErrNoFile, fs.ErrNotExist} }

// Close waits for the reads in flight and closes the files. It is idempotent, and does
// not close the engine.
func (s *Storage) Close() error {
	s.inflight.Close()
	s.mu.Lock()
	s.pool.Close()
	s.mu.Unlock()
	s.files.closeAll()
	s.mu.Lock()
	s.pool.Close() // waits for the openers that close files
	s.mu.Unlock()
	s.evictions.close()
	return nil
}

// describe returns the object for a file with attributes a on a file system with these traits.
func describe(path string, a *filesystem.Attributes, on uring.Traits) storage.Object {
	return storage.Object{Path: path, SizeBytes: a.SizeBytes, Version: a.Version(on)}
}

// Submit implements storage.Storage.
func (s *Storage) Submit(reads []*storage.Read) {
	open := s.inflight.Begin(len(reads))
	var jobs []job
	requests := make([]*uring.Request, 0, len(reads))
	for _, r := range reads {
		err := r.Check()
		if !open {
			err = storage.ErrClosed
		}
		if err != nil {
			jobs = append(jobs, job{read: r, err: err})
			continue
		}
		f, ready, first := s.files.use(r)
		switch {
		case ready:
			requests = append(requests, s.request(f, r))
		case first:
			jobs = append(jobs, job{file: f})
		}
	}
	if len(requests) > 0 {
		s.engine.Submit(requests)
	}
	s.start(jobs)
}

// reading is a read of an open file that was submitted to the engine. It is reused, so that reading
// allocates nothing.
type reading struct {
	request uring.Request
	storage *Storage
	file    *file
	read    *storage.Read
}

// request returns the engine's request for a read of an open file.
func (s *Storage) request(f *file, r *storage.Read) *uring.Request {
	x, _ := s.readings.Get().(*reading)
	if x == nil {
		x = new(reading)
		x.request.Done = x.done
	}
	x.storage, x.file, x.read = s, f, r
	x.request.File, x.request.OffsetBytes, x.request.Buf, x.request.Wanted = f.opened, r.OffsetBytes, r.Buf, r.Wanted
	return &x.request
}

// done is called by the engine, which does not use the request afterwards.
func (x *reading) done(n int, err error) {
	s, f, r := x.storage, x.file, x.read
	x.storage, x.file, x.read, x.request.File, x.request.Buf, x.request.Wanted = nil, nil, nil, nil, nil, nil
	s.readings.Put(x)
	s.completed(f, r, n, err)
}

// completed is called by the engine, which has verified the file.
func (s *Storage) completed(f *file, r *storage.Read, n int, err error) {
	if err == uring.ErrUnwanted {
		err = storage.ErrUnwanted
	}
	if err == nil && n < len(r.Buf) {
		err = fmt.Errorf("the file ended after %d bytes: %w", n, storage.ErrChanged)
	}
	s.files.release(f, errors.Is(err, storage.ErrChanged))
	s.done(r, err)
}

// done reports the result to a read's submitter.
func (s *Storage) done(r *storage.Read, err error) {
	r.Done(r.Failure(err))
	s.inflight.End()
}

// verifier returns the function with which an engine verifies an open file when reads of it have
// ended. The kernel has current attributes of local files, because they are open. For remote files
// the server is asked: the attributes that the kernel caches may be a minute old, while a read
// returned current bytes.
func verifier(fd int, o storage.Object, remote bool) func() error {
	if !remote {
		return func() error { return verify(fd, o) }
	}
	var l looks
	return func() error { return l.one(func() error { return filesystem.CheckAsking(fd, o) }) }
}

// looks are the queries about one file to its server, one at a time: callers that arrive during one
// wait for the next one, which serves them all. They wait in the engine's threads for slow reads
// (package uring), where stalled reads of the file wait too, and all get the same result.
type looks struct {
	mu   sync.Mutex
	now  *look // running, or the last one
	next *look // not begun
}

type look struct {
	ended chan struct{}
	err   error // once ended is closed
}

// one returns the error of a call of ask that begins after the call of one. The call may be made by
// another goroutine.
func (l *looks) one(ask func() error) error {
	l.mu.Lock()
	if x := l.next; x != nil {
		l.mu.Unlock()
		<-x.ended
		return x.err
	}
	x, before := &look{ended: make(chan struct{})}, l.now
	l.next = x
	l.mu.Unlock()
	if before != nil {
		<-before.ended
	}
	l.mu.Lock()
	l.now, l.next = x, nil
	l.mu.Unlock()
	x.err = ask()
	close(x.ended)
	return x.err
}

// Direct is when reads bypass the page cache (O_DIRECT).
type Direct string

const (
	// DirectAuto lets reads of at least 128 KiB bypass the page cache if it does not hold them,
	// once the listed files are larger than it can be. Such cold data is then read at twice the
	// speed for a fifth of the CPU. A dataset that fits is better read through the page cache: from
	// the second epoch on it comes from there, several times faster than from any disk.
	DirectAuto Direct = "auto"
	DirectOn   Direct = "on"  // all reads, if the file system permits it
	DirectOff  Direct = "off" // none
)

func (d Direct) check() error {
	switch d {
	case DirectAuto, DirectOn, DirectOff:
		return nil
	}
	return fmt.Errorf("direct reads %q are unknown: use %s, %s or %s", d, DirectAuto, DirectOn, DirectOff)
}

// Uncached implements storage.Caps.
func (s *Storage) Uncached() (storage.Storage, error) {
	u, err := s.OpenUncached()
	if err != nil {
		return nil, err
	}
	return u, nil
}

// OpenUncached is Uncached; the result is never nil without an error.
func (s *Storage) OpenUncached() (*Storage, error) {
	direct := DirectOn
	if s.direct == DirectOff {
		direct = DirectOff
	}
	return OpenDirect(s.root, s.engine, direct)
}

// policy returns how files that are opened now are read.
func (s *Storage) policy() uring.Direct {
	switch {
	case s.direct == DirectOn:
		return uring.DirectAlways
	case s.direct == DirectAuto && s.exceedsMemory.Load():
		return uring.DirectCold
	}
	return uring.DirectNever
}
