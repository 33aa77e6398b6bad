package diskcache

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func (w *world) directory() *Directory {
	d, err := OpenDirectory(w.cache, nil)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, d.Close()) })
	return d
}

func (w *world) entries(d *Directory) map[string]Entry {
	found := map[string]Entry{}
	require.NoError(w.t, d.List(w.t.Context(), func(e Entry) error {
		found[e.URL] = e
		return nil
	}))
	return found
}

func TestListDescribesCache(t *testing.T) {
	w := newWorld(t, map[string][]byte{"dir/a": random(1, 100_000), "b": random(2, 50_000)})
	s := w.open(nil)
	w.read(s, "dir/a", 5000, 10_000)
	w.read(s, "b", 0, 50_000)
	d := w.directory()
	found := w.entries(d)
	require.Len(t, found, 2)
	a := found["test://bucket/dir/a"]
	id, _ := byPath(w.objects["dir/a"])
	require.Equal(t, id.Validator, a.Validator)
	require.EqualValues(t, 100_000, a.SizeBytes)
	require.EqualValues(t, 3*pageBytes, a.HereBytes)
	require.GreaterOrEqual(t, a.BlocksBytes, a.HereBytes)
	require.WithinDuration(t, time.Now(), a.Created, time.Hour)
	require.WithinDuration(t, time.Now(), a.Used, time.Hour)
	require.Empty(t, a.Damaged)
	require.True(t, a.InUse)
	require.NoError(t, s.Close())
	require.False(t, w.entries(d)["test://bucket/dir/a"].InUse)

	require.NoError(t, os.Truncate(w.path("b", ".sums"), 10))
	require.Contains(t, w.entries(d)[""].Damaged, "header", "it can't say what it was")
}

func TestVerifyFindsEachFlippedPage(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, 2*mib), "b": random(2, 50_000), "c": random(3, 50_000)})
	s := w.open(nil)
	for path, content := range w.files {
		w.read(s, path, 0, len(content))
	}
	require.NoError(t, s.Close())
	d := w.directory()
	verify := func(repair bool) map[string]Checked {
		found := map[string]Checked{}
		require.NoError(t, d.Verify(t.Context(), repair, func(c Checked) error {
			found[c.URL] = c
			return nil
		}))
		return found
	}
	for _, c := range verify(false) {
		require.Zero(t, c.BadPages)
		require.False(t, c.Repaired)
	}
	for _, page := range []int64{0, 1, 77, 511} {
		require.NoError(t, flip(w.path("a", ".data"), page*pageBytes+page))
	}
	require.NoError(t, flip(w.path("c", ".sums"), 3))
	for range 2 {
		found := verify(false)
		require.EqualValues(t, 4, found["test://bucket/a"].BadPages, "looking changes nothing")
		require.Zero(t, found["test://bucket/b"].BadPages)
		require.NotEmpty(t, found[""].Damaged)
	}
	found := verify(true)
	require.EqualValues(t, 4, found["test://bucket/a"].BadPages)
	require.True(t, found["test://bucket/a"].Repaired)
	require.True(t, found[""].Repaired)
	found = verify(false)
	require.Len(t, found, 2, "what can't be read is removed")
	require.Zero(t, found["test://bucket/a"].BadPages)
	require.EqualValues(t, 508*pageBytes, found["test://bucket/a"].HereBytes)
	s = w.open(nil)
	require.EqualValues(t, 3, w.read(s, "a", 0, 2*mib), "what was bad is brought again: pages 0 and 1, 77, 511")
	require.Zero(t, s.Stats().BadPages)
}

// badSector is a disk with one page that can't be read, until it is freed.
type badSector struct {
	kernel
	size, at int64 // of the file and in it
	reads    func()
	longest  int // write
}

func (x *badSector) read(fd int, p []byte, off int64) (int, error) {
	if x.reads != nil {
		x.reads()
	}
	if st, err := x.kernel.stat(fd); err != nil || st.Size == x.size && off <= x.at && x.at < off+int64(len(p)) {
		return 0, unix.EIO
	}
	return x.kernel.read(fd, p, off)
}

func (x *badSector) write(fd int, p []byte, off int64) error {
	x.longest = max(x.longest, len(p))
	return x.kernel.write(fd, p, off)
}

func (x *badSector) punch(fd int, off, n int64) error {
	if off <= x.at && x.at < off+n {
		x.at = -1
	}
	return x.kernel.punch(fd, off, n)
}

// A mount stops using a cache whose disk fails. Repairing it must not fail for the same reason.
func TestVerifyRepairsPagesThatCannotBeRead(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": make([]byte, mib), "b": random(2, 50_000)})
	s := w.open(nil)
	for path, content := range w.files {
		w.read(s, path, 0, len(content))
	}
	require.NoError(t, s.Close())
	d := w.directory()
	d.dir.disk = &badSector{size: mib, at: 77 * pageBytes}
	verify := func(repair bool) (bad, here int64) {
		require.NoError(t, d.Verify(t.Context(), repair, func(c Checked) error {
			bad += c.BadPages
			here += c.HereBytes
			require.Equal(t, repair && c.BadPages > 0, c.Repaired)
			return nil
		}))
		return bad, here / pageBytes
	}
	for _, repair := range []bool{false, true} {
		bad, here := verify(repair)
		require.EqualValues(t, 1, bad)
		require.EqualValues(t, 256+13, here)
	}
	bad, here := verify(false)
	require.Zero(t, bad)
	require.EqualValues(t, 255+13, here)
	require.EqualValues(t, 1, w.read(w.open(nil), "a", 0, mib))
}

