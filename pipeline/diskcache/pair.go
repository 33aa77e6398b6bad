package diskcache

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/uring"
)

// wanted is what an object's files have to describe.
type wanted struct {
	id        Identity
	key       key
	sizeBytes int64
}

func (w *wanted) header(now time.Time) header {
	return header{ObjectBytes: w.sizeBytes, Created: now, URL: w.id.URL, Validator: w.id.Validator}
}

func (w *wanted) dataBytes() int64 { return pagesOf(w.sizeBytes) * pageBytes }

func (w *wanted) sumsBytes() int64 { return sumsAt(pagesOf(w.sizeBytes)) }

// pair is an object's two files, open. The .sums file is locked, so that no process removes them.
type pair struct{ data, sums *uring.File }

func (p *pair) close() {
	_ = p.data.Close()
	_ = p.sums.Close()
}

var (
	errAbsent = errors.New("there is nothing of the object in the cache")
	errBusy   = errors.New("the object's folder is locked by others")
	errNotOur = errors.New("something that is not a file of the cache is in the place of the object's")
)

const (
	// folderPatience bounds the wait for processes that open or remove an object in the same
	// folder, which takes some system calls. Only a process that was stopped takes longer.
	folderTries    = 50
	folderPatience = 2 * time.Millisecond
)

// lockFolder locks a folder until its descriptor is closed. On file systems without such locks it
// does nothing.
func (c *directory) lockFolder(fd int) error {
	for try := 0; ; try++ {
		err := c.disk.lock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EWOULDBLOCK {
			return nil
		}
		if try == folderTries {
			return errBusy
		}
		time.Sleep(folderPatience)
	}
}

// openPair opens an object's files. Files that are invalid are removed. If there are none left the
// error is errAbsent, unless create is set: then they are created.
func (c *directory) openPair(w *wanted, create bool, now time.Time) (*pair, error) {
	folder, err := c.subdirectory(c.store, w.key.folder(), create)
	if err == unix.ENOENT && !create {
		return nil, errAbsent
	} else if err != nil {
		return nil, fmt.Errorf("folder %s: %w", w.key.folder(), err)
	}
	defer c.disk.close(folder)
	if err := c.lockFolder(folder); err != nil {
		return nil, err
	}
	p, err := c.openBoth(folder, w)
	if err == errAbsent && create {
		p, err = c.makeBoth(folder, w, now)
	}
	if err != nil {
		return nil, err
	}
	// A process that removes objects locks the folder first, so this lock is free.
	if err := c.disk.lock(p.sums.FD(), unix.LOCK_SH|unix.LOCK_NB); err == unix.EWOULDBLOCK {
		p.close()
		return nil, errBusy
	}
	_ = c.disk.touch(p.sums.FD(), now) // it is used: an error makes it look older
	return p, nil
}

// openBoth opens existing files. The folder is locked.
func (c *directory) openBoth(folder int, w *wanted) (*pair, error) {
	name := w.key.name()
	sums, sumsErr := c.openFile(folder, name+".sums", w.sumsBytes())
	if sumsErr == nil {
		if err := c.checkHeader(sums, w); err != nil {
			c.disk.close(sums)
			sumsErr = err
		}
	}
	data, dataErr := c.openFile(folder, name+".data", w.dataBytes())
	if sumsErr == nil && dataErr == nil {
		return &pair{uring.NewFile(data, uring.DirectNever), uring.NewFile(sums, uring.DirectNever)}, nil
	}
	if sumsErr == nil {
		c.disk.close(sums)
	}
	if dataErr == nil {
		c.disk.close(data)
	}
	for _, err := range []error{sumsErr, dataErr} {
		if err != nil && !errors.Is(err, errDamaged) && err != unix.ENOENT {
			return nil, err
		}
	}
	if sumsErr == unix.ENOENT && dataErr == unix.ENOENT {
		return nil, errAbsent
	}
	return nil, c.removeBoth(folder, name)
}

// errDamaged means that a file is invalid, so the object is created again.
var errDamaged = errors.New("damaged")

// openFile opens a file that must be a regular one of this user, of that many bytes.
func (c *directory) openFile(folder int, name string, sizeBytes int64) (int, error) {
	fd, err := c.disk.open(folder, name, unix.O_RDWR)
	switch err {
	case nil:
	case unix.ELOOP, unix.EISDIR, unix.ENXIO, unix.EACCES, unix.EPERM: // a link, a directory, a socket, another user's
		return -1, errDamaged
	default:
		return -1, err
	}
	st, err := c.disk.stat(fd)
	if err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != c.owner || st.Mode&0o077 != 0 || st.Size != sizeBytes) {
		err = errDamaged
	}
	if err != nil {
		c.disk.close(fd)
		return -1, err
	}
	return fd, nil
}

func (c *directory) checkHeader(sums int, w *wanted) error {
	b := make([]byte, headerBytes)
	if n, err := c.disk.read(sums, b, 0); err != nil || n < len(b) {
		if err != nil {
			return err
		}
		return errDamaged
	}
	h, err := parseHeader(b)
	if err != nil || h.ObjectBytes != w.sizeBytes {
		return errDamaged
	}
	return nil
}

// removeBoth removes an object's files, .sums first, so that no sums are left without data. It
// returns errAbsent if that has worked. The folder is locked.
func (c *directory) removeBoth(folder int, name string) error {
	for _, ending := range []string{".sums", ".data"} {
		switch err := c.disk.unlink(folder, name+ending); err {
		case nil, unix.ENOENT:
		case unix.EISDIR, unix.EPERM:
			return errNotOur
		default:
			return err
		}
	}
	return errAbsent
}

// makeBoth creates an object's files, empty. The header is written last: without it they are not an
// object. The folder is locked.
func (c *directory) makeBoth(folder int, w *wanted, now time.Time) (*pair, error) {
	name := w.key.name()
	open := func(ending string, sizeBytes int64) (int, error) {
		fd, err := c.disk.open(folder, name+ending, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
		if err != nil {
			return -1, err
		}
		if err := c.disk.truncate(fd, sizeBytes); err != nil {
			c.disk.close(fd)
			_ = c.disk.unlink(folder, name+ending)
			return -1, err
		}
		return fd, nil
	}
	data, err := open(".data", w.dataBytes())
	if err != nil {
		return nil, err
	}
	sums, err := open(".sums", w.sumsBytes())
	if err == nil {
		h := w.header(now)
		if err = c.disk.write(sums, h.encode(), 0); err != nil {
			c.disk.close(sums)
			_ = c.disk.unlink(folder, name+".sums")
		}
	}
	if err != nil {
		c.disk.close(data)
		_ = c.disk.unlink(folder, name+".data")
		return nil, err
	}
	return &pair{uring.NewFile(data, uring.DirectNever), uring.NewFile(sums, uring.DirectNever)}, nil
}
