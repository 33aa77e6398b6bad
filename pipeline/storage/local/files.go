package local

import (
	"container/list"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
	"github.com/lsiofs/lsiofs/uring"
)

// maxOpen is how many files are kept open: enough for several streams whose orders have 32 lanes
// each (the default), and half of the usual limit of 1024. A file that is read directly has a
// second descriptor.
const maxOpen = 512

// leastOpen is the minimum, however low the process's limit is.
const leastOpen = 8

// file is one object's open file, or one that is being opened.
type file struct {
	object storage.Object
	opened *uring.File // nil until it is open
	remote bool        // closing it may wait for another process or machine

	// The rest is guarded by the cache's lock.
	waiting []*storage.Read // reads that arrived before it was open
	reads   int             // reads using it, including waiting ones
	idle    *list.Element   // its place in the cache's idle list, or nil
	gone    bool            // removed from the cache: closed after its last read
}

// fileCache keeps files open: those in use, and the most recently used idle ones, together at most
// limit.
type fileCache struct {
	root  string
	never *filesystem.Never // for paths below root
	limit int
	// openObject opens an object's file and checks that it is the one that was listed.
	openObject func(storage.Object) (int, error)
	// others returns further absolute names of an object, to try if it is not found, or no longer,
	// at its path. nil: there are none.
	others func(storage.Object) []string
	// later closes a file on a goroutine that may block, and then calls hasClosed.
	later func(*uring.File)

	mu    sync.Mutex
	freed sync.Cond // signals that a descriptor was closed, or that a file became idle
	files map[storage.Object]*file
	idle  list.List // of *file, least recently used first
	// open counts descriptors that are open or about to be opened, not including stuck openers.
	open    int
	closing int    // descriptors waiting to be closed by later
	closes  uint64 // descriptors closed so far
	// lone is an opener that the others wait for, because it could not get a descriptor while they
	// were opening files.
	lone *opener
}

func (c *fileCache) init(root string, limit int) {
	c.root, c.limit = root, limit
	c.freed.L = &c.mu
	c.files = make(map[storage.Object]*file)
	c.openObject = func(o storage.Object) (int, error) { return openObject(c, o) }
}

// fullPath returns an object's absolute path. A path that leads out of the root is an error.
func (c *fileCache) fullPath(path string) (string, error) {
	if !filepath.IsLocal(path) {
		return "", &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("not a path below the dataset: %w", fs.ErrInvalid)}
	}
	return filepath.Join(c.root, path), nil
}

// use registers a read with its object's file. If the file is not open yet (ready is false), the
// read is added to the file's waiting list; first reports that the caller must have the file
// opened.
func (c *fileCache) use(r *storage.Read) (f *file, ready, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f = c.files[r.Object]
	if f == nil {
		f = &file{object: r.Object}
		c.files[r.Object] = f
		first = true
	}
	f.reads++
	if f.idle != nil {
		c.idle.Remove(f.idle)
		f.idle = nil
	}
	if f.opened == nil {
		f.waiting = append(f.waiting, r)
		return f, false, first
	}
	return f, true, false
}

// openFile opens a registered file and returns the reads that waited for it. After an error none of
// them uses the file any more. It blocks until a descriptor is free.
func (c *fileCache) openFile(x *opener, f *file, policy uring.Direct) (waiting []*storage.Read, err error) {
	opened, err := c.openDescriptor(x, f.object, policy)
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting, f.waiting = f.waiting, nil
	if err != nil {
		delete(c.files, f.object)
		return waiting, err
	}
	f.opened, f.remote = opened, opened.Remote()
	return waiting, nil
}

// release ends a read's use of its file. If changed, the file is removed from the cache, so that
// the next read opens the path again.
func (c *fileCache) release(f *file, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.reads--
	if changed && !f.gone {
		f.gone = true
		delete(c.files, f.object)
	}
	if f.reads > 0 {
		return
	}
	if f.gone {
		c.close(f)
		return
	}
	f.idle = c.idle.PushBack(f)
	c.freed.Broadcast()
}

// close closes an unused file. c.mu is held: closing a file that was only read does no I/O, unless
// a server has to be informed.
func (c *fileCache) close(f *file) {
	c.open--
	c.closing++
	if f.remote {
		c.later(f.opened)
		return
	}
	_ = f.opened.Close()
	c.closed()
}

// closed counts a descriptor that has been closed. c.mu is held.
func (c *fileCache) closed() {
	c.closing--
	c.closes++
	c.freed.Broadcast()
}

// hasClosed is called when a file that was passed to later is closed.
func (c *fileCache) hasClosed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed()
}

// stuck stops counting the descriptor of an opener that is stuck as open, or counts it again: a
// hanging open must not keep other files from being opened.
func (c *fileCache) stuck(x *opener, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !is {
		c.open++
		return
	}
	c.open--
	c.isAlone(x, false)
	c.freed.Broadcast()
}

// isAlone makes the other openers wait for x, or stop waiting for it. c.mu is held.
func (c *fileCache) isAlone(x *opener, is bool) {
	switch {
	case is:
		c.lone = x
	case c.lone == x:
		c.lone = nil
		c.freed.Broadcast()
	}
}

