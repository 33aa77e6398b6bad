package diskcache

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
)

// seals has the objects that are complete in the cache and in memory: they are read and mapped like
// files of a disk, without looking at sums.
//
//	an object of which nothing was missing ─► flushed, its version noted, every page checked,
//	                                         its version compared ─► sealed
//
// Package local compares a file's version after each read, and after each copy from a mapping.
// Whatever changes a page, such as another process that drops it, changes the version: the seal
// ends, and this read and those that follow are made like any other. What was flushed before it was
// checked comes from the disk as it was written, like a file of a local dataset.
//
// One goroutine checks objects one after the other, and only those that the page cache holds: it
// reads from no disk.
type seals struct {
	s     *Storage
	files *local.Storage // nil: the directory's files can't be read that way
	queue chan storage.Object
	stop  chan struct{}
	done  sync.WaitGroup
	reads sync.Pool // of *sealedRead

	by sync.Map // of storage.Object, as listed: *sealState
}

// sealState is the state of the seal of an object.
type sealState struct {
	queued atomic.Bool
	again  atomic.Int64                   // when sealing may be tried again, in unix nanoseconds
	file   atomic.Pointer[storage.Object] // of files; nil: not sealed
}

const (
	// sealQueue is how many objects may wait to be checked; more are noticed later.
	sealQueue = 1024
	// sealAgain is how long an object that could not be sealed, or whose seal has ended, is not
	// tried again.
	sealAgain = 10 * time.Second
)

var (
	errNotSealed = errors.New("not all of the object is here, checked and in memory")
	errClosed    = fmt.Errorf("the cache is closed: %w", fs.ErrClosed)
)

func newSeals(s *Storage) *seals {
	x := &seals{s: s, queue: make(chan storage.Object, sealQueue), stop: make(chan struct{})}
	if s.dir.remote || s.config.noSeals {
		return x
	}
	files, err := local.OpenShared(filepath.Join(s.dir.path, storeName), s.config.Engine)
	if err != nil {
		s.config.Log.Warn("files of the cache are not read as such, which costs some time", "dir", s.dir.path, "error", err)
		return x
	}
	x.files = files
	x.done.Go(x.run)
	return x
}

// close waits for the reads in progress, also for those of mappings.
func (x *seals) close() {
	close(x.stop)
	x.done.Wait()
	if x.files != nil {
		_ = x.files.Close()
	}
}

func (x *seals) run() {
	for {
		select {
		case <-x.stop:
			return
		case listed := <-x.queue:
			state := x.state(listed)
			if err := x.seal(listed, state); err != nil {
				x.put(state)
			}
			state.queued.Store(false)
		}
	}
}

func (x *seals) state(listed storage.Object) *sealState {
	if state, ok := x.by.Load(listed); ok {
		return state.(*sealState)
	}
	state, _ := x.by.LoadOrStore(listed, &sealState{})
	return state.(*sealState)
}

// put ends a seal, or an attempt, for some time.
func (x *seals) put(state *sealState) {
	state.again.Store(x.s.config.Clock.Now().Add(sealAgain).UnixNano())
	state.file.Store(nil)
}

// broken ends the seal of an object for some time, if the seal is still the one of this file: it
// may be sealed anew by now.
func (x *seals) broken(listed, file storage.Object) {
	state := x.state(listed)
	if p := state.file.Load(); p != nil && *p == file {
		x.put(state)
	}
}

// whole notes that nothing of an object was missing in a read. It does not wait.
func (x *seals) whole(listed storage.Object) {
	if x.files == nil || x.s.health.off.Load() {
		return
	}
	state := x.state(listed)
	if state.file.Load() != nil || state.queued.Load() || state.again.Load() > x.s.config.Clock.Now().UnixNano() || !state.queued.CompareAndSwap(false, true) {
		return
	}
	select {
	case x.queue <- listed:
	default:
		state.queued.Store(false)
	}
}

