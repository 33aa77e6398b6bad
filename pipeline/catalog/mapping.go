package catalog

import (
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// mapping is a file mapped for reading. Files that are mapped are never
// truncated or written to by lsiofs afterwards: replaced ones get a new name's
// inode, journals only grow.
type mapping struct{ data []byte }

// mapFile maps the first size bytes of f, which may be closed afterwards.
func mapFile(f *os.File, size int64) (*mapping, error) {
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
