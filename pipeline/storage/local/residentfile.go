package local

import (
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

var _ storage.ResidentOpener = (*Storage)(nil)

// resident is a file of its own, beside those that are kept open: its user reads
// one file after the other.
type resident struct{ file *uring.File }

// OpenResident implements storage.ResidentOpener, with DirectOn for nobody.
func (s *Storage) OpenResident(o storage.Object) (storage.Resident, error) {
	if s.direct == DirectOn {
		return nil, nil
	}
	fd, err := openObject(&s.files, o)
	if err != nil {
		return nil, &storage.Error{Object: o.Path, SizeBytes: o.SizeBytes, Err: err}
	}
	return resident{uring.NewFile(fd, uring.DirectNever)}, nil
}

func (r resident) Holds(offsetBytes, sizeBytes int64) bool {
	return r.file.Resident(offsetBytes, sizeBytes)
}

func (r resident) ReadAt(p []byte, offsetBytes int64) bool {
	return r.file.ReadResident(p, offsetBytes)
}

func (r resident) Close() error { return r.file.Close() }