// seal checks an object, on the goroutine for that. The error is the reason why it can't be sealed
// now.
func (x *seals) seal(listed storage.Object, state *sealState) error {
	s := x.s
	if !s.begin(1) {
		return errClosed
	}
	defer s.end()
	o := s.hold(listed)
	if o == nil {
		return errNotSealed
	}
	defer s.release(o)
	files := s.opened(o, false)
	if files == nil {
		return errNotSealed
	}
	o.mu.Lock()
	passing := o.shared.n > 0 || len(o.flights) > 0
	o.mu.Unlock()
	if passing {
		return errNotSealed // some of it is about to be freed
	}
	fd := files.data.FD()
	if !local.Holds(fd, 0, o.pages*pageBytes) {
		return errNotSealed
	}
	if err := unix.Fdatasync(fd); err != nil {
		return err
	}
	path := o.key.folder() + "/" + o.key.name() + ".data"
	file, err := x.files.StatStable(s.ahead.ctx, path)
	if err == nil {
		err = filesystem.Check(fd, file)
	}
	if err == nil {
		err = x.check(o, files)
	}
	if err == nil {
		err = filesystem.Check(fd, file)
	}
	if err != nil {
		return err
	}
	state.file.Store(&file)
	return nil
}

// check compares all pages with their sums.
func (x *seals) check(o *object, files *pair) error {
	disk, buf := x.s.dir.disk, make([]byte, pieceBytes)
	sums := make([]byte, sumsAtOnce*sumBytes)
	for begin := int64(0); begin < o.pages; begin += sumsAtOnce {
		r := run{begin, min(begin+sumsAtOnce, o.pages)}
		of := sums[:r.pages()*sumBytes]
		if n, err := disk.read(files.sums.FD(), of, sumsAt(begin)); err != nil || n < len(of) {
			return errors.Join(errNotSealed, err)
		}
		for at := r.begin; at < r.end; at += pieceBytes / pageBytes {
			piece := run{at, min(at+pieceBytes/pageBytes, r.end)}
			if x.s.ahead.ctx.Err() != nil {
				return errClosed
			}
			if n, err := disk.read(files.data.FD(), buf[:piece.bytes()], at*pageBytes); err != nil || int64(n) < piece.bytes() {
				return errors.Join(errNotSealed, err)
			}
			for i := piece.begin; i < piece.end; i++ {
				sum := sumOf(of, i-begin)
				if sum == 0 || sum != o.summer.sum(i, buf[(i-piece.begin)*pageBytes:][:pageBytes]) {
					return errNotSealed
				}
			}
		}
	}
	return nil
}

// count returns how many objects are sealed.
func (x *seals) count() (n int) {
	x.by.Range(func(_, state any) bool {
		if state.(*sealState).file.Load() != nil {
			n++
		}
		return true
	})
	return n
}

// of returns the file of a sealed object.
func (x *seals) of(listed storage.Object) (file storage.Object, sealed bool) {
	if x.files == nil {
		return storage.Object{}, false
	}
	state, ok := x.by.Load(listed)
	if !ok {
		return storage.Object{}, false
	}
	p := state.(*sealState).file.Load()
	if p == nil {
		return storage.Object{}, false
	}
	return *p, true
}

// sealedRead is a read of a sealed object. It is reused.
type sealedRead struct {
	x    *seals
	read *storage.Read // as it was submitted
	file storage.Read
}

// submit submits the reads of sealed objects, and returns the others.
func (x *seals) submit(reads []*storage.Read) (others []*storage.Read) {
	var ours []*storage.Read
	for i, r := range reads {
		file, sealed := x.of(r.Object)
		if !sealed || int64(len(r.Buf)) > r.Object.SizeBytes || r.OffsetBytes > r.Object.SizeBytes-int64(len(r.Buf)) {
			if ours != nil {
				others = append(others, r)
			}
			continue
		}
		if ours == nil {
			others = append(others, reads[:i]...)
		}
		y, _ := x.reads.Get().(*sealedRead)
		if y == nil {
			y = &sealedRead{}
			y.file.Done = y.done
		}
		y.x, y.read = x, r
		y.file.Object, y.file.OffsetBytes, y.file.Buf, y.file.Wanted = file, r.OffsetBytes, r.Buf, r.Wanted
		ours = append(ours, &y.file)
	}
	if ours == nil {
		return reads
	}
	x.files.Submit(ours)
	return others
}

