package diskcache

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/uring"
)

// nameless is an arena in one file without a name, which the system frees when the process ends,
// however it ends. The sum of page i of the data is at index i of the part before the data:
//
//	│ sums │ shard 0 │ 3 │  free  │ 0 │ 7        │     each shard in one or more extents
//
// The sums in the file are used only for shards whose sums do not fit in memory (Decoded).
//
// take, give, shorten and lengthen are for one goroutine at a time.
type nameless struct {
	path    string
	bytes   int64 // of data, now
	full    int64 // of data, when the file was created
	dataAt  int64 // where the data begins: after space for the sums of full
	device  *os.File
	file    *uring.File      // of device; it has no descriptor of its own
	reserve func(int64) bool // takes or returns disk space; may be nil
	free    []extent         // by offset; no two are adjacent
}

// extent is a stretch of the data, as an offset from where the data begins.
type extent struct{ off, size int64 }

// tempName begins the temporary name of the file, on file systems where files can't be created
// without one.
const tempName = "lsiofs-spool-"

// roundToPages returns the room that a shard of n decoded bytes takes.
func roundToPages(n int64) int64 { return pagesOf(n) * pageBytes }

// openNameless creates the file and reserves its space, so that it fails now if the disk is too
// small. Errors name --spool-dir.
func openNameless(dir string, capacity int64) (*nameless, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the spool directory: %w; choose another with --spool-dir", err)
	}
	removeAbandoned(dir)
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return nil, fmt.Errorf("spool directory %s: statfs: %w", dir, err)
	}
	if st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC {
		return nil, fmt.Errorf("spool directory %s is in memory (tmpfs): choose one on a disk with --spool-dir", dir)
	}
	return reserveNameless(dir, capacity, int64(st.Bavail)*st.Bsize)
}

// reserveNameless is openNameless once the file system is known to be a disk's with that many bytes
// available.
func reserveNameless(dir string, capacity, available int64) (*nameless, error) {
	tooSmall := func() error {
		return fmt.Errorf("the spool needs %d bytes, of which its directory %s has %d: choose another with --spool-dir", capacity, dir, available)
	}
	sums := roundToPages(pagesOf(capacity) * sumBytes)
	if capacity+sums > available {
		return nil, tooSmall()
	}
	file, err := namelessFile(dir)
	if err != nil {
		return nil, fmt.Errorf("make the spool: %w; choose another directory with --spool-dir", err)
	}
	// If space can't be reserved, it is enough that it is available.
	if err := allocate(file, 0, sums+capacity); err != nil {
		if errors.Is(err, unix.ENOSPC) {
			err = tooSmall()
		}
		return nil, errors.Join(fmt.Errorf("reserve the spool: %w", err), file.Close())
	}
	return &nameless{
		path: dir, bytes: capacity, full: capacity, dataAt: sums, device: file,
		file: uring.NewFile(int(file.Fd()), uring.DirectNever), free: []extent{{0, capacity}},
	}, nil
}

