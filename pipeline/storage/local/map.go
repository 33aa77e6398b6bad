package local

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// maxMapped is how many files are mapped at a time: a quarter of the usual limit on mappings
// (vm.max_map_count); each file needs one.
const maxMapped = 16 << 10

var _ storage.Mapper = (*Storage)(nil)

// mapsAt reports whether files below a directory may be mapped.
func mapsAt(root string, direct Direct) bool {
	if direct == DirectOn || !populates() {
		return false
	}
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return !uring.Remote(fd)
}

// populates reports whether the kernel can populate mappings (Linux 5.14).
var populates = sync.OnceValue(func() bool {
	page, err := unix.Mmap(-1, 0, int(pageBytes), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Munmap(page) }()
	return unix.Madvise(page, unix.MADV_POPULATE_READ) != unix.EINVAL
})

// Map implements storage.Mapper.
func (s *Storage) Map(o storage.Object, done func(storage.Mapping, error)) {
	s.start([]job{{object: o, mapped: done}})
}

// mapObject is Map, on an opener's goroutine.
func (s *Storage) mapObject(x *opener, j job) {
	m, err := s.mapFile(x, j.object)
	if err != nil {
		j.mapped(nil, &storage.Error{Object: j.object.Path, SizeBytes: j.object.SizeBytes, Err: err})
		return
	}
	j.mapped(m, nil)
}

func (s *Storage) mapFile(x *opener, o storage.Object) (_ *mapping, err error) {
	if !s.maps || o.SizeBytes <= 0 {
		return nil, storage.ErrNotMapped
	}
	if s.inflight.Closed() {
		return nil, storage.ErrClosed
	}
	if s.mapped.Add(1) > s.maxMapped {
		s.mapped.Add(-1)
		return nil, storage.ErrTooManyMappings
	}
	defer func() {
		if err != nil {
			s.mapped.Add(-1)
		}
	}()
	fd, remote := -1, false
	hang(x, nil, func() {
		if fd, err = s.files.openObject(o); err != nil {
			return
		}
		if remote = uring.Remote(fd); remote {
			_ = unix.Close(fd)
			err = storage.ErrNotMapped
		}
	})
	if err != nil {
		return nil, err
	}
	m := &mapping{storage: s, object: o, fd: fd, zeroesFirst: uring.TraitsOf(fd).ZeroesFirst}
	if m.mem, err = mapAligned(fd, o.SizeBytes); err == nil {
		if m.residency = findResidency(m); m.residency != nil {
			m.uses = make([]uint32, (o.SizeBytes+storage.MapBlockBytes-1)/storage.MapBlockBytes)
			s.leases.begin(m)
			return m, nil
		}
		err = fmt.Errorf("the kernel does not tell what the page cache holds: %w", storage.ErrNotMapped)
		_ = unmap(m.mem)
	}
	_ = unix.Close(fd)
	return nil, err
}

// mapping maps a whole file, of which nothing is populated at first. One mapping per file is
// cheaper than one per piece: unmapping takes the lock of the whole address space.
type mapping struct {
	storage     *Storage
	object      storage.Object
	fd          int
	mem         []byte
	zeroesFirst bool // uring.Traits
	residency   residency

	lease atomic.Uint32 // leaseNone and so on; changed under Storage.leases.mu

	mu   sync.Mutex
	uses []uint32 // number of users of each block
}

// mapAligned maps a file at an address that is a multiple of a block: a fault maps the pages around
// it, up to the bounds of a block.
func mapAligned(fd int, size int64) ([]byte, error) {
	length := uintptr(size+pageBytes-1) &^ uintptr(pageBytes-1)
	raw, err := unix.MmapPtr(-1, 0, nil, length+storage.MapBlockBytes, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, mapError("reserve address space", err)
	}
	before := -uintptr(raw) & (storage.MapBlockBytes - 1)
	p, err := unix.MmapPtr(fd, 0, unsafe.Add(raw, before), length, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_FIXED)
	if err != nil {
		_ = unix.MunmapPtr(raw, length+storage.MapBlockBytes)
		return nil, mapError("mmap", err)
	}
	if before > 0 {
		_ = unix.MunmapPtr(raw, before)
	}
	_ = unix.MunmapPtr(unsafe.Add(p, length), storage.MapBlockBytes-before)
	return unsafe.Slice((*byte)(p), size), nil
}

// mapError wraps err with ErrTooManyMappings if others must be unmapped first (vm.max_map_count,
// the address space), or else with ErrNotMapped.
func mapError(op string, err error) error {
	why := storage.ErrNotMapped
	if err == unix.ENOMEM {
		why = storage.ErrTooManyMappings
	}
	return fmt.Errorf("%s: %w: %w", op, err, why)
}

func unmap(mem []byte) error {
	length := (uintptr(len(mem)) + uintptr(pageBytes) - 1) &^ uintptr(pageBytes-1)
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mem)), length)
}

