package diskcache

import (
	"container/list"
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// object is one object that is being used, or that has something to remember.
type object struct {
	wanted
	listed storage.Object
	summer summer
	pages  int64

	opening sync.Mutex // held by the one who opens its files
	files   atomic.Pointer[pair]

	// Under Storage.mu.
	uses int
	idle *list.Element // its place in Storage.idle, if its files are open and nobody uses it

	landed atomic.Uint64 // flights that have ended; set under mu

	mu      sync.Mutex
	flights []*flight // that bring pages, or write them
	shared  pageSet   // pages of the share
	// edges are pages of the share of which a part is done: by page, how many bytes.
	edges map[int64]int64
}

// remembers says that the object is to be kept when nobody uses it. Storage.mu is held,
// and nobody uses it.
func (o *object) remembers() bool { return o.shared.n > 0 }

// hold gives what is known of an object, and opens its files if there are any. release
// must follow. It is nil where the object is not to be cached. It may wait for a disk.
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

// closeIdle closes what was used longest ago until so many objects are open, or those
// that are left are in use. s.mu is held.
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

// opened gives the files of an object that is in use, nil where there are none; create
// has them made. It may wait for a disk.
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
