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

// mapping is a file mapped for reading, or a copy of it in memory. lsiofs never truncates or writes
// to a mapped file afterwards: a replacement is a new inode, and journals only grow.
type mapping struct{ data []byte }

// maxCopied is the size up to which an index is copied to memory on any file system: some million
// records.
const maxCopied = 16 << 20

// mapFile returns the first size bytes of f, which may be closed afterwards: a copy in memory,
// unless f is in memory or is large. Pages of a mapping can be evicted. If they can't be read
// again, the process is killed; while the server of a remote file system does not answer, the
// process hangs. So nothing on a remote file system is mapped.
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

// Close unmaps; data may not be used afterwards.
func (m *mapping) Close() error {
	if m == nil || m.data == nil {
		return nil
	}
	data := m.data
	m.data = nil
	return unix.Munmap(data)
}

// memoryFile returns an unnamed file in memory, for an index that can't be written to its
// directory.
func memoryFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("lsiofs-index", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("an index in memory: %w", err)
	}
	return os.NewFile(uintptr(fd), "index in memory"), nil
}

// mapWhole is mapFile for a complete file.
func (s *Store) mapWhole(f *os.File, inMemory bool) (*mapping, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return s.mapFile(f, info.Size(), inMemory)
}

// mapJournal is mapFile for a journal. If another process writes to it, only the whole entries are
// mapped: that process truncates what it could not write completely, and reading a mapping beyond
// the end of its file kills the reader.
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

// wholeEntries returns how many bytes the head and the whole entries of a journal take, judging by
// the lengths at the entries' beginning; their content is not checked.
func wholeEntries(f io.ReaderAt, head, size int64) int64 {
	if size < head {
		return 0
	}
	var lengths [24]byte // after the sum: lengths of the entry's head and of its blob
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