var pageBytes = int64(os.Getpagesize())

// pages returns the range, extended to the start of a page.
func (m *mapping) pages(off, size int64) []byte { return m.mem[off&^(pageBytes-1) : off+size] }

func (m *mapping) Bytes() []byte { return m.mem }

// Populate implements storage.Mapping. Pages that are evicted between the check and the system call
// are read by the system call.
func (m *mapping) Populate(off, size int64) (added int64, ok bool) {
	if size <= 0 || !m.Resident(off, size) {
		return 0, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		err := unix.Madvise(m.pages(off, size), unix.MADV_POPULATE_READ)
		if err == nil {
			break
		}
		if err != unix.EINTR && err != unix.EAGAIN {
			m.dropUnused(off, size)
			return 0, false
		}
	}
	for b := off / storage.MapBlockBytes; b <= (off+size-1)/storage.MapBlockBytes; b++ {
		if m.uses[b]++; m.uses[b] == 1 {
			added += m.blockBytes(b)
		}
	}
	return added, true
}

// folioBytes is the largest unit of the page cache: since Linux 6.18 a folio is mapped whole.
const folioBytes = 2 << 20

func (m *mapping) Trim(off, size int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	from := off &^ (folioBytes - 1)
	to := min((off+size+folioBytes-1)&^(folioBytes-1), int64(len(m.mem)))
	m.dropUnused(from, to-from)
}

func (m *mapping) Drop(off, size int64) (freed int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for b := off / storage.MapBlockBytes; b <= (off+size-1)/storage.MapBlockBytes; b++ {
		if m.uses[b]--; m.uses[b] == 0 {
			freed += m.blockBytes(b)
		}
	}
	if freed > 0 {
		m.dropUnused(off, size)
	}
	return freed
}

// dropUnused unmaps the unused blocks of a range, adjacent ones together. m.mu is held.
func (m *mapping) dropUnused(off, size int64) {
	last := (off + size - 1) / storage.MapBlockBytes
	for b := off / storage.MapBlockBytes; b <= last; b++ {
		first := b
		for b <= last && m.uses[b] == 0 {
			b++
		}
		if b > first {
			end := min(b*storage.MapBlockBytes, int64(len(m.mem)))
			_ = unix.Madvise(m.mem[first*storage.MapBlockBytes:end], unix.MADV_DONTNEED)
		}
	}
}

// blockBytes returns the memory of a block, in whole pages.
func (m *mapping) blockBytes(b int64) int64 {
	length := (int64(len(m.mem)) + pageBytes - 1) &^ (pageBytes - 1)
	return min(storage.MapBlockBytes, length-b*storage.MapBlockBytes)
}

func (m *mapping) Resident(off, size int64) bool {
	from := off &^ (pageBytes - 1)
	return m.residency(m, from, off+size-from)
}

func (m *mapping) Check() error {
	afterReads()
	if m.zeroesFirst {
		// Zeros from a truncation may have been copied before anything else shows the truncation: a
		// read returns only after it.
		var one [1]byte
		_, _ = unix.Pread(m.fd, one[:], 0)
	}
	if err := verify(m.fd, m.object); err != nil {
		return &storage.Error{Object: m.object.Path, SizeBytes: m.object.SizeBytes, Err: err}
	}
	return nil
}

func (m *mapping) Close() error {
	m.storage.leases.end(m)
	err := unmap(m.mem)
	_ = unix.Close(m.fd)
	m.storage.mapped.Add(-1)
	if err != nil {
		return fmt.Errorf("unmap %s: %w", m.object.Path, err)
	}
	return nil
}

// residency reports whether the page cache holds all of a range that begins at a page. It returns
// false if the kernel does not provide that.
type residency func(m *mapping, off, size int64) bool

// findResidency returns the way that works for a file, or nil if there is none: a mapping whose
// residency is unknown is never touched.
func findResidency(m *mapping) residency {
	var counts unix.Cachestat_t
	err := unix.Cachestat(uint(m.fd), &unix.CachestatRange{Len: 1}, &counts, 0)
	switch {
	case err == nil:
		return byCachestat
	case err == unix.ENOSYS && tellsMincore(m.fd):
		return byMincore
	}
	return nil // EPERM: the file belongs to another user
}

// byCachestat uses cachestat (Linux 6.5).
func byCachestat(m *mapping, off, size int64) bool { return Holds(m.fd, off, size) }

// tellsMincore reports whether mincore can be trusted: it reports other users' files as completely
// in memory.
func tellsMincore(fd int) bool {
	var st unix.Stat_t
	uid := os.Geteuid()
	return unix.Fstat(fd, &st) == nil && (uid == 0 || uint32(uid) == st.Uid)
}

