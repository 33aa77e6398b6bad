package index

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/uring/filesystem"
)

// mapping is a file mapped for reading, or a copy of it in memory. Files that are mapped are never
// truncated or written to by lsiofs afterwards: replaced ones get a new name's
// inode, journals only grow.
type mapping struct{ data []byte }

// maxCopied is up to which size an index is copied to memory wherever it lies:
// some million records.
const maxCopied = 16 << 20

// mapFile gives the first size bytes of f, which may be closed afterwards: a copy of
// them in memory, unless f is in memory or is large. Pages of a mapping can go, and
// when they can't be read again that is the end of the process; while the server of
// a remote file system does not answer, it stands still. So nothing of one is mapped.
func (s *Store) mapFile(f *os.File, size int64, inMemory bool) (*mapping, error) {
	remote := !inMemory && filesystem.Of(int(f.Fd())).Remote
	if size == 0 || inMemory || !remote && size > maxCopied {
		return mapPages(f, size)
	}
	if remote && size > maxCopied {
		s.log.Warn("the index is on a network file system or FUSE, so a copy of it is kept in memory; name a local directory with --index-dir",
			"dir", s.dir, "bytes", size)
	}
	if size < 0 || size > math.MaxInt {
		return nil, fmt.Errorf("%s: %d bytes can't be held", f.Name(), size)
	}
	data, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("memory for %s: %w", f.Name(), err)
	}
	m := &mapping{data: data}
	if _, err = io.ReadFull(io.NewSectionReader(f, 0, size), data); err == nil {
		err = unix.Mprotect(data, unix.PROT_READ)
	}
	if err != nil {
		_ = m.Close()
		return nil, fmt.Errorf("reading %s: %w", f.Name(), err)
	}
	return m, nil
}

// mapPages maps the first size bytes of f.
func mapPages(f *os.File, size int64) (*mapping, error) {
	if size == 0 {
		return &mapping{}, nil
	}
	if size < 0 || size > math.MaxInt {
		return nil, fmt.Errorf("%s: %d bytes can't be mapped", f.Name(), size)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", f.Name(), err)
	}
	return &mapping{data: data}, nil
}

// Close unmaps; nothing may use data afterwards.
func (m *mapping) Close() error {
	if m == nil || m.data == nil {
		return nil
	}
	data := m.data
	m.data = nil
	return unix.Munmap(data)
}

// memoryFile is a file without a name, in memory: where an index lives that
// can't be written to its directory.
func memoryFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("lsiofs-index", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("an index in memory: %w", err)
	}
	return os.NewFile(uintptr(fd), "index in memory"), nil
}

// mapWhole is mapFile of all that a file holds.
func (s *Store) mapWhole(f *os.File, inMemory bool) (*mapping, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return s.mapFile(f, info.Size(), inMemory)
}

// mapJournal is mapFile of a journal. Of one that another process writes to only the whole
// entries are mapped: that process cuts off what it could not write to the end, and a
// mapping that is longer than its file ends who reads it.
func (s *Store) mapJournal(f *os.File, own bool) (*mapping, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	size := info.Size()
	if !own {
		size = wholeEntries(f, int64(len(s.journalHead(""))), size)
	}
	return s.mapFile(f, size, false)
}

// wholeEntries is how much of a journal of so many bytes its head and whole entries take,
// by the lengths that they begin with; what they hold is not checked.
func wholeEntries(f io.ReaderAt, head, size int64) int64 {
	if size < head {
		return 0
	}
	var lengths [24]byte // behind the sum: of the entry's head, and of its blob
	for at := head; ; {
		if size-at < entryHeadBytes {
			return at
		}
		if _, err := f.ReadAt(lengths[:], at); err != nil {
			return at
		}
		headBytes, blobBytes := binary.LittleEndian.Uint64(lengths[8:]), binary.LittleEndian.Uint64(lengths[16:])
		left := uint64(size - at)
		if headBytes < entryHeadBytes || headBytes > left || blobBytes > left-headBytes {
			return at
		}
		at += int64(headBytes + blobBytes)
	}
}
