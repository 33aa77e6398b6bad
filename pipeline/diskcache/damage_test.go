package diskcache

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// alter changes a byte of a file in place.
func alter(path string, off int64, how func(byte) byte) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	var b [1]byte
	_, err = f.ReadAt(b[:], off)
	b[0] = how(b[0])
	_, writeErr := f.WriteAt(b[:], off)
	return errors.Join(err, writeErr, f.Close())
}

func flip(path string, off int64) error { return alter(path, off, func(b byte) byte { return b ^ 4 }) }

func punchFile(path string, off, n int64) error {
	fd, err := unix.Open(path, unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(kernel{}.punch(fd, off, n), unix.Close(fd))
}

// The files of a cache are damaged while a mount has them open, and while none has. All bytes are
// right, and afterwards they are in the cache again.
func TestBytesAreCorrectDespiteAnyDamage(t *testing.T) {
	const size = 1<<20 + 77
	for name, c := range map[string]struct {
		do func(w *world, data, sums string) error
		// closedOnly: a process that has the files open continues with what it has.
		closedOnly bool
		root       bool
	}{
		"a bit of a page":         {do: func(_ *world, data, _ string) error { return flip(data, 300_000) }},
		"a bit of the last page":  {do: func(_ *world, data, _ string) error { return flip(data, size-1) }},
		"a bit behind the object": {do: func(_ *world, data, _ string) error { return flip(data, size+1) }},
		"a bit of a sum":          {do: func(_ *world, _, sums string) error { return flip(sums, sumsAt(40)) }},
		"a bit of the header":     {do: func(_ *world, _, sums string) error { return flip(sums, 50) }, closedOnly: true},
		"pages are punched":       {do: func(_ *world, data, _ string) error { return punchFile(data, 8192, 81920) }},
		"sums are punched":        {do: func(_ *world, _, sums string) error { return punchFile(sums, 4096, 4096) }},
		"data are cut":            {do: func(_ *world, data, _ string) error { return os.Truncate(data, 500_000) }},
		"data are empty":          {do: func(_ *world, data, _ string) error { return os.Truncate(data, 0) }},
		"data are longer":         {do: func(_ *world, data, _ string) error { return os.Truncate(data, 5<<20) }, closedOnly: true},
		"sums are cut":            {do: func(_ *world, _, sums string) error { return os.Truncate(sums, 4200) }},
		"sums are empty":          {do: func(_ *world, _, sums string) error { return os.Truncate(sums, 0) }},
		"sums are longer":         {do: func(_ *world, _, sums string) error { return os.Truncate(sums, 1<<20) }, closedOnly: true},
		"data are removed":        {do: func(_ *world, data, _ string) error { return os.Remove(data) }, closedOnly: true},
		"sums are removed":        {do: func(_ *world, _, sums string) error { return os.Remove(sums) }, closedOnly: true},
		"both are removed":        {do: func(_ *world, d, s string) error { return errors.Join(os.Remove(d), os.Remove(s)) }, closedOnly: true},
		"the folder is removed":   {do: func(_ *world, d, _ string) error { return os.RemoveAll(filepath.Dir(d)) }, closedOnly: true},
		"data are another's":      {do: func(w *world, d, _ string) error { return os.Rename(w.path("other", ".data"), d) }, closedOnly: true},
		"both are another's": {do: func(w *world, d, s string) error {
			return errors.Join(os.Rename(w.path("other", ".data"), d), os.Rename(w.path("other", ".sums"), s))
		}, closedOnly: true},
		"data are a link":          {do: func(w *world, d, _ string) error { return errors.Join(os.Rename(d, d+".x"), os.Symlink(d+".x", d)) }, closedOnly: true},
		"sums are a link":          {do: func(w *world, _, s string) error { return errors.Join(os.Rename(s, s+".x"), os.Symlink(s+".x", s)) }, closedOnly: true},
		"sums are a pipe":          {do: func(w *world, _, s string) error { return errors.Join(os.Remove(s), syscall.Mkfifo(s, 0o600)) }, closedOnly: true},
		"others may write to data": {do: func(_ *world, d, _ string) error { return os.Chmod(d, 0o666) }, closedOnly: true},
		"data are a stranger's":    {do: func(_ *world, d, _ string) error { return os.Chown(d, 12345, 12345) }, closedOnly: true, root: true},
		"sums are a stranger's":    {do: func(_ *world, _, s string) error { return os.Chown(s, 12345, 12345) }, closedOnly: true, root: true},
	} {
		for _, open := range []bool{false, true} {
			if open && c.closedOnly {
				continue
			}
			t.Run(name+map[bool]string{true: " while it is open"}[open], func(t *testing.T) {
				if c.root {
					privileged(t, "giving files away")
				}
				w := newWorld(t, map[string][]byte{"a": random(1, size), "other": random(2, size)})
				s := w.open(nil)
				require.NotZero(t, w.read(s, "a", 0, size))
				require.NotZero(t, w.read(s, "other", 0, size))
				require.Zero(t, w.read(s, "a", 0, size), "it is in the cache")
				if !open {
					require.NoError(t, s.Close())
				}
				require.NoError(t, c.do(w, w.path("a", ".data"), w.path("a", ".sums")))
				if !open {
					s = w.open(nil)
				}
				require.NotZero(t, w.read(s, "a", 0, size), "the damage was seen")
				require.Zero(t, w.read(s, "a", 0, size), "it is in the cache again")
				require.Zero(t, w.read(s, "a", 4097, 300_000))
				w.read(s, "other", 0, size)
				state, _ := s.health.state()
				require.Equal(t, "on", state)
			})
		}
	}
}

// The directory's contents are not the cache's.
func TestDirectoryInPlaceOfObjectIsLeftAlone(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, 50_000)})
	s := w.open(nil)
	data := w.path("a", ".data")
	require.NoError(t, os.MkdirAll(data, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(data, "precious"), []byte("x"), 0o600))
	require.NotZero(t, w.read(s, "a", 0, 50_000))
	require.NotZero(t, w.read(s, "a", 0, 50_000), "it is read from below each time")
	require.FileExists(t, filepath.Join(data, "precious"))
	state, _ := s.health.state()
	require.Equal(t, "on", state, "other objects are cached")
}