// done is called by the file's storage.
func (y *sealedRead) done(err error) {
	x, s, r, file := y.x, y.x.s, y.read, y.file.Object
	y.x, y.read, y.file.Buf, y.file.Wanted = nil, nil, nil, nil
	x.reads.Put(y)
	if err != nil && err != storage.ErrUnwanted {
		// Whatever the error is, it is read as any other object is.
		x.broken(r.Object, file)
		s.readers.add(s.newOp(r))
		return
	}
	if err == nil {
		s.counts.hits.Add(uint64(runOf(r.OffsetBytes, int64(len(r.Buf))).pages()))
	}
	r.Done(err)
	s.end()
}

var (
	_ storage.Mapper  = (*Storage)(nil)
	_ storage.Mapping = (*sealedMapping)(nil)
)

// Map implements storage.Mapper. Only sealed objects are mapped.
func (s *Storage) Map(o storage.Object, done func(storage.Mapping, error)) {
	if !s.begin(1) {
		s.seals.files.Map(storage.Object{}, func(storage.Mapping, error) { done(nil, mapError(o, errClosed)) }) // it is closed, too
		return
	}
	file, sealed := s.seals.of(o)
	if !sealed {
		s.seals.whole(o) // as far as is known
		s.readers.add(refusal{s, o, errNotSealed, done})
		return
	}
	s.seals.files.Map(file, func(m storage.Mapping, err error) {
		defer s.end()
		if err == nil {
			done(&sealedMapping{m, s.seals, o, file}, nil)
			return
		}
		if errors.Is(err, storage.ErrChanged) {
			s.seals.broken(o, file)
			err = errNotSealed
		}
		done(nil, mapError(o, err))
	})
}

// refusal reports, on another goroutine than the caller's, that an object is not mapped.
type refusal struct {
	s      *Storage
	object storage.Object
	err    error
	done   func(storage.Mapping, error)
}

func (x refusal) run() {
	x.done(nil, mapError(x.object, x.err))
	x.s.end()
}

func mapError(o storage.Object, err error) error {
	var of *storage.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	return &storage.Error{Object: o.Path, SizeBytes: o.SizeBytes, Err: err}
}

// Evictions implements storage.Mapper.
func (s *Storage) Evictions() uint64 { return s.seals.files.Evictions() }

// Breaks implements storage.Leaser. There are no leases: every mount that has an object open may
// write to its files.
func (s *Storage) Breaks() uint64 { return s.seals.files.Breaks() }

// Unbroken implements storage.Leaser.
func (s *Storage) Unbroken(breaks uint64) bool { return s.seals.files.Unbroken(breaks) }

// LeaseStats implements storage.Leaser. A copy without a lease is not worth reporting.
func (s *Storage) LeaseStats() storage.LeaseStats { return storage.LeaseStats{} }

// sealedMapping is the mapping of a sealed object's file.
type sealedMapping struct {
	storage.Mapping
	seals  *seals
	object storage.Object
	file   storage.Object // the mapped file
}

// Bytes returns the object's bytes: the file consists of whole pages, so it may be longer.
func (m *sealedMapping) Bytes() []byte { return m.Mapping.Bytes()[:m.object.SizeBytes] }

// Check implements storage.Mapping.
func (m *sealedMapping) Check() error {
	if err := m.Mapping.Check(); err != nil {
		return m.lost(err)
	}
	return nil
}

// OpenForWriting implements storage.Mapping. Mounts have their cache's files open for writing,
// which is not worth reporting: they write the same bytes.
func (m *sealedMapping) OpenForWriting() bool { return false }

// Lost implements storage.Mapping.
func (m *sealedMapping) Lost() error { return m.lost(errors.New("its pages are gone")) }

func (m *sealedMapping) lost(err error) error {
	m.seals.broken(m.object, m.file)
	return &storage.Error{
		Object: m.object.Path, SizeBytes: m.object.SizeBytes,
		Err: fmt.Errorf("%w: the cache's file was changed (%v)", storage.ErrReadAgain, err),
	}
}
