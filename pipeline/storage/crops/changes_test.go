package crops

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// change is what happens to a file while crops are read. other is the file's content in another
// version.
type change struct {
	do func(t *testing.T, path string, other []byte)
	// again is what a newly opened storage finds: the other version if "", or else an error.
	again string
	// kept means that a process that has the file open may continue with the listed version.
	kept bool
}

var fileChanges = map[string]change{
	"written again in place": {func(t *testing.T, path string, other []byte) { require.NoError(t, os.WriteFile(path, other, 0o644)) }, "", false},
	"replaced": {func(t *testing.T, path string, other []byte) {
		require.NoError(t, os.WriteFile(path+"~", other, 0o644))
		require.NoError(t, os.Rename(path+"~", path))
	}, "", true},
	"cut":     {func(t *testing.T, path string, _ []byte) { require.NoError(t, os.Truncate(path, 10)) }, "words", false},
	"emptied": {func(t *testing.T, path string, _ []byte) { require.NoError(t, os.Truncate(path, 0)) }, "words", false},
	"removed": {func(t *testing.T, path string, _ []byte) { require.NoError(t, os.Remove(path)) }, "absent", true},
	"a directory": {func(t *testing.T, path string, _ []byte) {
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.Mkdir(path, 0o755))
	}, "words", true},
	"a pipe": {func(t *testing.T, path string, _ []byte) {
		require.NoError(t, os.Remove(path))
		require.NoError(t, unix.Mkfifo(path, 0o600))
	}, "words", true},
	"a device": {func(t *testing.T, path string, _ []byte) {
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.Symlink("/dev/zero", path))
	}, "words", true},
	"a link to itself": {func(t *testing.T, path string, _ []byte) {
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.Symlink(path, path))
	}, "words", true},
}

// open opens a store that was written before.
func (s *stored) open(t *testing.T, dir string) (*made, error) {
	m := &made{dir: dir, array: s.array}
	m.Storage = Wrap(s.over(openLocal(t, dir)), Config{Spec: smallCrops, Base: "a.zarr", MemoryBytes: 0})
	t.Cleanup(func() { require.NoError(t, m.Storage.Close()) })
	err := m.List(t.Context(), func(string, bool) bool { return true }, func(o storage.Object) error { m.object = o; return nil })
	if err == nil {
		m.cubes["a.zarr"] = m.cubes[m.object.Path]
		err = m.Check(t.Context(), m.object)
	}
	return m, err
}

// otherVersion returns the content of a file in a store with other elements.
func (s *stored) otherVersion(t *testing.T, file string) []byte {
	dir := t.TempDir()
	s.write(t, dir, s.array, otherBits)
	b, err := os.ReadFile(filepath.Join(dir, file))
	require.NoError(t, err)
	return b
}

// inParts submits the reads of a whole cube at once, in parts. Some of them may fail.
func (m *made) inParts(want []byte) (failed []error, wrong bool) {
	const part = 2999
	var reads []*storage.Read
	errs := make(chan error, len(want)/part+1)
	for off := 0; off < len(want); off += part {
		b := make([]byte, min(part, len(want)-off))
		reads = append(reads, &storage.Read{Object: m.object, OffsetBytes: int64(off), Buf: b, Done: func(err error) {
			if err == nil && !bytes.Equal(want[off:off+len(b)], b) {
				err = errOther
			}
			errs <- err
		}})
	}
	m.Submit(reads)
	for range reads {
		if err := <-errs; err == errOther {
			wrong = true
		} else if err != nil {
			failed = append(failed, err)
		}
	}
	return failed, wrong
}

var errOther = errors.New("other bytes")

