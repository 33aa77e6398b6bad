package diskcache

import (
	"container/list"
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
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
