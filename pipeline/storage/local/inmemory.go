package local

import (
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// inMemory has its own descriptor, besides the cached ones: its user reads one file after another.
type inMemory struct {
	fd int
	o  storage.Object
}

// OpenResident implements storage.Caps. The memory is the page cache. It returns nil with
// DirectOn, and for remote files, whose Stat may not show recent changes.
func (s *Storage) OpenResident(o storage.Object) (storage.Resident, error) {
	if s.direct == DirectOn {
		return nil, nil
	}
	fd, err := openObject(&s.files, o)
	if err != nil {
		return nil, &storage.Error{Object: o.Path, SizeBytes: o.SizeBytes, Err: err}
	}
	if uring.Remote(fd) {
		return nil, unix.Close(fd)
	}
	return inMemory{fd, o}, nil
}

// Holds implements storage.Resident.
func (f inMemory) Holds(offsetBytes, sizeBytes int64) bool {
	return Holds(f.fd, offsetBytes, sizeBytes)
}

// Holds reports whether the page cache holds all of a range of an open file. It uses cachestat
// (Linux 6.5), and returns false without it. RWF_NOWAIT can't be used to find out, because it
// starts readahead of the missing pages.
func Holds(fd int, offsetBytes, sizeBytes int64) bool {
	pages := (offsetBytes+sizeBytes+pageBytes-1)/pageBytes - offsetBytes/pageBytes
	var counts unix.Cachestat_t
	at := unix.CachestatRange{Off: uint64(offsetBytes), Len: uint64(sizeBytes)}
	for {
		err := unix.Cachestat(uint(fd), &at, &counts, 0)
		if err != unix.EINTR {
			return err == nil && counts.Cache >= uint64(pages)
		}
	}
}

// ReadAt implements storage.Resident. It returns false on file systems without RWF_NOWAIT.
func (f inMemory) ReadAt(p []byte, offsetBytes int64) bool {
	for len(p) > 0 {
		vector := [1][]byte{p}
		n, err := unix.Preadv2(f.fd, vector[:], offsetBytes, unix.RWF_NOWAIT)
		switch {
		case err == unix.EINTR:
		case err != nil || n <= 0:
			return false
		default:
			p, offsetBytes = p[n:], offsetBytes+int64(n)
		}
	}
	return true
}

// Unchanged implements storage.Resident.
func (f inMemory) Unchanged() error { return verify(f.fd, f.o) }

func (f inMemory) Close() error { return unix.Close(f.fd) }