// Objects change under a storage that has listed them: each read returns bytes of the listed
// version, or an error that names the object. A storage that is opened afterwards returns the new
// bytes, or an error.
func TestChangedObjectsYieldErrorsOrListedVersion(t *testing.T) {
	for _, s := range stores() {
		other := s.otherVersion(t, s.object)
		wants := map[string][]byte{} // by what is found
		wanted := func(m *made, what string) []byte {
			if wants[what] == nil {
				wants[what] = m.want()
			}
			return wants[what]
		}
		for name, c := range fileChanges {
			t.Run(s.name+", "+name, func(t *testing.T) {
				dir := t.TempDir()
				absent := s.write(t, dir, s.array, 0)
				m, err := s.open(t, dir)
				require.NoError(t, err)
				m.absent = absent
				want := wanted(m, "listed")
				c.do(t, filepath.Join(dir, s.object), other)
				errs, wrong := m.inParts(want)
				require.False(t, wrong)
				for _, err := range errs {
					require.ErrorContains(t, err, m.object.Path+": bytes [")
					require.ErrorContains(t, err, s.object)
				}
				require.True(t, c.kept || len(errs) > 0)

				again, err := s.open(t, dir)
				if err != nil { // a file that holds everything, or a directory where a file has to be
					require.NotEmpty(t, c.again)
					require.ErrorContains(t, err, s.object)
					return
				}
				again.absent = absent
				if c.again == "" {
					again.changed = s.objectOf
				} else if c.again == "absent" {
					again.absent = map[string]bool{}
					for n := range again.cubes["a.zarr"].fields[0].chunks.Total() {
						place := make([]int64, 3)
						again.cubes["a.zarr"].fields[0].chunks.Place(place, n)
						again.absent[fmt.Sprint(place)] = absent[fmt.Sprint(place)] || s.objectOf(place)
					}
				}
				errs, wrong = again.inParts(wanted(again, "again"+c.again))
				require.False(t, wrong)
				for _, err := range errs {
					require.ErrorContains(t, err, s.object)
				}
				require.Equal(t, c.again == "words", len(errs) > 0, "%v", errs)
			})
		}
	}
}

// Documents change under a storage that has read them: reads go on in the listed version, and Stat
// of the cube reports the change. A storage that is opened afterwards has the new version, or
// returns an error.
func TestNextStatNoticesChangedDocuments(t *testing.T) {
	for _, s := range stores() {
		if s.document == "" {
			continue // the zip file holds everything
		}
		var want []byte
		for name, c := range fileChanges {
			t.Run(s.name+", "+name, func(t *testing.T) {
				dir := t.TempDir()
				absent := s.write(t, dir, s.array, 0)
				path := filepath.Join(dir, s.document)
				before, err := os.ReadFile(path)
				require.NoError(t, err)
				m, err := s.open(t, dir)
				require.NoError(t, err)
				if m.absent = absent; want == nil {
					want = m.want()
				}
				other := bytes.Replace(before, []byte("77"), []byte("78"), 1) // the fill value
				require.NotEqual(t, before, other)
				c.do(t, path, other)
				errs, wrong := m.inParts(want)
				require.False(t, wrong)
				for _, err := range errs {
					require.ErrorContains(t, err, s.document) // a reference file, which also lists the absent chunks
				}
				_, err = m.Stat(t.Context(), m.object.Path)
				require.ErrorContains(t, err, s.document)

				again, err := s.open(t, dir)
				if c.again != "" {
					require.Error(t, err)
					if c.again == "words" {
						require.ErrorContains(t, err, s.document)
					}
					return
				}
				require.NoError(t, err)
				require.NotEqual(t, m.object.Version, again.object.Version)
				got, err := again.read(0, again.object.SizeBytes, 0)
				require.NoError(t, err)
				require.Len(t, got, len(want))
				differ := 0
				for i := len(m.cubes["a.zarr"].header); i < len(want); i += 2 {
					if got[i] == 78 && want[i] == 77 {
						differ++
					} else if got[i] != want[i] {
						t.Fatalf("byte %d is %d, was %d", i, got[i], want[i])
					}
				}
				require.Positive(t, differ)
			})
		}
	}
}
