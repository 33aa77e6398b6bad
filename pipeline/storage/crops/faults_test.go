package crops

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/refs"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

var errFault = errors.New("the disk does not answer")

// failing is a storage in which one operation fails. Operations are calls, visits of objects,
// reads, and lookups in memory.
type failing struct {
	storage.Storage
	calls, at atomic.Int64
}

// fails counts an operation, and reports whether it is the one to fail.
func (s *failing) fails() bool { return s.calls.Add(1) == s.at.Load() }

func (s *failing) fault() error {
	if s.fails() {
		return errFault
	}
	return nil
}

func (s *failing) List(ctx context.Context, match func(string, bool) bool, visit func(storage.Object) error) error {
	if err := s.fault(); err != nil {
		return err
	}
	err := s.Storage.List(ctx, match, func(o storage.Object) error {
		if err := s.fault(); err != nil {
			return err
		}
		return visit(o)
	})
	if err == nil {
		err = s.fault() // it can fail at its end, too
	}
	return err
}

func (s *failing) Stat(ctx context.Context, path string) (storage.Object, error) {
	if err := s.fault(); err != nil {
		return storage.Object{}, err
	}
	return s.Storage.Stat(ctx, path)
}

func (s *failing) Caps() storage.Caps {
	return storage.Caps{StatStable: s.StatStable, OpenResident: s.OpenResident}
}

func (s *failing) StatStable(ctx context.Context, path string) (storage.Object, error) {
	if err := s.fault(); err != nil {
		return storage.Object{}, err
	}
	return storage.StatStable(ctx, s.Storage, path)
}

func (s *failing) Submit(reads []*storage.Read) {
	for _, r := range reads {
		if err := s.fault(); err != nil {
			go r.Done(&storage.Error{Object: r.Object.Path, OffsetBytes: r.OffsetBytes, SizeBytes: int64(len(r.Buf)), Err: err})
			continue
		}
		s.Storage.Submit([]*storage.Read{r})
	}
}

func (s *failing) OpenResident(o storage.Object) (storage.Resident, error) {
	if err := s.fault(); err != nil {
		return nil, err
	}
	r, err := s.Storage.Caps().OpenResident(o)
	if r == nil || err != nil {
		return nil, err
	}
	return &failingResident{r, s}, nil
}

type failingResident struct {
	storage.Resident
	of *failing
}

func (r *failingResident) Holds(offsetBytes, sizeBytes int64) bool {
	return !r.of.fails() && r.Resident.Holds(offsetBytes, sizeBytes)
}

func (r *failingResident) ReadAt(p []byte, offsetBytes int64) bool {
	if r.of.fails() {
		for i := range p { // the buffer is undefined then
			p[i] = 0xdd
		}
		return false
	}
	return r.Resident.ReadAt(p, offsetBytes)
}

func (r *failingResident) Unchanged() error {
	if err := r.of.fault(); err != nil {
		return err
	}
	return r.Resident.Unchanged()
}

// noMemory is a storage that can't be read from memory.
type noMemory struct{ *failing }

func (s noMemory) Caps() storage.Caps {
	return storage.Caps{StatStable: s.StatStable, OpenResident: func(storage.Object) (storage.Resident, error) { return nil, nil }}
}

// zipOf writes all files of a directory, uncompressed, to a new zip file.
func zipOf(t *testing.T, dir, path string) {
	f, err := os.Create(path)
	require.NoError(t, err)
	w := zip.NewWriter(f)
	require.NoError(t, filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, at)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		m, err := w.CreateHeader(&zip.FileHeader{Name: filepath.ToSlash(name), Method: zip.Store})
		if err == nil {
			_, err = m.Write(b)
		}
		return err
	}))
	require.NoError(t, w.Close())
	require.NoError(t, f.Close())
}