// closeIdle closes the least recently used idle file, if there is one.
func (c *fileCache) closeIdle() bool {
	oldest := c.idle.Front()
	if oldest == nil {
		return false
	}
	f := c.idle.Remove(oldest).(*file)
	f.idle = nil
	delete(c.files, f.object)
	c.close(f)
	return true
}

// closeAll closes all idle files, which are all files if no reads are running.
func (c *fileCache) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.closeIdle() {
	}
}

// openDescriptor opens an object within the limit. If all files are in use it waits; they become
// free because reads end.
func (c *fileCache) openDescriptor(x *opener, o storage.Object, policy uring.Direct) (f *uring.File, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for c.open >= c.limit || c.lone != nil && c.lone != x {
			if c.open < c.limit || !c.closeIdle() {
				c.freed.Wait()
			}
		}
		c.open++
		closes, alone := c.closes, c.lone == x
		c.mu.Unlock()
		hang(x, func(is bool) { c.stuck(x, is) }, func() {
			var fd int
			if fd, err = c.openObject(o); err != nil {
				return
			}
			f = uring.NewFile(fd, policy) // this queries the file system
			f.VerifyWith(verifier(fd, o, f.Remote()))
		})
		c.mu.Lock()
		c.isAlone(x, false)
		if err == nil {
			return f, nil
		}
		c.open--
		c.freed.Broadcast()
		if !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) {
			return nil, err
		}
		// The process or the machine has no descriptors left: close some of ours and retry.
		if !c.closeIdle() && c.closes == closes {
			switch {
			case c.open+c.closing > 0:
				c.freed.Wait()
			case alone:
				return nil, fmt.Errorf("%w: raise the limit on open files (ulimit -n)", err)
			default:
				c.isAlone(x, true) // other openers that failed as well may have had the last ones
			}
		}
		for c.closeIdle() {
		}
	}
}

// openObject opens an object's file and checks that it is the one that was listed.
func openObject(c *fileCache, o storage.Object) (fd int, err error) {
	full, err := c.fullPath(o.Path)
	if err != nil {
		return -1, err
	}
	if fd, err = openAs(full, o, c.never); err == nil || c.others == nil {
		return fd, err
	}
	for _, other := range c.others(o) {
		if fd, err := openAs(other, o, nil); err == nil {
			return fd, nil
		}
	}
	return -1, err
}

// openAs opens a file by name, and checks that it is the one that was listed.
func openAs(full string, o storage.Object, never *filesystem.Never) (fd int, err error) {
	fd, err = never.OpenRegular(unix.AT_FDCWD, full)
	if err != nil {
		if errors.Is(err, storage.ErrChanged) {
			return -1, err
		}
		return -1, fmt.Errorf("open: %w", err)
	}
	err = verify(fd, o)
	if err == nil {
		// With O_NONBLOCK, io_uring would fail a read that has to wait.
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, 0)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// verify compares an open file with the listing, using the attributes that the kernel has. For a
// remote file those may be outdated: see verifier.
func verify(fd int, o storage.Object) error { return filesystem.Check(fd, o) }

// maxOpeners is how many files are opened at a time: each open may wait for a disk. Opening through
// a ring was measured with 100 000 small files. With data in the kernel's memory it took 30 % less
// CPU but 30 % longer, because a ring uses one core; from disk it took 10 to 20 % more CPU and 15
// to 40 % longer, because the kernel uses threads of its own.
const maxOpeners = 16

// job is work for an opener: a file to open, a file to map, a file to close, or a read that failed
// at once.
type job struct {
	file *file

	object storage.Object
	mapped func(storage.Mapping, error)

	closing *uring.File

	read *storage.Read
	err  error
}

// opener is a goroutine that does jobs.
type opener = uring.Worker[struct{}, job]

// start hands jobs to the openers. It may be called with the lock of the file cache held.
func (s *Storage) start(jobs []job) {
	if len(jobs) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openers.Push(jobs...)
	s.pool.Start()
}

// do does a job.
func (s *Storage) do(x *opener, j job) {
	switch {
	case j.file != nil:
		s.open(x, j.file)
	case j.mapped != nil:
		s.mapObject(x, j)
	case j.closing != nil:
		hang(x, nil, func() { _ = j.closing.Close() })
		s.files.hasClosed()
	default:
		s.done(j.read, j.err)
	}
}

// hang makes system calls that may never end. gone may be nil; see uring.Worker.Begin.
func hang(x *opener, gone func(stuck bool), calls func()) {
	x.Begin(struct{}{}, gone)
	calls()
	x.End()
}

// open opens a file and starts the reads that waited for it.
func (s *Storage) open(x *opener, f *file) {
	waiting, err := s.files.openFile(x, f, s.policy())
	requests := make([]*uring.Request, 0, len(waiting))
	for _, r := range waiting {
		if err != nil {
			s.done(r, err)
			continue
		}
		requests = append(requests, s.request(f, r))
	}
	if len(requests) > 0 {
		s.engine.Submit(requests)
	}
}
