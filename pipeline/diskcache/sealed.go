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
	"github.com/lsiofs/lsiofs/uring"
)

// seals has the objects that are complete in the cache: what the page cache holds of them is read
// and mapped like files of a disk, and each page is compared with its sum once, before its first
// use.
//
//	an object of which nothing was missing ─► flushed, its version noted ─► sealed
//	a range that is read or mapped ─► all its pages checked since then ─► read like a file's
//	                               └─ not all, but in the page cache: checked now ─┘
//	all pages checked ─► noted with the version (proofs), for mounts until the machine restarts
//
// Package local compares a file's version after each read, and after each copy from a mapping.
// Whatever changes a page, such as another process that drops it, changes the version: the seal
// ends, and this read and those that follow are made like any other. What was flushed before it was
// checked comes from the disk as it was written, like a file of a local dataset.
//
// One goroutine seals objects one after the other, and another one checks decoded shards that this
// process has written.
type seals struct {
	s      *Storage
	files  *local.Storage // nil: the directory's files can't be read that way
	proofs proofs
	queue  chan storage.Object // to seal or, if all of its pages were checked since, to note so
	kept   chan *keptShard     // to check
	stop   chan struct{}
	done   sync.WaitGroup
	reads  sync.Pool // of *sealedRead
	looks  sync.Pool // of *look

	mu       sync.Mutex
	flushing bool                                    // the object that is being sealed takes long
	waiting  map[storage.Object][]func(sealed *seal) // for objects in the queue

	by sync.Map // of storage.Object, as listed: *sealState
}

// sealState is the state of the seal of an object.
type sealState struct {
	queued atomic.Bool
	again  atomic.Int64         // when sealing may be tried again, in unix nanoseconds
	now    atomic.Pointer[seal] // nil: not sealed
}

// seal is the seal of an object. Its pages that were checked are right as long as the file is the
// same version.
type seal struct {
	file    storage.Object                  // of seals.files, with the version
	checked atomic.Pointer[[]atomic.Uint64] // a bit for each page; nil once all were checked
	left    atomic.Int64                    // pages that were not checked
	all     func()                          // called once, when the last page was checked; it must not wait
	noted   atomic.Bool                     // it is noted that all pages were checked
}

// newSeal returns the seal of an object with that many pages that were not checked.
func newSeal(file storage.Object, pages int64, all func()) *seal {
	x := &seal{file: file, all: all}
	if pages > 0 {
		bits := make([]atomic.Uint64, (pages+63)/64)
		x.checked.Store(&bits)
		x.left.Store(pages)
	}
	return x
}

// has reports whether a page was checked.
func (x *seal) has(page int64) bool {
	bits := x.checked.Load()
	return bits == nil || (*bits)[page/64].Load()&(1<<(page%64)) != 0
}

// add notes that a page was checked: it was read after the version was noted.
func (x *seal) add(page int64) {
	bits, bit := x.checked.Load(), uint64(1)<<(page%64)
	if bits != nil && (*bits)[page/64].Or(bit)&bit == 0 && x.left.Add(-1) == 0 {
		x.checked.Store(nil)
		x.all()
	}
}

// rest returns the range of pages of r without those at its ends that were checked.
func (x *seal) rest(r run) run {
	if x.left.Load() == 0 {
		return run{r.end, r.end}
	}
	for r.begin < r.end && x.has(r.begin) {
		r.begin++
	}
	for r.end > r.begin && x.has(r.end-1) {
		r.end--
	}
	return r
}

const (
	// sealQueue is how many objects may wait to be sealed; more are noticed later.
	sealQueue = 1024
	// sealAgain is how long an object that could not be sealed, or whose seal has ended, is not
	// tried again.
	sealAgain = 10 * time.Second
)

var (
	errNotSealed = errors.New("not all of the object is here")
	errClosed    = fmt.Errorf("the cache is closed: %w", fs.ErrClosed)
)

