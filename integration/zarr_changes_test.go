package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// changes are changes to an object of an array after it was listed.
var changes = map[string]func(t *testing.T, path string){
	"replaced by one of the same size": func(t *testing.T, path string) {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path+".new", flipped(b), 0o644))
		require.NoError(t, os.Rename(path+".new", path))
	},
	"overwritten in place": func(t *testing.T, path string) {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.Write(flipped(b))
		require.NoError(t, err)
		require.NoError(t, f.Close())
	},
	"cut": func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 20)) },
	"longer": func(t *testing.T, path string) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		require.NoError(t, err)
		_, err = f.Write([]byte("more"))
		require.NoError(t, err)
		require.NoError(t, f.Close())
	},
	"removed": func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
}

// flipped returns a copy with other elements, and a shard's index unchanged.
func flipped(b []byte) []byte {
	b = bytes.Clone(b)
	for i := range min(len(b)/2, 100) {
		b[i] ^= 0xff
	}
	return b
}

// lateCrops are few and large. What is beyond y=32 is needed only by the last of them in the
// dataset's order, so nothing of it is in memory when they are mounted.
var (
	lateCrops = []string{"--crop", "time=8,y=20,x=30", "--stride", "time=3,y=7,x=8"}
	// lateObjects are patterns of the objects beyond y=32, of shards and of single bricks.
	lateObjects = map[bool]string{true: "c/*/2/*", false: "c/*/4/*"}
)

const lateBytes = 8 * 20 * 30 // elements

// lateObject returns the path of the first of them, and its name in errors.
func lateObject(t *testing.T, store string, sharded bool) (path, name string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(store, lateObjects[sharded]))
	require.NoError(t, err)
	require.NotEmpty(t, found)
	name, err = filepath.Rel(store, found[0])
	require.NoError(t, err)
	return found[0], name
}

// requireEIO reads all workers crop by crop: some crops are EIO, and all others are right. With
// kept, all may be right.
func requireEIO(t *testing.T, m *mount, want [][]byte, cropBytes int, name string, kept bool) {
	t.Helper()
	failed := 0
	for w := range want {
		failed += cropsOrEIO(t, want[w], cropBytes, m.path("worker-%d.npy", w))
	}
	m.requireAlive()
	if kept && failed == 0 {
		return
	}
	require.NotZero(t, failed)
	require.Contains(t, string(m.read("status")), name)
}

// If an object changes, the crops that need it are EIO, and no bytes other than the earlier ones
// are ever read.
func TestObjectChangedUnderMountIsEIO(t *testing.T) {
	for kind, itemBytes := range map[string]int{"plain-none": 2, "plain-blosc": 2, "sharded-zstd": 2, "start-no-checksum": 4} {
		for change, do := range changes {
			t.Run(kind+", "+change, func(t *testing.T) {
				t.Parallel()
				path := store(t, makeVersion3, kind)
				d, s := cropsOf(path, lateCrops...), smallOrder()
				ref := newReference(t, d)
				want := [][]byte{ref.data(s, 0), ref.data(s, 1)}
				m := mountDataset(t, d, s)
				object, name := lateObject(t, path, kind[0] == 's')
				do(t, object)
				// A shard whose index was checked is still open: if it was renamed or removed, its
				// contents are unchanged.
				kept := kind[0] == 's' && (change == "removed" || change == "replaced by one of the same size")
				requireEIO(t, m, want, lateBytes*itemBytes, name, kept)
			})
		}
	}
}

// An absent object had the fill value, so adding it is a change.
func TestObjectAddedUnderMountIsEIO(t *testing.T) {
	for _, kind := range []string{"plain-gzip", "sharded-blosc"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			path := store(t, makeVersion3, kind)
			object, name := lateObject(t, path, kind == "sharded-blosc")
			content, err := os.ReadFile(object)
			require.NoError(t, err)
			require.NoError(t, os.Remove(object))
			d, s := cropsOf(path, lateCrops...), smallOrder()
			ref := newReference(t, d)
			want := [][]byte{ref.data(s, 0), ref.data(s, 1)}
			m := mountDataset(t, d, s)
			require.NoError(t, os.WriteFile(object, content, 0o644))
			requireEIO(t, m, want, lateBytes*2, name, false)
		})
	}
}

// Objects have checksums of their bricks: wherever a byte is wrong, crops are EIO or right.
func TestWrongByteAnywhereIsEIOOrHarmless(t *testing.T) {
	path := store(t, makeVersion3, "inner-checksum")
	d, s := cropsOf(path, lateCrops...), smallOrder()
	ref := newReference(t, d)
	want := [][]byte{ref.data(s, 0), ref.data(s, 1)}
	objects, err := filepath.Glob(filepath.Join(path, lateObjects[true]))
	require.NoError(t, err)
	failed := 0
	for round := range 6 {
		broken := filepath.Join(t.TempDir(), filepath.Base(path))
		require.NoError(t, os.CopyFS(broken, os.DirFS(path)))
		for i, object := range objects {
			name, err := filepath.Rel(path, object)
			require.NoError(t, err)
			b, err := os.ReadFile(object)
			require.NoError(t, err)
			at := (i*1009 + round*(len(b)-1)/5) % len(b) // in bricks, gaps and indexes
			b[at] ^= 1 << (i % 8)
			require.NoError(t, os.WriteFile(filepath.Join(broken, name), b, 0o644))
		}
		m, err := tryMount(t, cropsOf(broken, lateCrops...), t.TempDir(), s.flags()...)
		if err != nil { // a shard's index was read
			require.ErrorContains(t, err, "c/")
			failed++
			continue
		}
		for w := range want {
			failed += cropsOrEIO(t, want[w], lateBytes*2, m.path("worker-%d.npy", w))
		}
		m.end()
	}
	require.NotZero(t, failed)
}