// byMincore uses mincore, some pages at a time.
func byMincore(m *mapping, off, size int64) bool {
	var pages [256]byte
	for end := off + size; off < end; {
		n := min(end-off, int64(len(pages))*pageBytes)
		p := unsafe.Pointer(unsafe.SliceData(m.mem[off:]))
		if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(p), uintptr(n), uintptr(unsafe.Pointer(&pages))); errno != 0 {
			return false
		}
		for _, page := range pages[:(n+pageBytes-1)/pageBytes] {
			if page&1 == 0 {
				return false
			}
		}
		off += n
	}
	return true
}

// evictionsNanos is the interval at which the kernel is queried; a query takes 20 µs.
const evictionsNanos = int64(100 * time.Millisecond)

// evictions observes whether the kernel evicts pages from the page cache. Mapped pages disappear in
// no other way, except by truncation.
type evictions struct {
	start time.Time
	asked atomic.Int64 // nanoseconds after start; the goroutine that advances it makes the query
	count atomic.Uint64

	mu     sync.Mutex // held during a query
	vmstat *os.File
	err    error // from opening it
	text   [16 << 10]byte
	stolen uint64
}

func (e *evictions) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = e.vmstat.Close()
	e.err = storage.ErrClosed
}

// Evictions implements storage.Mapper.
func (s *Storage) Evictions() uint64 {
	e := &s.evictions
	now := int64(time.Since(e.start))
	if asked := e.asked.Load(); now-asked >= evictionsNanos && e.asked.CompareAndSwap(asked, now) {
		e.ask()
	}
	return e.count.Load()
}

// ask increments count if pages may have been evicted since the last call.
func (e *evictions) ask() {
	if !e.mu.TryLock() {
		return // another goroutine has been querying for long
	}
	defer e.mu.Unlock()
	if e.vmstat == nil && e.err == nil {
		e.vmstat, e.err = os.Open("/proc/vmstat")
	}
	n, _ := e.vmstat.ReadAt(e.text[:], 0)
	stolen, ok := stolenPages(e.text[:n])
	if !ok || stolen != e.stolen {
		e.stolen = stolen
		e.count.Add(1)
	}
}

var stolenLine = []byte("\npgsteal_file ")

// stolenPages finds in /proc/vmstat how many pages of files were evicted, for whatever limit (Linux
// 5.8).
func stolenPages(vmstat []byte) (uint64, bool) {
	i := bytes.Index(vmstat, stolenLine)
	if i < 0 {
		return 0, false
	}
	n := uint64(0)
	for _, c := range vmstat[i+len(stolenLine):] {
		if c < '0' || c > '9' {
			return n, c == '\n'
		}
		n = n*10 + uint64(c-'0')
	}
	return 0, false
}

// inMemory has its own descriptor, besides the cached ones: its user reads one file after another.
type inMemory struct {
	fd int
	o  storage.Object
}

// OpenResident implements storage.Caps. The memory is the page cache. It returns nil with
// DirectOn, and for remote files, whose Stat may not show recent changes.
func (s *Storage) OpenResident(o storage.Object) (storage.Resident, error) {
	if s.direct == DirectOn {
		return nil, nil
	}
	fd, err := openObject(&s.files, o)
	if err != nil {
		return nil, &storage.Error{Object: o.Path, SizeBytes: o.SizeBytes, Err: err}
	}
	if uring.Remote(fd) {
		return nil, unix.Close(fd)
	}
	return inMemory{fd, o}, nil
}

// Holds implements storage.Resident.
func (f inMemory) Holds(offsetBytes, sizeBytes int64) bool {
	return Holds(f.fd, offsetBytes, sizeBytes)
}

// Holds reports whether the page cache holds all of a range of an open file. It uses cachestat
// (Linux 6.5), and returns false without it. RWF_NOWAIT can't be used to find out, because it
// starts readahead of the missing pages.
func Holds(fd int, offsetBytes, sizeBytes int64) bool {
	pages := (offsetBytes+sizeBytes+pageBytes-1)/pageBytes - offsetBytes/pageBytes
	var counts unix.Cachestat_t
	at := unix.CachestatRange{Off: uint64(offsetBytes), Len: uint64(sizeBytes)}
	for {
		err := unix.Cachestat(uint(fd), &at, &counts, 0)
		if err != unix.EINTR {
			return err == nil && counts.Cache >= uint64(pages)
		}
	}
}

// ReadAt implements storage.Resident. It returns false on file systems without RWF_NOWAIT.
func (f inMemory) ReadAt(p []byte, offsetBytes int64) bool {
	for len(p) > 0 {
		vector := [1][]byte{p}
		n, err := unix.Preadv2(f.fd, vector[:], offsetBytes, unix.RWF_NOWAIT)
		switch {
		case err == unix.EINTR:
		case err != nil || n <= 0:
			return false
		default:
			p, offsetBytes = p[n:], offsetBytes+int64(n)
		}
	}
	return true
}

// Unchanged implements storage.Resident.
func (f inMemory) Unchanged() error { return verify(f.fd, f.o) }

func (f inMemory) Close() error { return unix.Close(f.fd) }