func newSeals(s *Storage) *seals {
	x := &seals{s: s, queue: make(chan storage.Object, sealQueue), kept: make(chan *keptShard, sealQueue), stop: make(chan struct{}), waiting: map[storage.Object][]func(*seal){}}
	if s.dir.remote || s.config.noSeals {
		return x
	}
	files, err := local.OpenShared(filepath.Join(s.dir.path, storeName), s.config.Engine)
	if err != nil {
		s.config.Log.Warn("files of the cache are not read as such, which costs some time", "dir", s.dir.path, "error", err)
		return x
	}
	x.files, x.proofs = files, newProofs()
	x.done.Go(x.run)
	x.done.Go(x.runKept)
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
			sealed := state.now.Load()
			if sealed == nil {
				if err := x.seal(listed, state); err != nil {
					x.put(state)
				}
			}
			x.mu.Lock()
			waiting := x.waiting[listed]
			delete(x.waiting, listed)
			state.queued.Store(false)
			x.mu.Unlock()
			sealed = state.now.Load()
			if sealed != nil && sealed.left.Load() == 0 && !sealed.noted.Swap(true) {
				x.note(listed, sealed) // all may have found the object in the queue
			}
			for _, tell := range waiting {
				tell(sealed)
			}
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
	x.later(state)
	state.now.Store(nil)
}

func (x *seals) later(state *sealState) {
	state.again.Store(x.s.config.Clock.Now().Add(sealAgain).UnixNano())
}

// broken ends the seal of an object for some time, if it is still this one: it may be sealed anew
// by now.
func (x *seals) broken(listed storage.Object, sealed *seal) {
	state := x.state(listed)
	if state.now.CompareAndSwap(sealed, nil) {
		x.later(state)
	}
}

// whole notes that a read of an object found nothing missing. It does not wait.
func (x *seals) whole(listed storage.Object) {
	if x.files == nil || x.s.health.off.Load() {
		return
	}
	if state := x.state(listed); x.due(state) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.ask(listed, state)
	}
}

// due reports whether an object should be queued.
func (x *seals) due(state *sealState) bool {
	return state.now.Load() == nil && !state.queued.Load() && state.again.Load() <= x.s.config.Clock.Now().UnixNano()
}

// ask queues an object, and reports whether it is queued. x.mu is held.
func (x *seals) ask(listed storage.Object, state *sealState) bool {
	if !state.queued.CompareAndSwap(false, true) {
		return true
	}
	select {
	case x.queue <- listed:
		return true
	default:
		state.queued.Store(false)
		return false
	}
}

// await calls tell with the seal of an object, on another goroutine, when it is known whether it
// can be sealed: with nil if not, or not soon. It returns false if that is known already.
func (x *seals) await(listed storage.Object, tell func(sealed *seal)) bool {
	if x.files == nil || x.s.health.off.Load() {
		return false
	}
	state := x.state(listed)
	x.mu.Lock()
	defer x.mu.Unlock()
	if !state.queued.Load() && !x.due(state) {
		return false
	}
	if !x.ask(listed, state) || x.flushing {
		return false
	}
	x.waiting[listed] = append(x.waiting[listed], tell)
	return true
}

// slow answers all callers of await with nil, because what is under way may take long.
func (x *seals) slow() {
	x.mu.Lock()
	x.flushing = true
	waiting := x.waiting
	x.waiting = map[storage.Object][]func(*seal){}
	x.mu.Unlock()
	for _, tells := range waiting {
		for _, tell := range tells {
			tell(nil)
		}
	}
}

// seal seals an object, on the goroutine for that. The error is the reason why it can't be sealed
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
	file, err := x.settle(&o.wanted, files, x.flush)
	if err != nil {
		return err
	}
	pages, noted := o.pages, x.proofs.has(files, file)
	if noted {
		pages = 0
	}
	sealed := newSeal(file, pages, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.ask(listed, state)
	})
	sealed.noted.Store(noted)
	state.now.Store(sealed)
	return nil
}

// settle flushes an object that is complete, and returns its file, whose version any later change
// changes. What the disk has not stored is given up: the kernel reports that once, and has the right
// bytes in memory until then.
func (x *seals) settle(w *wanted, files *pair, flush func(fd int) error) (file storage.Object, err error) {
	fd, pages := files.data.FD(), pagesOf(w.sizeBytes)
	if err := x.complete(files, pages); err != nil {
		return file, err
	}
	file, err = x.files.StatStable(x.s.ahead.ctx, w.key.folder()+"/"+w.key.name()+".data")
	if err != nil {
		return file, err
	}
	if file.SizeBytes != w.dataBytes() {
		return file, errNotSealed // it was cut off: readers find out
	}
	if err := flush(fd); err != nil {
		x.s.failed("flush "+w.id.URL, err)
		return file, errors.Join(err, x.s.dir.spoil(files, run{0, pages}))
	}
	if err := filesystem.Check(fd, file); err != nil {
		return file, err
	}
	return file, x.complete(files, pages)
}