// For every n, the n-th operation of the storage below fails. Reads that needed it fail, all others
// return the right bytes, and later reads are as if nothing had failed.
func TestNthOperationFailsForEveryN(t *testing.T) {
	sharded, inShards := small, nested()["two"]
	sharded.Shape, inShards.Shape = []int64{8, 20, 40}, []int64{8, 20, 40}
	objects := sharded
	objects.Object = objects.Chunk
	sharded.Codec = encode.BloscZstd
	for name, c := range map[string]struct {
		array  encode.Array
		zipped bool
		below  func(s *failing) storage.Storage
	}{
		"an object a chunk":      {objects, false, func(s *failing) storage.Storage { return s }},
		"shards":                 {sharded, false, func(s *failing) storage.Storage { return s }},
		"shards, not in memory":  {sharded, false, func(s *failing) storage.Storage { return noMemory{s} }},
		"shards in shards":       {inShards, false, func(s *failing) storage.Storage { return s }},
		"a Zip file":             {sharded, true, func(s *failing) storage.Storage { return refs.Wrap(s, refs.Config{One: "a.zip"}) }},
		"a Zip file, not memory": {sharded, true, func(s *failing) storage.Storage { return refs.Wrap(noMemory{s}, refs.Config{One: "a.zip"}) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			base, m := "a.zarr", &made{dir: dir, array: c.array}
			m.absent = write(t, filepath.Join(dir, base), c.array)
			root := filepath.Join(dir, base)
			if c.zipped {
				root = t.TempDir()
				base = "a.zip"
				zipOf(t, m.dir+"/a.zarr", filepath.Join(root, base))
			}
			failures := 0
			run := func(n int64) (calls int64) {
				under := &failing{Storage: openLocal(t, root)}
				under.at.Store(n)
				x := &made{dir: dir, array: c.array, absent: m.absent, Storage: Wrap(c.below(under), Config{Spec: smallCrops, Base: base, MemoryBytes: 64 << 10})}
				defer func() { require.NoError(t, x.Storage.Close()) }()
				check := func(err error) bool {
					if err != nil {
						require.ErrorIs(t, err, errFault, "operation %d", n)
						failures++
					}
					return err == nil
				}
				take := func(o storage.Object) error { x.object = o; return nil }
				all := func(string, bool) bool { return true }
				if !check(x.List(t.Context(), all, take)) {
					require.NoError(t, x.List(t.Context(), all, take), "operation %d: once more", n)
				}
				require.Len(t, x.cubes, 1)
				want := x.wantOf(t)
				for _, piece := range []int64{x.object.SizeBytes, 20_000} {
					for off := int64(0); off < x.object.SizeBytes; off += piece {
						size := min(piece, x.object.SizeBytes-off)
						if got, err := x.read(off, size, 0); check(err) {
							require.True(t, bytes.Equal(want[off:off+size], got), "operation %d: [%d, %d)", n, off, off+size)
						}
					}
				}
				check(x.Check(t.Context(), x.object))
				calls = under.calls.Load()
				under.at.Store(0)
				got, err := x.read(0, x.object.SizeBytes, 0)
				require.NoError(t, err, "operation %d has failed before", n)
				require.True(t, bytes.Equal(want, got), "operation %d has failed before", n)
				return calls
			}
			calls := run(0)
			require.Greater(t, calls, int64(20))
			step := int64(1)
			if testing.Short() { // with the race detector
				step = 4
			}
			for n := int64(1); n <= calls; n += step {
				run(n)
			}
			// Some failures are recovered from silently: what memory does not have is read.
			require.Greater(t, failures, int(calls/step)/8)
		})
	}
}

// wantOf is want for the only cube, whatever its name.
func (m *made) wantOf(t *testing.T) []byte {
	for path := range m.cubes {
		if path != "a.zarr" {
			m.cubes["a.zarr"] = m.cubes[path]
			defer delete(m.cubes, "a.zarr")
		}
	}
	require.NotNil(t, m.cubes["a.zarr"], fmt.Sprint(m.cubes))
	return m.want()
}
