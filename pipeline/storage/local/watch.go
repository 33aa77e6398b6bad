package local

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/uring/filesystem"
)

// watch tells whether any of the files that are mapped may have changed, by one
// system call for all of them: to look at the attributes of each takes longer
// than to copy a record of it.
type watch struct {
	mu      sync.Mutex
	fd      int // of inotify, once opened is set; -1 for none
	opened  bool
	files   map[int]int // mappings of each watch: of one file there may be several
	changes uint64
	start   time.Time
	asked   time.Duration // after start, when changes was last moved on without an event
	events  [4096]byte
}

const (
	// watchedEvents are those of files that are written to or truncated, and of
	// new attributes.
	watchedEvents = unix.IN_MODIFY | unix.IN_ATTRIB
	// unwatched is how long a change may go unseen that causes no event: one that
	// a program makes through a mapping of its own.
	unwatched = 100 * time.Millisecond
	// eventHeader is the size of an inotify_event without its name.
	eventHeader = 16
)

// isLocal says whether an open file lies where all changes are this kernel's, and
// cause events.
func isLocal(fd int) bool { return filesystem.Of(fd).Watched }

// add watches an open file, and gives its watch, -1 where it can't be watched.
func (w *watch) add(fd int) int {
	if !isLocal(fd) {
		return -1
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.opened {
		w.opened = true
		w.files = map[int]int{}
		var err error
		if w.fd, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
			w.fd = -1
		}
	}
	if w.fd < 0 {
		return -1
	}
	// The very file, whatever its path holds by now.
	id, err := unix.InotifyAddWatch(w.fd, fmt.Sprintf("/proc/self/fd/%d", fd), watchedEvents)
	if err != nil {
		return -1 // there is a limit on them
	}
	w.files[id]++
	return id
}

func (w *watch) remove(id int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id < 0 || w.fd < 0 {
		return
	}
	if w.files[id]--; w.files[id] == 0 {
		delete(w.files, id)
		_, _ = unix.InotifyRmWatch(w.fd, uint32(id))
	}
}

func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.opened && w.fd >= 0 {
		_ = unix.Close(w.fd)
	}
	w.fd, w.opened = -1, true
}

// Changes implements storage.Mapper.
func (s *Storage) Changes() uint64 {
	w := &s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Since(w.start)
	if w.changes == 0 || now-w.asked >= unwatched || w.happened() {
		w.changes++
		w.asked = now
	}
	return w.changes
}

// happened takes the events that there are, and says whether there was one.
func (w *watch) happened() (any bool) {
	for w.opened && w.fd >= 0 {
		n, err := unix.Read(w.fd, w.events[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return any || err != unix.EAGAIN
		}
		for b := w.events[:n]; len(b) >= eventHeader; {
			mask, name := binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint32(b[12:])
			any = any || mask&^unix.IN_IGNORED != 0 // that one tells of a watch we took away
			b = b[min(eventHeader+int(name), len(b)):]
		}
	}
	return any
}