// note notes that all pages of an object were checked.
func (x *seals) note(listed storage.Object, sealed *seal) {
	if !x.s.begin(1) {
		return
	}
	defer x.s.end()
	o := x.s.hold(listed)
	if o == nil {
		return
	}
	defer x.s.release(o)
	if files := x.s.opened(o, false); files != nil && sealed.left.Load() == 0 {
		x.proofs.put(files, sealed.file)
	}
}

// written notes that a decoded shard is complete on the disk: it is checked soon, so that the next
// mount need not do it. It does not wait.
func (x *seals) written(k *keptShard) {
	if x.files == nil || !x.proofs.possible(k.files) || x.s.health.off.Load() {
		return
	}
	select {
	case x.kept <- k:
	default: // the next mount checks it
	}
}

// runKept checks decoded shards one after the other.
func (x *seals) runKept() {
	for {
		select {
		case <-x.stop:
			return
		case k := <-x.kept:
			x.checkKept(k)
		}
	}
}

// checkKept checks a decoded shard, as far as the page cache holds it, until the shard is left or
// the cache is closed.
func (x *seals) checkKept(k *keptShard) {
	if !x.s.begin(1) {
		return
	}
	defer x.s.end()
	k.checking.Lock()
	defer k.checking.Unlock()
	over := func() bool { return k.leaves.Load() || x.s.ahead.ctx.Err() != nil }
	if k.files == nil || over() {
		return
	}
	file, err := x.settle(&k.w, k.files, unix.Fdatasync)
	if err != nil || x.proofs.has(k.files, file) {
		return
	}
	pages := pagesOf(k.w.sizeBytes)
	sealed, sum := newSeal(file, pages, func() {}), newSummer(k.w.key)
	for begin := int64(0); begin < pages; begin += lookPages {
		if over() || x.compare(k.files, sum, sealed, run{begin, min(begin+lookPages, pages)}, nil) != nil {
			return // a reader will find out
		}
	}
	x.proofs.put(k.files, file)
}

// flush writes what is dirty of a file. If something is, nothing waits for it.
func (x *seals) flush(fd int) error {
	var counts unix.Cachestat_t
	if err := unix.Cachestat(uint(fd), &unix.CachestatRange{}, &counts, 0); err != nil || counts.Dirty+counts.Writeback > 0 {
		x.slow()
		defer func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.flushing = false
		}()
	}
	return unix.Fdatasync(fd)
}

// complete returns an error if one of an object's pages has no sum.
func (x *seals) complete(files *pair, pages int64) error {
	sums := make([]byte, min(pages, sumsAtOnce)*sumBytes)
	for begin := int64(0); begin < pages; begin += sumsAtOnce {
		r := run{begin, min(begin+sumsAtOnce, pages)}
		of := sums[:r.pages()*sumBytes]
		if n, err := x.s.dir.disk.read(files.sums.FD(), of, sumsAt(begin)); err != nil || n < len(of) {
			return errors.Join(errNotSealed, err)
		}
		for _, here := range alike(of, begin) {
			if !here {
				return errNotSealed
			}
		}
	}
	return nil
}

const (
	// lookBytes is how much is checked at a time: it stays in a core's own cache.
	lookBytes = 64 << 10
	lookPages = lookBytes / pageBytes
)

// look is memory for checking pages. It is reused.
type look struct {
	sums  [lookPages * sumBytes]byte
	pages [lookBytes]byte
}

// check makes sure that pages of an object, which is in use, were checked since it was sealed. It
// returns false if some were not, and are not in the page cache, or if one does not match its sum,
// which ends the seal. mapped is as for compare.
func (x *seals) check(o *object, sealed *seal, r run, mapped []byte) bool {
	if r = sealed.rest(r); r.pages() == 0 {
		return true
	}
	files := o.files.Load()
	if files == nil {
		return false
	}
	err := x.compare(files, o.summer, sealed, r, mapped)
	if err == errWrongSum {
		x.broken(o.listed, sealed)
	}
	return err == nil
}

