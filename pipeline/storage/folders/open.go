package folders

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// open opens a path relative to the root.
func (s *Storage) open(path string, flags int) (int, error) {
	return s.openName(append([]byte(path), 0), flags)
}

// scarceTries is how often an open is tried again that found no descriptor left,
// a millisecond apart: others of this process get free in less.
const scarceTries = 1000

// openName is open for a path with a NUL behind it. It allocates nothing.
func (s *Storage) openName(path []byte, flags int) (int, error) {
	for tries := 0; ; {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(s.fd), uintptr(unsafe.Pointer(&path[0])),
			uintptr(flags|unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY), 0, 0, 0)
		switch {
		case errno == 0:
			return int(fd), nil
		case errno == unix.EINTR:
		case (errno == unix.EMFILE || errno == unix.ENFILE) && tries < scarceTries:
			tries++
			time.Sleep(time.Millisecond)
		default:
			return -1, errno
		}
	}
}

// opener reads files, one after the other, in memory that it uses again.
type opener struct {
	storage *Storage
	path    []byte // relative to the root, with a NUL behind it
	before  int    // of a name in path
	header  []byte
	st      unix.Stat_t

	reads, bytes uint64 // of files, since somebody has looked
}

// enter makes path's beginning that of a directory.
func (o *opener) enter(directory string) {
	o.path = o.path[:0]
	if directory != "." {
		o.path = append(append(o.path, directory...), '/')
	}
	o.before = len(o.path)
}

// at makes path that of a file in the directory. The result has no NUL.
func (o *opener) at(name []byte) []byte {
	o.path = append(append(o.path[:o.before], name...), 0)
	return o.path[:len(o.path)-1]
}

// contents fills p with a file's bytes from off on, and shows that it is what was
// listed. path is the file's.
func (o *opener) contents(f *file, p []byte, off int64) error {
	fd, err := o.storage.openName(o.path, 0)
	switch {
	case err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP:
		return fmt.Errorf("the file is gone: %w", storage.ErrChanged)
	case err == unix.EMFILE || err == unix.ENFILE:
		return fmt.Errorf("open: %w: raise the limit on open files (ulimit -n)", err)
	case err != nil:
		return fmt.Errorf("open: %w", err)
	}
	err = readFull(fd, p, off)
	if changed := o.verify(fd, f); changed != nil {
		err = changed
	}
	_ = unix.Close(fd)
	if err == nil {
		o.reads++
		o.bytes += uint64(len(p))
	}
	return err
}

// readFull fills p. That the file is shorter is found by verify, and else here.
func readFull(fd int, p []byte, off int64) error {
	for len(p) > 0 {
		n, err := unix.Pread(fd, p, off)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return fmt.Errorf("read: %w", err)
		case n == 0:
			return fmt.Errorf("the file ended early: %w", storage.ErrChanged)
		default:
			p, off = p[n:], off+int64(n)
		}
	}
	return nil
}

// verify compares an open file with what was listed.
func (o *opener) verify(fd int, f *file) error {
	for {
		err := unix.Fstat(fd, &o.st)
		if err == nil {
			break
		}
		if err != unix.EINTR {
			return fmt.Errorf("stat: %w", err)
		}
	}
	if o.st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("no regular file any more: %w", storage.ErrChanged)
	}
	now := file{size: o.st.Size, mtime: unix.TimespecToNsec(o.st.Mtim), inode: o.st.Ino}
	return storage.Compare(f.object(""), now.object(""))
}
