package arrays

import "github.com/lsiofs/lsiofs/pipeline/storage"

// Dry is a Storage for dry runs: it submits the same reads of files as a Storage, to a storage that
// completes them without data, and copies nothing. All its methods are for one goroutine, but reads
// below may complete in any.
type Dry struct {
	*Storage
	empty   []*reading // that no file is read for
	nothing []byte     // stands for the rows of all reads, and is not touched
}

// Dry returns a storage of the joined objects for a dry run. Its reads go to below, whose caller
// completes them, not within Submit.
func (s *Storage) Dry(below storage.Storage) *Dry {
	d := &Dry{Storage: s.on(below)}
	d.dry = d
	return d
}

// Step completes a read that no file is read for, and reports whether there was one.
func (d *Dry) Step() bool {
	if len(d.empty) == 0 {
		return false
	}
	x := d.empty[0]
	d.empty = d.empty[1:]
	x.done(nil)
	return true
}

// Close implements storage.Storage. All reads must have completed. It does not close the storage
// below.
func (d *Dry) Close() error { return nil }

// rows returns memory for n bytes of rows that are read together.
func (s *Storage) rows(n int64) []byte {
	d := s.dry
	if d == nil {
		return make([]byte, n)
	}
	if n > int64(len(d.nothing)) {
		d.nothing = make([]byte, max(n, 2*int64(len(d.nothing))))
	}
	return d.nothing[:n:n]
}
