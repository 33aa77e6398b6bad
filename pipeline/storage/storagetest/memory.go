package storagetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// memory is a storage of files in memory, with all capabilities or with none. It records how its
// capabilities are used.
type memory struct {
	files map[string][]byte
	caps  bool

	inflight storage.Inflight
	mu       sync.Mutex
	calls    []string
}

func newMemory(caps bool) *memory {
	return &memory{files: map[string][]byte{"x.bin": []byte("0123456789"), "y.bin": []byte("abcdefgh")}, caps: caps}
}

func (m *memory) object(path string) storage.Object {
	return storage.Object{Path: path, SizeBytes: int64(len(m.files[path])), Version: storage.Version{ModTimeNanos: 1, Inode: 1}}
}

func (m *memory) List(_ context.Context, match func(path string, isDir bool) bool, visit func(storage.Object) error) error {
	for _, path := range slices.Sorted(maps.Keys(m.files)) {
		if match(path, false) {
			if err := visit(m.object(path)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *memory) Stat(_ context.Context, path string) (storage.Object, error) {
	if m.files[path] == nil {
		return storage.Object{}, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	return m.object(path), nil
}

func (m *memory) Submit(reads []*storage.Read) {
	open := m.inflight.Begin(len(reads))
	for _, r := range reads {
		go func() {
			defer m.inflight.End()
			err := r.Check()
			if !open {
				err = storage.ErrClosed
			}
			if err != nil {
				r.Done(r.Failure(err))
				return
			}
			copy(r.Buf, m.files[r.Object.Path][r.OffsetBytes:])
			r.Done(nil)
		}()
	}
}

func (m *memory) Close() error {
	m.inflight.Close()
	return nil
}

// called records a call.
func (m *memory) called(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, fmt.Sprintf(format, args...))
}

// take returns the calls since the last take.
func (m *memory) take() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	calls := m.calls
	m.calls = nil
	return calls
}

func (m *memory) Caps() storage.Caps {
	if !m.caps {
		return storage.Caps{}
	}
	return storage.Caps{
		StatStable: func(ctx context.Context, path string) (storage.Object, error) {
			m.called("stable %s", path)
			return m.Stat(ctx, path)
		},
		Omitted: func() []storage.Omission { return []storage.Omission{{Path: ".hidden", Reason: storage.OmittedHidden}} },
		Parts:   func(path string) []string { return []string{path} },
		Join: func(_ context.Context, _ []string, files []storage.Object) (storage.Object, error) {
			return files[0], nil
		},
		Outline: func(o storage.Object) (io.ReaderAt, error) {
			return bytes.NewReader(make([]byte, len(m.files[o.Path]))), nil
		},
		Check:    func(_ context.Context, o storage.Object) error { m.called("check %s", o.Path); return nil },
		Verifier: verifier{m},
		Mapper:   mapper{m},
		OpenResident: func(o storage.Object) (storage.Resident, error) {
			return resident{bytes.NewReader(m.files[o.Path])}, nil
		},
		OpenSequential: func(_ context.Context, o storage.Object, off int64) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(m.files[o.Path][off:])), nil
		},
		Uncached: func() (storage.Storage, error) { return newMemory(true), nil },
		Fill: func(reads []*storage.Read) {
			for _, r := range reads {
				m.called("fill %s", r.Object.Path)
			}
			m.Submit(reads)
		},
		Hints:         hints{m},
		Status:        func() uring.Status { return uring.Status{Engine: "memory", Reads: 7} },
		AdjustProfile: func(p storage.Profile) storage.Profile { p.GapBytes = 0; return p },
		HeldBytes:     func() int64 { return 1000 },
	}
}

type hints struct{ m *memory }

func (h hints) Want(reader uint64, blocks []storage.Block) {
	for _, b := range blocks {
		h.m.called("want %d: %s %d+%d epoch %d due %d", reader, b.Object.Path, b.OffsetBytes, b.SizeBytes, b.Epoch, b.DueBytes)
	}
}

func (h hints) Passed(reader uint64, blocks []storage.Block) {
	for _, b := range blocks {
		h.m.called("passed %d: %s %d+%d", reader, b.Object.Path, b.OffsetBytes, b.SizeBytes)
	}
}

func (h hints) Drop(reader uint64)   { h.m.called("drop %d", reader) }
func (h hints) SetShare(bytes int64) { h.m.called("share %d", bytes) }

func (h hints) Use() storage.HintUse {
	return storage.HintUse{Keeps: true, RoomBytes: 2000, Exact: true}
}

type verifier struct{ m *memory }

func (v verifier) AuditBytes(o storage.Object) int64 { return int64(len(v.m.files[o.Path])) }

func (v verifier) Audit(_ context.Context, o storage.Object, _ func(string), read func(int64)) (int64, error) {
	v.m.called("audit %s", o.Path)
	read(v.AuditBytes(o))
	return v.AuditBytes(o), nil
}

type resident struct{ *bytes.Reader }

func (r resident) Holds(int64, int64) bool { return true }
func (r resident) Unchanged() error        { return nil }
func (r resident) Close() error            { return nil }

func (r resident) ReadAt(p []byte, off int64) bool {
	n, _ := r.Reader.ReadAt(p, off)
	return n == len(p)
}

type mapper struct{ m *memory }

func (x mapper) Map(o storage.Object, done func(storage.Mapping, error)) {
	go done(mapping{b: x.m.files[o.Path]}, nil)
}

func (mapper) Evictions() uint64              { return 0 }
func (mapper) Breaks() uint64                 { return 0 }
func (mapper) Unbroken(uint64) bool           { return true }
func (mapper) LeaseStats() storage.LeaseStats { return storage.LeaseStats{} }

// mapping is an object in memory. The methods that are not here are never called.
type mapping struct {
	storage.Mapping
	b []byte
}

func (m mapping) Bytes() []byte { return m.b }
func (m mapping) Close() error  { return nil }