// Objects can be very large.
func TestVerifyEndsWithItsContextWithinAnObject(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, 4*mib)})
	s := w.open(nil)
	w.read(s, "a", 0, 4*mib)
	require.NoError(t, s.Close())
	d := w.directory()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reads := 0
	d.dir.disk = &badSector{reads: func() {
		if reads++; reads == 6 {
			cancel()
		}
	}}
	require.ErrorIs(t, d.Verify(ctx, false, func(Checked) error { return nil }), context.Canceled)
	require.Equal(t, 6, reads)
}

// The sums of an object of 1 TiB are 1 GiB.
func TestSpoilingALargeObjectTakesLittleMemory(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "sums"))
	require.NoError(t, err)
	defer f.Close()
	pages := run{3, 1<<20 + 5}
	for at := pages.begin - 1; at <= pages.end; at += pages.pages() / 2 {
		_, err := f.WriteAt([]byte{1, 2, 3, 4}, sumsAt(at))
		require.NoError(t, err)
	}
	_, err = f.WriteAt([]byte{1, 2, 3, 4}, sumsAt(pages.end))
	require.NoError(t, err)
	disk := &badSector{}
	require.NoError(t, (&directory{disk: disk}).zero(int(f.Fd()), pages))
	require.LessOrEqual(t, disk.longest, 64<<10)
	all, err := os.ReadFile(f.Name())
	require.NoError(t, err)
	require.Equal(t, []byte{1, 2, 3, 4}, all[sumsAt(2):sumsAt(3)])
	require.Equal(t, []byte{1, 2, 3, 4}, all[sumsAt(pages.end):])
	require.True(t, bytes.Equal(make([]byte, pages.pages()*sumBytes), all[sumsAt(pages.begin):sumsAt(pages.end)]))
}

// A mount that reads a sealed object like a file looks at no sums, so it has to notice when others
// remove pages: also on a file system that can't free them.
func TestPagesRemovedByUpkeepEndSeals(t *testing.T) {
	pageCache(t)
	for name, upkeep := range map[string]func(t *testing.T, d *Directory, name string) error{
		"verify --repair": func(t *testing.T, d *Directory, _ string) error {
			return d.Verify(t.Context(), true, func(c Checked) error {
				require.EqualValues(t, 1, c.BadPages)
				require.True(t, c.Repaired)
				return nil
			})
		},
		"drop": func(_ *testing.T, d *Directory, name string) error { return d.Drop(name) },
	} {
		for _, punches := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, punches %v", name, punches), func(t *testing.T) {
				w := sealWorld(t)
				s := w.open(withSeals)
				w.read(s, "a.tar", 0, 1<<20+77)
				w.sealed(s, "a.tar")
				o := w.objects["a.tar"]
				m, err := mapNow(s, o)
				require.NoError(t, err)
				require.NoError(t, flip(w.path("a.tar", ".sums"), sumsAt(7))) // the data's times stay
				require.NoError(t, m.Check())
				d := w.directory()
				d.dir.punches = punches
				id, _ := byPath(o)
				require.NoError(t, upkeep(t, d, keyOf(id, o.SizeBytes).name()))
				require.ErrorIs(t, m.Check(), storage.ErrReadAgain)
				require.NoError(t, m.Close())
				require.Positive(t, w.read(s, "a.tar", 7*pageBytes, 10))
			})
		}
	}
}

func TestCleanRemovesUnusedObjects(t *testing.T) {
	w := newWorld(t, map[string][]byte{"dir/a": random(1, 50_000), "dir/b": random(2, 50_000), "directory": random(3, 50_000)})
	s := w.open(nil)
	for path, content := range w.files {
		w.read(s, path, 0, len(content))
	}
	d := w.directory()
	c, err := d.Clean(t.Context(), Which{})
	require.NoError(t, err)
	require.Equal(t, Cleaned{InUse: 3}, c, "of what is in use nothing")
	require.NoError(t, s.Close())

	now := time.Now()
	c, err = d.Clean(t.Context(), Which{UnusedFor: time.Hour, Now: now})
	require.NoError(t, err)
	require.Equal(t, Cleaned{}, c)
	require.NoError(t, os.Chtimes(w.path("dir/b", ".sums"), now.Add(-2*time.Hour), now.Add(-2*time.Hour)))
	c, err = d.Clean(t.Context(), Which{UnusedFor: time.Hour, Now: now})
	require.NoError(t, err)
	require.Equal(t, 1, c.Removed)
	require.NoFileExists(t, w.path("dir/b", ".data"))

	c, err = d.Clean(t.Context(), Which{URL: "test://bucket/dir"})
	require.NoError(t, err)
	require.Equal(t, 1, c.Removed, "not what merely begins so")
	require.FileExists(t, w.path("directory", ".data"))
	c, err = d.Clean(t.Context(), Which{})
	require.NoError(t, err)
	require.Equal(t, 1, c.Removed)
	require.Greater(t, c.FreedBytes, int64(50_000))
	require.Zero(t, w.blocks())
}

func TestUpkeepOfEmptyCache(t *testing.T) {
	_, err := OpenDirectory(filepath.Join(t.TempDir(), "nothing"), nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
	w := newWorld(t, nil)
	require.NoError(t, w.open(nil).Close())
	d := w.directory()
	require.Empty(t, w.entries(d))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, d.List(ctx, func(Entry) error { return errTest }), "there is nothing to be stopped at")
}