var (
	errNotHeld  = errors.New("the page cache does not hold all of the pages")
	errWrongSum = errors.New("a page does not match its sum")
)

// compare compares those pages that were not checked yet with their sums. It reads from no disk. If
// the pages are mapped and populated, mapped is the whole file: then they are not copied, which
// takes more time than computing their sums. A fault of mapped memory is the caller's. The error is
// errNotHeld or errWrongSum.
func (x *seals) compare(files *pair, of summer, sealed *seal, r run, mapped []byte) error {
	y, _ := x.looks.Get().(*look)
	if y == nil {
		y = &look{}
	}
	defer x.looks.Put(y)
	for ; r.begin < r.end; r.begin += lookPages {
		part := sealed.rest(run{r.begin, min(r.begin+lookPages, r.end)})
		if part.pages() == 0 {
			continue
		}
		sums, pages := y.sums[:part.pages()*sumBytes], y.pages[:part.bytes()]
		if !x.readHeld(files.sums, sumsAt(part.begin), sums) {
			return errNotHeld
		}
		if int64(len(mapped)) >= part.end*pageBytes {
			pages = mapped[part.begin*pageBytes:][:part.bytes()]
		} else if !x.readHeld(files.data, part.begin*pageBytes, pages) {
			return errNotHeld
		}
		for i := part.begin; i < part.end; i++ {
			sum := sumOf(sums, i-part.begin)
			if sum == 0 || sum != of.sum(i, pages[(i-part.begin)*pageBytes:][:pageBytes]) {
				return errWrongSum
			}
			sealed.add(i)
		}
	}
	return nil
}

// readHeld reads a range of a file, and reports whether the page cache held it.
func (x *seals) readHeld(file *uring.File, off int64, buf []byte) bool {
	if !local.Holds(file.FD(), off, int64(len(buf))) {
		return false
	}
	n, err := x.s.dir.disk.read(file.FD(), buf, off)
	return err == nil && n == len(buf)
}

// held returns the seal of an object that is in use, if the page cache holds a range of it: then the
// pages of the range that are now read and match their sums need not be checked again.
func (x *seals) held(o *object, r run) *seal {
	sealed, files := x.of(o.listed), o.files.Load()
	if sealed == nil || files == nil || !local.Holds(files.data.FD(), r.begin*pageBytes, r.bytes()) {
		return nil
	}
	return sealed
}

// checkMapped makes sure that mapped pages, which are populated, were checked. It does not wait for
// files to be opened: it returns false if the object's are not open, or if mapped memory is gone.
func (x *seals) checkMapped(listed storage.Object, sealed *seal, r run, mapped []byte) (ok bool) {
	if r = sealed.rest(r); r.pages() == 0 {
		return true
	}
	o := x.s.holdOpen(listed)
	if o == nil {
		return false
	}
	defer x.s.release(o)
	gone := storage.Faulted(func() { ok = x.check(o, sealed, r, mapped) })
	return ok && !gone
}

// take submits a read of an object that is in use to the storage of files, and reports whether it
// did: if the object is sealed, and the page cache holds those of the read's pages that were not
// checked. It checks the pages around them, too, because they have other records.
func (x *seals) take(o *object, r *storage.Read) bool {
	sealed := x.of(r.Object)
	if sealed == nil || len(r.Buf) >= scratchPieceBytes {
		return false // the pages of large reads are checked where they are wanted
	}
	pages := runOf(r.OffsetBytes, int64(len(r.Buf)))
	if sealed.rest(pages).pages() > 0 {
		pages = run{pages.begin / lookPages * lookPages, min((pages.end+lookPages-1)/lookPages*lookPages, o.pages)}
		if !x.check(o, sealed, pages, nil) {
			return false
		}
	}
	x.files.Submit([]*storage.Read{x.like(r, sealed)})
	return true
}

// count returns how many objects are sealed.
func (x *seals) count() (n int) {
	x.by.Range(func(_, state any) bool {
		if state.(*sealState).now.Load() != nil {
			n++
		}
		return true
	})
	return n
}

