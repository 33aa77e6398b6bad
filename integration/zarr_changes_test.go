package integration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// changes are what happens to an object of an array after it was listed.
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

// flipped is a copy with other elements, and a shard's index where it was.
func flipped(b []byte) []byte {
	b = bytes.Clone(b)
	for i := range min(len(b)/2, 100) {
		b[i] ^= 0xff
	}
	return b
}

// firstObject is where the first object of an array of version 3 lies, and how errors name it.
func firstObject(t *testing.T, store string) (path, name string) {
	t.Helper()
	found, err := filepath.Glob(store + "/c/*/*/*")
	require.NoError(t, err)
	require.NotEmpty(t, found)
	name, err = filepath.Rel(store, found[0])
	require.NoError(t, err)
	return found[0], name
}

// requireEIO reads all workers crop by crop: some crops are EIO, and all others are right.
func requireEIO(t *testing.T, m *mount, want [][]byte, cropBytes int, name string) {
	t.Helper()
	failed := 0
	for w := range want {
		failed += cropsOrEIO(t, want[w], cropBytes, m.path("worker-%d.npy", w))
	}
	require.NotZero(t, failed)
	require.Contains(t, string(m.read("status")), name)
	m.requireAlive()
}

// cropBytes is the size of smallCrops of 16-bit elements.
const cropBytes = 4 * 10 * 9 * 2

// An object that changes is EIO for the crops that need it, and no other bytes than those of
// before are ever read.
func TestAnObjectThatChangesUnderAMountIsEIO(t *testing.T) {
	for _, kind := range []string{"plain-none", "plain-blosc", "sharded-zstd", "start-no-checksum"} {
		for change, do := range changes {
			t.Run(kind+", "+change, func(t *testing.T) {
				t.Parallel()
				path := store(t, makeVersion3, kind)
				d, s, size := cropsOf(path, smallCrops...), smallOrder(), cropBytes
				if kind == "start-no-checksum" {
					size *= 2 // float32
				}
				ref := newReference(t, d)
				want := [][]byte{ref.data(s, 0), ref.data(s, 1)}
				m := mountDataset(t, d, s, "--memory", "1MiB")
				object, name := firstObject(t, path)
				do(t, object)
				requireEIO(t, m, want, size, name)
			})
		}
	}
}

// What was absent had the fill value: when it is there all of a sudden, that is a change.
func TestAnObjectThatIsAddedUnderAMountIsEIO(t *testing.T) {
	for _, kind := range []string{"plain-zstd", "sharded-blosc"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			path := store(t, makeVersion3, kind)
			pattern := "/c/*/*/*"
			if kind == "plain-zstd" {
				pattern = "/c.0.*"
			}
			found, err := filepath.Glob(path + pattern)
			require.NoError(t, err)
			content, err := os.ReadFile(found[0])
			require.NoError(t, err)
			require.NoError(t, os.Remove(found[0]))
			d, s := cropsOf(path, smallCrops...), smallOrder()
			ref := newReference(t, d)
			want := [][]byte{ref.data(s, 0), ref.data(s, 1)}
			m := mountDataset(t, d, s)
			require.NoError(t, os.WriteFile(found[0], content, 0o644))
			requireEIO(t, m, want, cropBytes, strings.TrimPrefix(found[0], path+"/"))
		})
	}
}

// Objects with checksums of their bricks: wherever a byte is wrong, crops are EIO or right.
func TestAByteThatIsWrongAnywhereIsEIOOrPlaysNoPart(t *testing.T) {
	path := store(t, makeVersion3, "inner-checksum")
	d, s := cropsOf(path, smallCrops...), smallOrder()
	ref := newReference(t, d)
	want := [][]byte{ref.data(s, 0), ref.data(s, 1)}
	objects, err := filepath.Glob(path + "/c/*/*/*")
	require.NoError(t, err)
	for round := range 6 {
		broken := filepath.Join(t.TempDir(), filepath.Base(path))
		require.NoError(t, os.CopyFS(broken, os.DirFS(path)))
		for i, object := range objects {
			name, err := filepath.Rel(path, object)
			require.NoError(t, err)
			b, err := os.ReadFile(object)
			require.NoError(t, err)
			at := (i*1009 + round*(len(b)/6) + i) % len(b) // in bricks, gaps and indexes
			b[at] ^= 1 << (i % 8)
			require.NoError(t, os.WriteFile(filepath.Join(broken, name), b, 0o644))
		}
		m, err := tryMount(t, cropsOf(broken, smallCrops...), t.TempDir(), s.flags()...)
		if err != nil { // a shard's index was looked at
			require.Contains(t, err.Error(), "inner-checksum/c/")
			continue
		}
		failed := 0
		for w := range want {
			failed += cropsOrEIO(t, want[w], cropBytes, m.path("worker-%d.npy", w))
		}
		require.NotZero(t, failed, "round %d", round)
		require.Contains(t, string(m.read("status")), "c/", fmt.Sprint(round))
		m.end()
	}
}
