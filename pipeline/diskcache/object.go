package diskcache

import (
	"container/list"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// object is the state of an object that is in use, or that has something to remember.
type object struct {
	wanted
	listed storage.Object
	summer summer
	pages  int64

	opening sync.Mutex // held while its files are opened
	files   atomic.Pointer[pair]

	// Guarded by Storage.mu.
	uses int
	idle *list.Element // its element of Storage.idle, if its files are open and nothing uses it

	landed atomic.Uint64 // flights that have ended; set with mu held

	mu      sync.Mutex
	flights []*flight // that fetch pages, or write them
	shared  pageSet   // its pages in the share
	// edges are pages of the share of which a part was passed: how many bytes, by page.
	edges map[int64]int64
}

// remembers reports whether the object has to be kept while nothing uses it. Storage.mu is held,
// and nothing uses it.
func (o *object) remembers() bool { return o.shared.n > 0 }

// hold returns the state of an object, and opens its files if they exist. The caller calls release
// afterwards. It returns nil if the object must not be cached. It may wait for a disk.
func (s *Storage) hold(listed storage.Object) *object {
	s.mu.Lock()
	o := s.objects[listed]
	if o == nil {
		s.mu.Unlock()
		id, ok := s.identify(listed)
		if !ok || listed.SizeBytes > maxObjectBytes {
			return nil
		}
		k := keyOf(id, listed.SizeBytes)
		fresh := &object{wanted: wanted{id, k, listed.SizeBytes}, listed: listed, summer: newSummer(k), pages: pagesOf(listed.SizeBytes)}
		s.mu.Lock()
		if o = s.objects[listed]; o == nil {
			o = fresh
			s.objects[listed] = o
			s.mine[k] = struct{}{}
		}
	}
	s.use(o)
	s.mu.Unlock()
	s.opened(o, false)
	return o
}

// holdOpen is hold for an object whose files are open; otherwise it returns nil. It does not wait.
func (s *Storage) holdOpen(listed storage.Object) *object {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[listed]
	if o == nil || o.files.Load() == nil {
		return nil
	}
	s.use(o)
	return o
}

// use counts one more user. s.mu is held.
func (s *Storage) use(o *object) {
	o.uses++
	if o.idle != nil {
		s.idle.Remove(o.idle)
		o.idle = nil
	}
}

// release ends a use.
func (s *Storage) release(o *object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.uses--
	if o.uses > 0 {
		return
	}
	if o.files.Load() != nil {
		o.idle = s.idle.PushBack(o)
		s.closeIdle(s.config.MaxFiles)
	} else if !o.remembers() {
		delete(s.objects, o.listed)
	}
}

// closeIdle closes files of the least recently used objects until at most that many objects are
// open, or the open ones are in use. s.mu is held.
func (s *Storage) closeIdle(most int) {
	for s.open > most && s.idle.Len() > 0 {
		o := s.idle.Remove(s.idle.Front()).(*object)
		o.idle = nil
		o.files.Swap(nil).close()
		s.open--
		if !o.remembers() {
			delete(s.objects, o.listed)
		}
	}
}

// opened returns the files of an object that is in use, or nil if there are none. With create, it
// creates them. It may wait for a disk.
func (s *Storage) opened(o *object, create bool) *pair {
	if p := o.files.Load(); p != nil {
		return p
	}
	o.opening.Lock()
	defer o.opening.Unlock()
	if p := o.files.Load(); p != nil {
		return p
	}
	p, err := s.dir.openPair(&o.wanted, create, s.config.Clock.Now())
	if err != nil {
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
			s.mu.Lock()
			s.closeIdle(s.open / 2) // others need some: this object is read below this time
			s.mu.Unlock()
		}
		s.failed("open "+o.listed.Path, err)
		return nil
	}
	if create {
		s.room.grow(headerBytes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o.files.Store(p)
	s.open++
	s.closeIdle(s.config.MaxFiles)
	return p
}

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

// pairOf returns the pair of two descriptors, which it owns.
func pairOf(data, sums int) *pair {
	return &pair{uring.NewFile(data, uring.DirectNever), uring.NewFile(sums, uring.DirectNever)}
}

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
		return pairOf(data, sums), nil
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
	return c.openFileTo(unix.O_RDWR, folder, name, sizeBytes)
}

// openFileTo is openFile with unix.O_RDWR or unix.O_RDONLY.
func (c *directory) openFileTo(flags, folder int, name string, sizeBytes int64) (int, error) {
	fd, err := c.disk.open(folder, name, flags)
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
	return pairOf(data, sums), nil
}
