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
	"github.com/lsiofs/lsiofs/pipeline/storage/identity"
	"github.com/lsiofs/lsiofs/uring"
)

// maxOpen is how many files are kept open: more than an order has lanes (32 by
// default) for several streams, and half of the usual limit of 1024. A file
// that is read directly has a second descriptor.
const maxOpen = 512

// leastOpen is how many there are even of a small limit.
const leastOpen = 8

// file is one object's open file, or one that is being opened.
type file struct {
	object storage.Object
	opened *uring.File // nil until it is open
	remote bool        // closing it may wait for another process or machine

	// The rest is under the cache's lock.
	waiting []*storage.Read // reads that came before it was open
	reads   int             // that use it, waiting ones included
	idle    *list.Element   // its place in the cache's idle list, if it is there
	gone    bool            // not found in the cache any more: closed after its last read
}

// fileCache keeps files open: those that are in use, and the idle ones that
// were used last, together no more than limit.
type fileCache struct {
	root  string
	never *identity.Never // of what is below root
	limit int
	// openObject opens an object's file and shows that it is what was listed.
	openObject func(storage.Object) (int, error)
	// others are further names that an object may have, absolute: it is looked for there
	// when it is not, or no longer, under its path. nil: there are none.
	others func(storage.Object) []string
	// later has a file closed by somebody who may wait, and then calls hasClosed.
	later func(*uring.File)

	mu    sync.Mutex
	freed sync.Cond // a descriptor was closed, or its file has become idle
	files map[storage.Object]*file
	idle  list.List // of *file, the one used longest ago first
	// open are descriptors that are open or about to be, but for those of openers
	// that are stuck.
	open    int
	closing int    // descriptors that are closed later
	closes  uint64 // descriptors closed so far
	// lone is an opener for which the others wait: it has found no descriptor beside them.
	lone *opener
}

func (c *fileCache) init(root string, limit int) {
	c.root, c.limit = root, limit
	c.freed.L = &c.mu
	c.files = make(map[storage.Object]*file)
	c.openObject = func(o storage.Object) (int, error) { return openObject(c, o) }
}

// fullPath is where an object lies. A path that leads out of the root is
// refused.
func (c *fileCache) fullPath(path string) (string, error) {
	if !filepath.IsLocal(path) {
		return "", &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("not a path below the dataset: %w", fs.ErrInvalid)}
	}
	return filepath.Join(c.root, path), nil
}

// use registers a read with its object's file. Where the file is not open yet
// the read was put on its waiting list; first says that the caller must have
// it opened.
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

// openFile opens a file that is registered, and gives the reads that have
// waited for that. After an error none of them holds the file any more. It
// blocks until a descriptor is free.
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

// release ends a read's use of its file. changed takes the file out of the
// cache, so that the next read looks at the path anew.
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

// close closes a file that nothing uses. c.mu is held: closing a file that was
// only read does no I/O, but where a server is told of it.
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

// hasClosed is for those who close later.
func (c *fileCache) hasClosed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed()
}

// stuck takes the descriptor of an opener that is stuck out of those that are
// open, or adds it again: what hangs shall not keep others from being opened.
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

// isAlone has the other openers wait for one, or for it no more. c.mu is held.
func (c *fileCache) isAlone(x *opener, is bool) {
	switch {
	case is:
		c.lone = x
	case c.lone == x:
		c.lone = nil
		c.freed.Broadcast()
	}
}

// closeIdle closes the idle file that was used longest ago, if there is one.
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

// closeAll closes what is idle, which is everything when no read is under way.
func (c *fileCache) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.closeIdle() {
	}
}

// openDescriptor opens an object within the limit. Files in use are waited
// for; they get free because reads end.
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
		x.waits(func(is bool) { c.stuck(x, is) }, func() {
			var fd int
			if fd, err = c.openObject(o); err != nil {
				return
			}
			f = uring.NewFile(fd, policy) // it asks where the file lies
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
		// The process or the machine has no descriptor left: try with ours.
		if !c.closeIdle() && c.closes == closes {
			switch {
			case c.open+c.closing > 0:
				c.freed.Wait()
			case alone:
				return nil, fmt.Errorf("%w: raise the limit on open files (ulimit -n)", err)
			default:
				c.isAlone(x, true) // others that have found none either may have had the last ones
			}
		}
		for c.closeIdle() {
		}
	}
}

// openObject opens an object's file and shows that it is what was listed.
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

// openAs opens a file by a name, and shows that it is what was listed.
func openAs(full string, o storage.Object, never *identity.Never) (fd int, err error) {
	fd, err = never.OpenRegular(unix.AT_FDCWD, full)
	if err != nil {
		if errors.Is(err, storage.ErrChanged) {
			return -1, err
		}
		return -1, fmt.Errorf("open: %w", err)
	}
	err = verify(fd, o)
	if err == nil {
		// io_uring would give up where a non-blocking read has to wait.
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, 0)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// verify compares an open file with what was listed, by what the kernel knows of
// it. Of a remote file that may be old: see verifier.
func verify(fd int, o storage.Object) error { return identity.Check(fd, o) }
