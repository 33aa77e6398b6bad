package local

import (
	"bytes"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

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
