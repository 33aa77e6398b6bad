package hints

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrNoWatches means that this user can't have more watches or instances:
// fs.inotify.max_user_watches, max_user_instances.
var ErrNoWatches = errors.New("the kernel has no more inotify watches for this user (sysctl fs.inotify.max_user_watches)")

// maxNames is how many names are kept until they are taken: about 4 MB.
const maxNames = 1 << 16

// Watcher collects reports about directories. Its methods may be called concurrently.
type Watcher struct {
	file *os.File
	conn syscall.RawConn
	wake chan struct{}
	done chan struct{}

	mu        sync.Mutex
	buffer    []byte
	dirs      map[int32]string // by watch
	watches   map[string]int32 // by directory
	changes   Changes
	names     int // in changes
	overflows uint64
}

// Changes are the directories with reports since the last Take. Names are those passed to Watch.
type Changes struct {
	// All means that reports were lost: check everything.
	All bool
	// Dirs has the reported entries by directory; nil means the whole directory.
	Dirs map[string]map[string]struct{}
}

// None reports whether there are no changes.
func (c *Changes) None() bool { return !c.All && len(c.Dirs) == 0 }

// New returns a watcher that watches nothing yet. If there is no free inotify instance, the error
// wraps ErrNoWatches.
func New() (*Watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, refused(err)
	}
	w := &Watcher{
		file: os.NewFile(uintptr(fd), "inotify"), wake: make(chan struct{}, 1), done: make(chan struct{}),
		buffer: make([]byte, 64<<10), dirs: map[int32]string{}, watches: map[string]int32{},
	}
	w.conn, err = w.file.SyscallConn()
	if err != nil {
		_ = w.file.Close()
		return nil, fmt.Errorf("watch directories: %w", err)
	}
	go w.run()
	return w, nil
}

func refused(err error) error {
	if err == unix.ENOSPC || err == unix.EMFILE || err == unix.ENOMEM {
		return fmt.Errorf("%w: %w", ErrNoWatches, err)
	}
	return fmt.Errorf("inotify: %w", err)
}

// run collects reports until the watcher is closed, so that the kernel's queue stays short.
func (w *Watcher) run() {
	defer close(w.done)
	for {
		err := w.conn.Read(func(fd uintptr) bool { return w.drain(int(fd)) })
		if err != nil {
			return // closed
		}
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// drain reads all reports that the kernel has, and returns whether there were any.
func (w *Watcher) drain(fd int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for some := false; ; some = true {
		n, err := unix.Read(fd, w.buffer)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil || n <= 0:
			return some
		}
		if !parse(w.buffer[:n], w.note) {
			w.lost()
		}
	}
}

// lost discards the collected reports: everything must be checked. mu is held.
func (w *Watcher) lost() { w.changes, w.names = Changes{All: true}, 0 }

// note records a report. mu is held.
func (w *Watcher) note(e event) {
	if e.mask&unix.IN_Q_OVERFLOW != 0 {
		w.overflows++
		w.lost()
		return
	}
	dir, ok := w.dirs[e.watch]
	if !ok {
		return // from a watch that was removed
	}
	if e.mask&unix.IN_IGNORED != 0 {
		delete(w.dirs, e.watch)
		delete(w.watches, dir)
	}
	if w.changes.All {
		return
	}
	if w.changes.Dirs == nil {
		w.changes.Dirs = map[string]map[string]struct{}{}
	}
	names, ok := w.changes.Dirs[dir]
	switch {
	case ok && names == nil:
		return
	case e.mask&itself != 0 || e.name == "" || w.names >= maxNames:
		w.names -= len(names)
		w.changes.Dirs[dir] = nil
		return
	case names == nil:
		names = map[string]struct{}{}
		w.changes.Dirs[dir] = names
	}
	before := len(names)
	names[e.name] = struct{}{}
	w.names += len(names) - before
}

// Watch starts reporting changes of a directory's entries, under the given name. Call it before
// listing the directory, so that nothing is missed between the two. A directory that has moved
// keeps its watch, under its new name. The error wraps ErrNoWatches or states what is wrong with
// the directory.
func (w *Watcher) Watch(path, name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var err error
	if controlErr := w.conn.Control(func(fd uintptr) {
		var watch int
		if watch, err = unix.InotifyAddWatch(int(fd), path, wanted); err != nil {
			return
		}
		if old, ok := w.watches[name]; ok && old != int32(watch) {
			_, _ = unix.InotifyRmWatch(int(fd), uint32(old)) // of the directory that had the name before
			delete(w.dirs, old)
		}
		if before, ok := w.dirs[int32(watch)]; ok && before != name {
			delete(w.watches, before)
		}
		w.dirs[int32(watch)], w.watches[name] = name, int32(watch)
	}); controlErr != nil {
		return fmt.Errorf("watch %s: %w", path, controlErr)
	}
	if err != nil {
		return fmt.Errorf("watch %s: %w", path, refused(err))
	}
	return nil
}

// Forget ends the watch of a directory, if there is one.
func (w *Watcher) Forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	watch, ok := w.watches[name]
	if !ok {
		return
	}
	_ = w.conn.Control(func(fd uintptr) { _, _ = unix.InotifyRmWatch(int(fd), uint32(watch)) })
	delete(w.watches, name)
	delete(w.dirs, watch)
}

// Wake returns a channel that receives a value some time after something was reported.
func (w *Watcher) Wake() <-chan struct{} { return w.wake }

// Take returns and clears everything reported about what happened before the call. The caller owns
// the result.
func (w *Watcher) Take() Changes {
	_ = w.conn.Control(func(fd uintptr) { w.drain(int(fd)) })
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.changes
	w.changes, w.names = Changes{}, 0
	return c
}

// Overflows returns how often the kernel has dropped reports.
func (w *Watcher) Overflows() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.overflows
}

// Watches returns how many directories are watched.
func (w *Watcher) Watches() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.watches)
}

// Close ends all watches, and waits for the watcher's goroutine.
func (w *Watcher) Close() error {
	err := w.file.Close()
	<-w.done
	return err
}
