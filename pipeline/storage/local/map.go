package local

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
	"github.com/lsiofs/lsiofs/uring/filesystem"
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
	x.waits(nil, func() {
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
	m := &mapping{storage: s, object: o, fd: fd, zeroesFirst: filesystem.Of(fd).ZeroesFirst}
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
	zeroesFirst bool // filesystem.Traits
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
