package fileset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sort"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/uring"
)

func pad8(n uint64) uint64 { return (n + 7) &^ 7 }

var errNotKept = errors.New("the listing can't be kept")

// scratch is the file that becomes a table. put may be called concurrently.
type scratch struct {
	dir  string // where it is; "": in memory
	file *os.File

	mu   sync.Mutex
	end  uint64
	sums []uint64 // nil in memory
}

// placed is the position of a run of bytes in a table, and that of its first block's checksum.
type placed struct{ at, bytes, sum uint64 }

// newScratch creates an unnamed file in dir. It is in memory if that fails, or if dir is on another
// machine's disk: a mapping from there may hang.
func newScratch(dir string) (*scratch, error) {
	if dir != "" {
		fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err == nil && uring.Remote(fd) {
			_ = unix.Close(fd)
		} else if err == nil {
			return &scratch{dir: dir, file: os.NewFile(uintptr(fd), dir+"/(listing)")}, nil
		}
	}
	fd, err := unix.MemfdCreate("lsiofs-listing", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("a listing in memory: %w", err)
	}
	return &scratch{file: os.NewFile(uintptr(fd), "listing in memory")}, nil
}

// put writes b at a multiple of 8 and returns its position.
func (s *scratch) put(b []byte) (placed, error) {
	var sums []uint64
	if s.dir != "" {
		sums = sumsOf(b)
	}
	s.mu.Lock()
	p := placed{at: s.end, bytes: uint64(len(b)), sum: uint64(len(s.sums))}
	s.end += pad8(p.bytes)
	s.sums = append(s.sums, sums...)
	s.mu.Unlock()
	if _, err := s.file.WriteAt(b, int64(p.at)); err != nil {
		return placed{}, fmt.Errorf("%w: %w", errNotKept, err)
	}
	return p, nil
}

// toDisk writes everything to the disk, so that a disk that is full, or fails, shows this now. If a
// file system does not support that, the checksums have to show it.
func (s *scratch) toDisk() error {
	if s.dir == "" {
		return nil
	}
	for {
		switch err := unix.SyncFileRange(int(s.file.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER); err {
		case unix.EINTR:
		case nil, unix.ENOSYS, unix.EINVAL, unix.ESPIPE, unix.EOPNOTSUPP, unix.EPERM:
			return nil
		default:
			return fmt.Errorf("%w: %w", errNotKept, err)
		}
	}
}

// found is a directory whose segment is in the scratch file.
type found struct {
	path    string
	at      placed
	segment segment // without bytes
	device  uint64
	inode   uint64
	linked  bool // below.linked
}

// seal writes the entries for list after the segments, sorted by path, and maps the file.
func (s *scratch) seal(list []found) (*table, error) {
	sort.Slice(list, func(i, j int) bool { return list[i].path < list[j].path })
	var paths []byte
	for i := range list {
		paths = append(paths, list[i].path...)
	}
	t := &table{dir: s.dir, count: len(list)}
	t.users.Store(1)
	var err error
	if t.paths, err = s.put(paths); err != nil {
		return nil, err
	}
	entries, pathAt := make([]byte, 0, len(list)*entryBytes), t.paths.at
	for i := range list {
		d := &list[i]
		for _, v := range [entryWords]uint64{
			pathAt, uint64(len(d.path)), d.at.at, d.at.bytes,
			uint64(d.segment.files), uint64(d.segment.sizeBytes), d.segment.version.Hi, d.segment.version.Lo, d.at.sum,
		} {
			entries = binary.NativeEndian.AppendUint64(entries, v)
		}
		pathAt += uint64(len(d.path))
	}
	if t.entries, err = s.put(entries); err != nil {
		return nil, err
	}
	if t.sums = s.sums; s.end == 0 {
		return t, nil
	}
	if err := s.file.Truncate(int64(s.end)); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotKept, err)
	}
	if err := s.toDisk(); err != nil {
		return nil, err
	}
	if t.data, err = unix.Mmap(int(s.file.Fd()), 0, int(s.end), unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("map the listing: %w", err)
	}
	return t, nil
}