// allocate reserves disk space for a part of a file, if the file system can.
func allocate(file *os.File, off, n int64) error {
	err := again(func() error { return unix.Fallocate(int(file.Fd()), 0, off, n) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}

// namelessFile creates a file without a name, or with one that is removed at once.
func namelessFile(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), filepath.Join(dir, "(spool)")), nil
	}
	file, err := os.CreateTemp(dir, tempName+"*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// removeAbandoned removes the files of processes that were killed before they could remove the
// name. It may also remove a name that its owner is about to remove: the owner has the file open.
// Files that can't be removed are empty, so errors don't matter.
func removeAbandoned(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempName) && e.Type().IsRegular() {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// take implements arena.
func (s *nameless) take(w *wanted) (ground, bool) {
	extents, ok := s.takeExtents(w.sizeBytes)
	if !ok {
		return nil, false
	}
	return &plot{s, extents}, true
}

// takeExtents returns space for n bytes, in several extents if necessary, and false if less is
// left.
func (s *nameless) takeExtents(n int64) ([]extent, bool) {
	n = roundToPages(n)
	left := int64(0)
	for _, r := range s.free {
		left += r.size
	}
	if n > left {
		return nil, false
	}
	// One extent that is large enough is best: it takes one read or write.
	for i, r := range s.free {
		if r.size >= n {
			s.free[i] = extent{r.off + n, r.size - n}
			s.tidy()
			return []extent{{r.off, n}}, true
		}
	}
	var got []extent
	for i, r := range s.free {
		size := min(r.size, n)
		got = append(got, extent{r.off, size})
		s.free[i] = extent{r.off + size, r.size - size}
		if n -= size; n == 0 {
			break
		}
	}
	s.tidy()
	return got, true
}

// give returns extents.
func (s *nameless) give(extents []extent) {
	s.free = append(s.free, extents...)
	sort.Slice(s.free, func(i, j int) bool { return s.free[i].off < s.free[j].off })
	s.tidy()
}

// tidy joins adjacent extents, and removes empty ones.
func (s *nameless) tidy() {
	kept := s.free[:0]
	for _, r := range s.free {
		if n := len(kept); n > 0 && kept[n-1].off+kept[n-1].size == r.off {
			kept[n-1].size += r.size
		} else if r.size > 0 {
			kept = append(kept, r)
		}
	}
	s.free = kept
}

// shorten truncates the file after the last extent that is taken.
func (s *nameless) shorten() error {
	n := len(s.free)
	if n == 0 || s.free[n-1].off+s.free[n-1].size < s.bytes {
		return nil
	}
	last := s.free[n-1]
	if err := s.device.Truncate(s.dataAt + last.off); err != nil {
		return fmt.Errorf("shorten the spool in %s: %w", s.path, err)
	}
	s.free = s.free[:n-1]
	s.bytes = last.off
	if s.reserve != nil {
		s.reserve(-last.size)
	}
	return nil
}

// lengthen restores the file's original length, and reports whether that worked.
func (s *nameless) lengthen() bool {
	more := s.full - s.bytes
	if more <= 0 {
		return true
	}
	if s.reserve != nil && !s.reserve(more) {
		return false
	}
	if allocate(s.device, s.dataAt+s.bytes, more) != nil {
		if s.reserve != nil {
			s.reserve(-more)
		}
		return false
	}
	s.give([]extent{{s.bytes, more}})
	s.bytes = s.full
	return true
}

func (s *nameless) capacity() int64 { return s.bytes }

// used implements arena.
func (s *nameless) used() int64 {
	n := s.bytes
	for _, r := range s.free {
		n -= r.size
	}
	return n
}

func (s *nameless) dir() string  { return s.path }
func (s *nameless) name() string { return "the spool in " + s.path }
func (s *nameless) keeps() bool  { return false }

func (s *nameless) isCrowded() bool { return false }

// close frees the space of the file.
func (s *nameless) close() error { return s.device.Close() }

// plot is the place of a shard in a nameless file.
type plot struct {
	of      *nameless
	extents []extent
}

// open implements ground: nothing is there before it is written.
func (*plot) open() (there bool, err error)   { return false, nil }
func (*plot) reserve() (ours bool, err error) { return true, nil }
func (*plot) finish()                         {}

// parts calls visit for the extents of the shard's pages, in order, with offsets in the data.
func (p *plot) parts(pages run, visit func(at, n int64) error) error {
	off, size := pages.begin*pageBytes, pages.bytes()
	for _, r := range p.extents {
		if size == 0 {
			break
		}
		if off >= r.size {
			off -= r.size
			continue
		}
		n := min(r.size-off, size)
		if err := visit(r.off+off, n); err != nil {
			return err
		}
		off, size = 0, size-n
	}
	return nil
}

func (p *plot) each(pages run, visit func(file *uring.File, off, n int64)) {
	_ = p.parts(pages, func(at, n int64) error {
		visit(p.of.file, p.of.dataAt+at, n)
		return nil
	})
}

func (p *plot) write(pages run, content []byte) error {
	return p.parts(pages, func(at, n int64) error {
		err := (kernel{}).write(p.of.file.FD(), content[:n], p.of.dataAt+at)
		if err != nil {
			return fmt.Errorf("write %s: %w", p.of.name(), err)
		}
		content = content[n:]
		return nil
	})
}

// eachSum calls visit for the places of the sums of pages, in order.
func (p *plot) eachSum(pages run, visit func(at, n int64) error) error {
	return p.parts(pages, func(at, n int64) error { return visit(at/pageBytes*sumBytes, n/pageBytes*sumBytes) })
}

func (p *plot) writeSums(pages run, sums []byte) error {
	return p.eachSum(pages, func(at, n int64) error {
		if err := (kernel{}).write(p.of.file.FD(), sums[:n], at); err != nil {
			return fmt.Errorf("write %s: %w", p.of.name(), err)
		}
		sums = sums[n:]
		return nil
	})
}

func (p *plot) readSums(pages run, sums []byte) error {
	return p.eachSum(pages, func(at, n int64) error {
		got, err := (kernel{}).read(p.of.file.FD(), sums[:n], at)
		if err != nil {
			return fmt.Errorf("read %s: %w", p.of.name(), err)
		}
		clear(sums[got:n])
		sums = sums[n:]
		return nil
	})
}

// leave implements ground.
func (p *plot) leave(Leaving) {
	p.of.give(p.extents)
	p.extents = nil
}
