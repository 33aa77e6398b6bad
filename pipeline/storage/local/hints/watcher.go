package hints

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrNoWatches means that the kernel gives this user no more watches (or instances):
// fs.inotify.max_user_watches, max_user_instances.
var ErrNoWatches = errors.New("the kernel has no more inotify watches for this user (sysctl fs.inotify.max_user_watches)")

// maxNames is how many names are kept until they are taken: some 4 MB.
const maxNames = 1 << 16

// Watcher collects what is reported of directories. Its methods may be called at the same
// time.
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

// Changes are directories that something was reported of since the last Take. Names are as
// given to Watch.
type Changes struct {
	// All: reports were lost, look at everything.
	All bool
	// Dirs has the entries that were reported; nil means the directory as a whole.
	Dirs map[string]map[string]struct{}
}

// None says that nothing was reported.
func (c *Changes) None() bool { return !c.All && len(c.Dirs) == 0 }

// New makes a watcher that watches nothing yet. Without a free instance the error wraps
// ErrNoWatches.
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

// run takes reports in until the watcher is closed, so that the kernel's queue is short.
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

// drain takes in all that the kernel has, and says whether that was anything.
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

// lost forgets what was reported: all is to be looked at. mu is held.
func (w *Watcher) lost() { w.changes, w.names = Changes{All: true}, 0 }

// note takes in a report. mu is held.
func (w *Watcher) note(e event) {
	if e.mask&unix.IN_Q_OVERFLOW != 0 {
		w.overflows++
		w.lost()
		return
	}
	dir, ok := w.dirs[e.watch]
	if !ok {
		return // of a watch that was given up
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

// Watch has the entries of a directory reported, from now on, as those of name. It is to be
// called before the directory is listed, so that nothing between the two is missed. A
// directory that has moved keeps its watch, under its new name. The error wraps ErrNoWatches
// or says what is wrong with the directory.
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

// Wake has a value some time after something was reported.
func (w *Watcher) Wake() <-chan struct{} { return w.wake }

// Take gives all that was reported of what happened before the call, and forgets it. The
// changes are the caller's.
func (w *Watcher) Take() Changes {
	_ = w.conn.Control(func(fd uintptr) { w.drain(int(fd)) })
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.changes
	w.changes, w.names = Changes{}, 0
	return c
}

// Overflows is how often the kernel has dropped reports.
func (w *Watcher) Overflows() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.overflows
}

// Watches is how many directories are watched.
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
