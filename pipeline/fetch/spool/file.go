package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/fetch/budget"
)

// File is one file for all shards of a spool. It has no name, so that the
// system frees it when the process ends, however it does.
//
// Take, Give and Used are for one goroutine at a time; all else may be called
// concurrently.
type File struct {
	Dir           string
	CapacityBytes int64
	Device        *os.File // what it is; tests put another one in its place

	// Reserve, if set, takes so many bytes of disk more, or gives them back, and says
	// whether that could be.
	Reserve func(bytes int64) bool

	full int64 // what it was made for
	free []Run // by offset, never touching each other
}

// Run is a stretch of the file.
type Run struct{ off, size int64 }

// tempName begins the name that the file has for a moment where files
// can't be made without one.
const tempName = "lsiofs-spool-"

// Round is how much room a shard of n decoded bytes takes: whole pages.
func Round(n int64) int64 { return budget.RoundToPages(n) }

// OpenFile makes the file and reserves its space, so that a disk that is
// too small shows now.
func OpenFile(dir string, capacity int64) (*File, error) {
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
	return reserveFile(dir, capacity, int64(st.Bavail)*st.Bsize)
}

// reserveFile goes on where the file system is known to be a disk's with so
// many bytes available.
func reserveFile(dir string, capacity, available int64) (*File, error) {
	tooSmall := func() error {
		return fmt.Errorf("the spool needs %d bytes, of which its directory %s has %d: choose another with --spool-dir", capacity, dir, available)
	}
	if capacity > available {
		return nil, tooSmall()
	}
	file, err := namelessFile(dir)
	if err != nil {
		return nil, fmt.Errorf("make the spool: %w; choose another directory with --spool-dir", err)
	}
	for {
		err = unix.Fallocate(int(file.Fd()), 0, 0, capacity)
		if err != unix.EINTR {
			break
		}
	}
	// Where space can't be reserved, that there is enough of it must do.
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
		if errors.Is(err, unix.ENOSPC) {
			err = tooSmall()
		}
		return nil, errors.Join(fmt.Errorf("reserve the spool: %w", err), file.Close())
	}
	return &File{Dir: dir, CapacityBytes: capacity, full: capacity, Device: file, free: []Run{{0, capacity}}}, nil
}

// namelessFile makes a file without a name, or with one that is taken away at once.
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

// removeAbandoned removes what a process left that was killed before it could
// take a name away. A name that is about to be taken away may go, too: its
// owner has the file open. What can't be removed is empty, and no reason to fail.
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

// Take gives n bytes, in several runs if need be, and false when there are not
// so many left.
func (s *File) Take(n int64) ([]Run, bool) {
	n = Round(n)
	left := int64(0)
	for _, r := range s.free {
		left += r.size
	}
	if n > left {
		return nil, false
	}
	// One run that is large enough is best: it is read and written at a time.
	for i, r := range s.free {
		if r.size >= n {
			s.free[i] = Run{r.off + n, r.size - n}
			s.tidy()
			return []Run{{r.off, n}}, true
		}
	}
	var got []Run
	for i, r := range s.free {
		size := min(r.size, n)
		got = append(got, Run{r.off, size})
		s.free[i] = Run{r.off + size, r.size - size}
		if n -= size; n == 0 {
			break
		}
	}
	s.tidy()
	return got, true
}

// Give takes runs back.
func (s *File) Give(runs []Run) {
	s.free = append(s.free, runs...)
	slices.SortFunc(s.free, func(a, b Run) int { return int(min(max(a.off-b.off, -1), 1)) })
	s.tidy()
}

// tidy joins runs that touch, and leaves out empty ones.
func (s *File) tidy() {
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

// Shorten cuts the file off behind what is taken of it.
func (s *File) Shorten() error {
	n := len(s.free)
	if n == 0 || s.free[n-1].off+s.free[n-1].size < s.CapacityBytes {
		return nil
	}
	last := s.free[n-1]
	if err := s.Device.Truncate(last.off); err != nil {
		return fmt.Errorf("shorten the spool in %s: %w", s.Dir, err)
	}
	s.free = s.free[:n-1]
	s.CapacityBytes = last.off
	if s.Reserve != nil {
		s.Reserve(-last.size)
	}
	return nil
}

// Lengthen makes the file as long again as it was made, and says whether it is.
func (s *File) Lengthen() bool {
	more := s.full - s.CapacityBytes
	if more <= 0 {
		return true
	}
	if s.Reserve != nil && !s.Reserve(more) {
		return false
	}
	err := unix.Fallocate(int(s.Device.Fd()), 0, s.CapacityBytes, more)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
		if s.Reserve != nil {
			s.Reserve(-more)
		}
		return false
	}
	s.Give([]Run{{s.CapacityBytes, more}})
	s.CapacityBytes = s.full
	return true
}

// Used is how many bytes are taken.
func (s *File) Used() int64 {
	n := s.CapacityBytes
	for _, r := range s.free {
		n -= r.size
	}
	return n
}

// EachPart calls visit for the places in the file of bytes [off, off+size) of
// what lies in runs, in order.
func EachPart(runs []Run, off, size int64, visit func(at, size int64) error) error {
	for _, r := range runs {
		if size == 0 {
			return nil
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

// Write puts b at off of what lies in runs.
func (s *File) Write(runs []Run, off int64, b []byte) error {
	return EachPart(runs, off, int64(len(b)), func(at, n int64) error {
		if _, err := s.Device.WriteAt(b[:n], at); err != nil {
			return fmt.Errorf("write the spool in %s: %w", s.Dir, err)
		}
		b = b[n:]
		return nil
	})
}

// Close gives its space back to the file system.
func (s *File) Close() error { return s.Device.Close() }
