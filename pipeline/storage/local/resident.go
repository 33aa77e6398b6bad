package local

import (
	"bytes"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// residency says whether the page cache holds all of a range that begins at a
// page. false is also its answer when the kernel gives none.
type residency func(m *mapping, off, size int64) bool

// findResidency gives the way that works for a file, nil where none does: a
// mapping of which that is not known is never touched.
func findResidency(m *mapping) residency {
	var counts unix.Cachestat_t
	err := unix.Cachestat(uint(m.fd), &unix.CachestatRange{Len: 1}, &counts, 0)
	switch {
	case err == nil:
		return byCachestat
	case err == unix.ENOSYS && tellsMincore(m.fd):
		return byMincore
	}
	return nil // EPERM: the file is another user's
}

// byCachestat asks cachestat (Linux 6.5).
func byCachestat(m *mapping, off, size int64) bool { return Holds(m.fd, off, size) }

// tellsMincore says whether mincore tells the truth: of the files of others it
// says that they are all in memory.
func tellsMincore(fd int) bool {
	var st unix.Stat_t
	uid := os.Geteuid()
	return unix.Fstat(fd, &st) == nil && (uid == 0 || uint32(uid) == st.Uid)
}

// byMincore asks mincore, some pages at a time.
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

// evictionsNanos is how often the kernel is asked: 20 µs each.
const evictionsNanos = int64(100 * time.Millisecond)

// evictions watches whether the kernel takes pages away from the page cache.
// Pages that are mapped go no other way, but by truncation.
type evictions struct {
	start time.Time
	asked atomic.Int64 // nanoseconds after start; who moves it on asks
	count atomic.Uint64

	mu     sync.Mutex // of the one who asks
	vmstat *os.File
	err    error // of opening it
	text   [16 << 10]byte
	stolen uint64
}

func (e *evictions) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = e.vmstat.Close()
	e.err = errClosed
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

// ask counts one when pages may have been taken away since it was last called.
func (e *evictions) ask() {
	if !e.mu.TryLock() {
		return // another is at it, since long
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

// stolenPages finds how many pages of files were taken away, by whatever limit
// (Linux 5.8), in /proc/vmstat.
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
