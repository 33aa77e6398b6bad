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
)

// maxMapped is how many files are mapped at a time: a quarter of the usual
// limit on mappings (vm.max_map_count), each of which has one.
const maxMapped = 16 << 10

// maxMappedFiles leaves half of a small limit on descriptors, or more, to others.
func maxMappedFiles() int64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int64(min(maxMapped, limit.Cur/4))
}

var _ storage.Mapper = (*Storage)(nil)

// Map implements storage.Mapper. Where all reads are direct nothing is mapped, and
// nothing of a file system whose pages may go away behind those who look at them.
func (s *Storage) Map(o storage.Object) (storage.Mapping, error) {
	m, err := s.mapFile(o)
	if err != nil {
		return nil, &storage.Error{Object: o.Path, SizeBytes: o.SizeBytes, Err: err}
	}
	return m, nil
}

func (s *Storage) mapFile(o storage.Object) (_ *mapping, err error) {
	if s.direct == DirectOn || o.SizeBytes <= 0 || s.unmappable.Load() {
		return nil, storage.ErrNotMapped
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
	fd, err := openObject(&s.files, o)
	if err != nil {
		return nil, err
	}
	if uring.Remote(fd) {
		_ = unix.Close(fd)
		return nil, storage.ErrNotMapped
	}
	m := &mapping{storage: s, object: o, fd: fd}
	if m.mem, err = mapAligned(fd, o.SizeBytes); err == nil {
		if m.residency = findResidency(m); m.residency != nil {
			m.uses = make([]uint32, (o.SizeBytes+storage.MapBlockBytes-1)/storage.MapBlockBytes)
			m.watched = s.watch.add(fd)
			return m, nil
		}
		err = fmt.Errorf("the kernel does not tell what the page cache holds: %w", storage.ErrNotMapped)
		_ = unmap(m.mem)
	}
	_ = unix.Close(fd)
	return nil, err
}

// mapping is a file in the address space, all of it, of which nothing is
// populated at first. One mapping a file is cheaper than one a piece: to unmap
// takes the lock of the whole address space.
type mapping struct {
	storage   *Storage
	object    storage.Object
	fd        int
	mem       []byte
	residency residency

	watched int           // by the storage's watch, -1 if it is not
	checked atomic.Uint64 // Storage.Changes when it was last found to be unchanged

	lease      atomic.Uint32 // leaseNone and so on; moved on under Storage.leases.mu
	leaseAgain atomic.Int64  // when to ask for one next, in nanoseconds after leases.start

	mu   sync.Mutex
	uses []uint32 // of each block
}

// mapAligned maps a file at an address that is a multiple of a block: a fault
// maps the pages around it, up to the bounds of a block.
func mapAligned(fd int, size int64) ([]byte, error) {
	length := uintptr(size+pageBytes-1) &^ uintptr(pageBytes-1)
	raw, err := unix.MmapPtr(-1, 0, nil, length+storage.MapBlockBytes, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("reserve address space: %w: %w", err, storage.ErrNotMapped)
	}
	before := -uintptr(raw) & (storage.MapBlockBytes - 1)
	p, err := unix.MmapPtr(fd, 0, unsafe.Add(raw, before), length, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_FIXED)
	if err != nil {
		_ = unix.MunmapPtr(raw, length+storage.MapBlockBytes)
		return nil, fmt.Errorf("mmap: %w: %w", err, storage.ErrNotMapped)
	}
	if before > 0 {
		_ = unix.MunmapPtr(raw, before)
	}
	_ = unix.MunmapPtr(unsafe.Add(p, length), storage.MapBlockBytes-before)
	return unsafe.Slice((*byte)(p), size), nil
}

func unmap(mem []byte) error {
	length := (uintptr(len(mem)) + uintptr(pageBytes) - 1) &^ uintptr(pageBytes-1)
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mem)), length)
}

var pageBytes = int64(os.Getpagesize())

// pages is the range, from a page's begin.
func (m *mapping) pages(off, size int64) []byte { return m.mem[off&^(pageBytes-1) : off+size] }

func (m *mapping) Bytes() []byte { return m.mem }

// Populate implements storage.Mapping. What it finds in the page cache and is
// gone a moment later is read, by a system call.
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
		if err == unix.EINVAL {
			m.storage.unmappable.Store(true) // Linux before 5.14
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

// folioBytes is the largest piece of the page cache: since Linux 6.18 one is
// mapped whole.
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

// dropUnused takes the blocks of a range that nobody uses out of the address
// space, those that touch together. m.mu is held.
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

// blockBytes is the memory of a block: whole pages.
func (m *mapping) blockBytes(b int64) int64 {
	length := (int64(len(m.mem)) + pageBytes - 1) &^ (pageBytes - 1)
	return min(storage.MapBlockBytes, length-b*storage.MapBlockBytes)
}

func (m *mapping) Resident(off, size int64) bool {
	from := off &^ (pageBytes - 1)
	return m.residency(m, from, off+size-from)
}

func (m *mapping) Check(changes uint64) error {
	if changes != 0 && m.watched >= 0 && m.checked.Load() == changes {
		return nil
	}
	if err := verify(m.fd, m.object); err != nil {
		return &storage.Error{Object: m.object.Path, SizeBytes: m.object.SizeBytes, Err: err}
	}
	if changes != 0 {
		m.checked.Store(changes)
	}
	return nil
}

func (m *mapping) Close() error {
	m.storage.watch.remove(m.watched)
	m.storage.leases.end(m)
	err := unmap(m.mem)
	_ = unix.Close(m.fd)
	m.storage.mapped.Add(-1)
	if err != nil {
		return fmt.Errorf("unmap %s: %w", m.object.Path, err)
	}
	return nil
}