// Bits are flipped all over a cache, repeatedly.
func TestFlippedBytesAreMisses(t *testing.T) {
	const size = 300_001
	w := newWorld(t, map[string][]byte{"a": random(1, size), "b": random(2, size)})
	s := w.open(nil)
	r := rand.New(rand.NewPCG(1, 1))
	w.read(s, "a", 0, size)
	w.read(s, "b", 0, size)
	for range 1000 {
		path, of := "a", ".data"
		if r.IntN(2) == 0 {
			path = "b"
		}
		off := r.Int64N(pagesOf(size) * pageBytes)
		if r.IntN(4) == 0 {
			of, off = ".sums", headerBytes+r.Int64N(pagesOf(size)*sumBytes)
		}
		require.NoError(t, flip(w.path(path, of), off))
		n := 1 + r.IntN(size)
		w.read(s, path, r.IntN(size-n+1), n)
	}
	require.NotZero(t, s.Stats().BadPages)
}

// Only that page is read again, no more and no less.
func TestOnlyBadPageIsReadAgain(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, 1<<20)})
	s := w.open(nil)
	w.read(s, "a", 0, 1<<20)
	require.NoError(t, flip(w.path("a", ".data"), 5*pageBytes+9))
	before := w.bytes.Load()
	require.EqualValues(t, 1, w.read(s, "a", 100, 1<<20-200))
	require.EqualValues(t, pageBytes, w.bytes.Load()-before)
	require.EqualValues(t, 1, s.Stats().BadPages)
}
