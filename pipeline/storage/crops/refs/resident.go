package refs

import (
	"errors"
	"slices"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// OpenResident implements storage.Caps.
func (s *Storage) OpenResident(o storage.Object) (storage.Resident, error) {
	x, err := s.find(o)
	if err != nil {
		return nil, &storage.Error{Object: o.Path, SizeBytes: o.SizeBytes, Err: err}
	}
	if x.own {
		return inMemory(x.inline), nil
	}
	if s.caps.OpenResident == nil {
		return nil, nil
	}
	r := s.idle.take(x.of)
	if r == nil {
		if r, err = s.caps.OpenResident(x.of); r == nil || err != nil {
			return nil, err
		}
	}
	return &part{Resident: r, source: x, idle: &s.idle}, nil
}

// part is a range of a file that is read from memory.
type part struct {
	storage.Resident
	source
	idle    *idle
	changed bool
}

// Unchanged implements storage.Resident.
func (p *part) Unchanged() error {
	err := p.Resident.Unchanged()
	p.changed = p.changed || err != nil
	return err
}

// Close implements storage.Resident: the file stays open for other ranges of it.
func (p *part) Close() error {
	if p.changed {
		return p.Resident.Close()
	}
	return p.idle.give(p.of, p.Resident)
}

// maxIdle is how many files stay open that are not being read.
const maxIdle = 32

// idle holds files that are open after a read from memory, because one file holds many objects.
// Unchanged checks what was read from them, as for any other file.
type idle struct {
	mu     sync.Mutex
	list   []idleFile // most recently read last
	closed bool
}

type idleFile struct {
	of storage.Object
	r  storage.Resident
}

// take returns an open file, or nil if there is none.
func (x *idle) take(of storage.Object) storage.Resident {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, f := range slices.Backward(x.list) {
		if f.of == of {
			x.list = slices.Delete(x.list, i, i+1)
			return f.r
		}
	}
	return nil
}

// give keeps an open file; if there are too many, it closes the least recently read one.
func (x *idle) give(of storage.Object, r storage.Resident) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return r.Close()
	}
	x.list = append(x.list, idleFile{of, r})
	if len(x.list) <= maxIdle {
		return nil
	}
	first := x.list[0]
	x.list = slices.Delete(x.list, 0, 1)
	return first.r.Close()
}

// close closes them, and those that are given later.
func (x *idle) close() (err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	for _, f := range x.list {
		err = errors.Join(err, f.r.Close())
	}
	x.list = nil
	return err
}

func (p *part) Holds(off, size int64) bool {
	return p.has(off, size) && p.Resident.Holds(p.offset+off, size)
}

func (p *part) ReadAt(b []byte, off int64) bool {
	// For damaged bytes, the ordinary read returns the error.
	return p.has(off, int64(len(b))) && p.Resident.ReadAt(b, p.offset+off) && p.check(b) == nil
}

func (p *part) has(off, size int64) bool {
	return off >= 0 && size <= p.object.SizeBytes && off <= p.object.SizeBytes-size
}

// inMemory is an object whose bytes are in the reference file.
type inMemory []byte

func (m inMemory) Holds(off, size int64) bool {
	return off >= 0 && size <= int64(len(m)) && off <= int64(len(m))-size
}

func (m inMemory) ReadAt(b []byte, off int64) bool {
	return m.Holds(off, int64(len(b))) && copy(b, m[off:]) == len(b)
}

// Unchanged implements storage.Resident: the bytes in memory are those that were listed.
func (m inMemory) Unchanged() error { return nil }

func (m inMemory) Close() error { return nil }