// of returns the seal of an object, nil if it has none.
func (x *seals) of(listed storage.Object) *seal {
	if x.files == nil {
		return nil
	}
	state, ok := x.by.Load(listed)
	if !ok {
		return nil
	}
	return state.(*sealState).now.Load()
}

// sealedRead is a read of a sealed object. It is reused.
type sealedRead struct {
	x      *seals
	sealed *seal
	read   *storage.Read // as it was submitted
	file   storage.Read
}

// submit submits the reads of pages that were checked, and returns the others.
func (x *seals) submit(reads []*storage.Read) (others []*storage.Read) {
	var ours []*storage.Read
	for i, r := range reads {
		sealed := x.of(r.Object)
		if n := int64(len(r.Buf)); sealed == nil || r.OffsetBytes < 0 || n > r.Object.SizeBytes || r.OffsetBytes > r.Object.SizeBytes-n || sealed.rest(runOf(r.OffsetBytes, n)).pages() > 0 {
			if ours != nil {
				others = append(others, r)
			}
			continue
		}
		if ours == nil {
			others = append(others, reads[:i]...)
		}
		ours = append(ours, x.like(r, sealed))
	}
	if ours == nil {
		return reads
	}
	x.files.Submit(ours)
	return others
}

// like returns the read of a sealed object's file that answers r.
func (x *seals) like(r *storage.Read, sealed *seal) *storage.Read {
	y, _ := x.reads.Get().(*sealedRead)
	if y == nil {
		y = &sealedRead{}
		y.file.Done = y.done
	}
	y.x, y.sealed, y.read = x, sealed, r
	y.file.Object, y.file.OffsetBytes, y.file.Buf, y.file.Wanted = sealed.file, r.OffsetBytes, r.Buf, r.Wanted
	return &y.file
}

// done is called by the file's storage.
func (y *sealedRead) done(err error) {
	x, s, r, sealed := y.x, y.x.s, y.read, y.sealed
	y.x, y.sealed, y.read, y.file.Buf, y.file.Wanted = nil, nil, nil, nil, nil
	x.reads.Put(y)
	if err != nil && err != storage.ErrUnwanted {
		// Whatever the error is, it is read as any other object is.
		x.broken(r.Object, sealed)
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
	sealed := s.seals.of(o)
	if sealed != nil {
		s.mapSealed(o, sealed, done)
		return
	}
	if !s.seals.await(o, func(sealed *seal) { s.mapSealed(o, sealed, done) }) {
		s.readers.add(refusal{s, o, errNotSealed, done})
	}
}

// mapSealed maps an object, unless its seal is nil, and ends what Map has begun.
func (s *Storage) mapSealed(o storage.Object, sealed *seal, done func(storage.Mapping, error)) {
	if sealed == nil {
		refusal{s, o, errNotSealed, done}.run()
		return
	}
	s.seals.files.Map(sealed.file, func(m storage.Mapping, err error) {
		defer s.end()
		if err == nil {
			done(&sealedMapping{m, s.seals, o, sealed}, nil)
			return
		}
		if errors.Is(err, storage.ErrChanged) {
			s.seals.broken(o, sealed)
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
	sealed *seal
}

// Bytes returns the object's bytes: the file consists of whole pages, so it may be longer.
func (m *sealedMapping) Bytes() []byte { return m.Mapping.Bytes()[:m.object.SizeBytes] }

// Populate implements storage.Mapping. It checks the pages that were not checked yet.
func (m *sealedMapping) Populate(off, size int64) (added int64, ok bool) {
	added, ok = m.Mapping.Populate(off, size)
	if ok && !m.seals.checkMapped(m.object, m.sealed, runOf(off, size), m.Mapping.Bytes()) {
		m.Mapping.Drop(off, size)
		return 0, false
	}
	if ok {
		m.seals.s.counts.hits.Add(uint64(runOf(off, size).pages()))
	}
	return added, ok
}

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
	m.seals.broken(m.object, m.sealed)
	return &storage.Error{
		Object: m.object.Path, SizeBytes: m.object.SizeBytes,
		Err: fmt.Errorf("%w: the cache's file was changed (%v)", storage.ErrReadAgain, err),
	}
}
