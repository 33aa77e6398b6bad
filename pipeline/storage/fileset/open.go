package fileset

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
	"github.com/lsiofs/lsiofs/uring"
)

// openDirectory opens a directory; path is relative to the root. Links in the path are followed.
func (s *Storage) openDirectory(path string) (int, error) {
	for tries := 0; ; {
		fd, err := s.never.OpenDirectory(s.fd, path)
		if err == nil || err != unix.EINTR && !(filesystem.NoDescriptor(err) && waitForDescriptor(&tries)) {
			return fd, err
		}
	}
}

// scarceTries is how often an open that found no free descriptor is retried, a millisecond apart:
// others of this process become free sooner.
const scarceTries = 1000

// waitForDescriptor waits a little, and reports whether to try again.
func waitForDescriptor(tries *int) bool {
	*tries++
	time.Sleep(time.Millisecond)
	return *tries <= scarceTries
}

// open opens the file at path, and may wait for a disk. Without links in the path this is one call:
// whatever has that name was put there by the owner of the directory, who can't make a device
// without being root. A link may lead to anything, and may be new: its target is checked before it
// is opened (filesystem.OpenRegular).
func (o *opener) open() (int, error) {
	for tries := 0; ; {
		fd, err := o.openNoLink(0)
		if err == unix.ELOOP || err == errNoOpenat2 {
			fd, err = o.storage.never.OpenRegular(o.storage.fd, string(o.path[:len(o.path)-1]))
		}
		if err == nil || err != unix.EINTR && !(filesystem.NoDescriptor(err) && waitForDescriptor(&tries)) {
			return fd, err
		}
	}
}

// openNoLink opens the file at path if there is no link in the path, and fails with ELOOP
// otherwise. It allocates nothing.
func (o *opener) openNoLink(resolve uint64) (int, error) {
	if o.storage.noOpenat2.Load() {
		return -1, errNoOpenat2
	}
	o.how = unix.OpenHow{Flags: filesystem.OpenFlags, Resolve: unix.RESOLVE_NO_SYMLINKS | resolve}
	fd, _, errno := unix.Syscall6(unix.SYS_OPENAT2, uintptr(o.storage.fd), uintptr(unsafe.Pointer(&o.path[0])),
		uintptr(unsafe.Pointer(&o.how)), unix.SizeofOpenHow, 0, 0)
	switch errno {
	case 0:
		return int(fd), nil
	case unix.ENOSYS, unix.EPERM: // a sandbox
		o.storage.noOpenat2.Store(true)
		return -1, errNoOpenat2
	}
	return -1, errno
}

// resolveCached is RESOLVE_CACHED; the library has no name for it.
const resolveCached = 0x20

var errNoOpenat2 = errors.New("no openat2")

// errMissed means that the kernel does not have all of a file in memory.
var errMissed = errors.New("not in memory")

// openCached opens the file at path if that needs no disk access (Linux 5.12), and fails with
// errMissed otherwise.
func (o *opener) openCached() (int, error) {
	fd, err := o.openNoLink(resolveCached)
	if err == unix.ELOOP {
		fd, err = o.storage.never.OpenRegularCached(o.storage.fd, string(o.path[:len(o.path)-1]))
	}
	switch err {
	case unix.EINVAL, errNoOpenat2: // an old kernel, or a sandbox
		o.storage.blind.Store(true)
		return -1, errMissed
	case unix.EAGAIN, unix.EINTR, unix.EMFILE, unix.ENFILE:
		return -1, errMissed
	}
	return fd, err
}

// opener reads files, one after another, and reuses its memory.
type opener struct {
	storage *Storage
	path    []byte // relative to the root, followed by a NUL
	before  int    // length of the part of path before the name
	header  []byte
	st      unix.Stat_t
	how     unix.OpenHow

	// The directory that was found last, in table.
	table   *table
	object  storage.Object
	segment segment

	reads, bytes uint64 // of files, since they were last added to the storage's
}

// enter sets the beginning of path to a directory.
func (o *opener) enter(directory string) {
	o.path = o.path[:0]
	if directory != "." {
		o.path = append(append(o.path, directory...), '/')
	}
	o.before = len(o.path)
}

// at sets path to that of a file in the directory. The result has no NUL.
func (o *opener) at(name []byte) []byte {
	o.path = append(append(o.path[:o.before], name...), 0)
	return o.path[:len(o.path)-1]
}

// find is table.find, but faster for consecutive reads of an object.
func (o *opener) find(t *table, x storage.Object) (segment, error) {
	if t == o.table && x == o.object {
		return o.segment, nil
	}
	g, err := t.find(x)
	if err == nil {
		o.table, o.object, o.segment = t, x, g
	}
	return g, err
}

// contents fills p with a file's bytes from off on, and checks that the file is the one that was
// listed. path is the file's. If it must not wait for a disk it may fail with errMissed.
func (o *opener) contents(f *file, p []byte, off int64, waits bool) error {
	var fd int
	var err error
	if waits {
		fd, err = o.open()
	} else {
		fd, err = o.openCached()
	}
	switch {
	case err == errMissed || errors.Is(err, storage.ErrChanged):
		return err
	case err == unix.ENOENT || err == unix.ENOTDIR:
		return fmt.Errorf("the file is gone: %w", storage.ErrChanged)
	case err == unix.EMFILE || err == unix.ENFILE:
		return fmt.Errorf("open: %w: raise the limit on open files (ulimit -n)", err)
	case err != nil:
		return fmt.Errorf("open: %w", err)
	}
	err = o.readFull(fd, p, off, waits)
	if err != errMissed {
		if changed := o.verify(fd, f); changed != nil {
			err = changed
		}
	}
	_ = unix.Close(fd)
	if err == nil {
		o.reads++
		o.bytes += uint64(len(p))
	}
	return err
}

// readFull fills p. If the file is shorter, verify finds it, or else readFull. If readFull must not
// wait, the kernel starts to read what is missing.
func (o *opener) readFull(fd int, p []byte, off int64, waits bool) error {
	for len(p) > 0 {
		var n int
		var err error
		if waits {
			n, err = unix.Pread(fd, p, off)
		} else {
			vector := [1][]byte{p}
			n, err = unix.Preadv2(fd, vector[:], off, unix.RWF_NOWAIT)
		}
		switch {
		case err == unix.EINTR:
		case !waits && err == unix.EAGAIN:
			return errMissed
		case !waits && (err == unix.EOPNOTSUPP || err == unix.EINVAL || err == unix.ENOSYS || err == unix.EPERM):
			o.storage.blind.Store(true)
			return errMissed
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

// verify compares an open file with the listing. For remote files the server is asked, because the
// attributes that the kernel caches may be outdated while a read returned current bytes. Then it
// may wait for the server, like a read.
func (o *opener) verify(fd int, f *file) error {
	if o.storage.remote {
		return filesystem.CheckAsking(fd, f.object(""))
	}
	for {
		err := unix.Fstat(fd, &o.st)
		if err == nil {
			break
		}
		if err != unix.EINTR {
			return fmt.Errorf("stat: %w", err)
		}
	}
	if o.st.Dev != o.storage.device && uring.TraitsOf(fd).Remote { // through a link, or on a file system mounted in the dataset
		return filesystem.CheckAsking(fd, f.object(""))
	}
	return filesystem.FromStat(&o.st).Check(f.object(""))
}
