package diskcache

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// noteOf returns the note of a .sums file, "" if it has none.
func noteOf(t *testing.T, sums string) string {
	t.Helper()
	var b [64]byte
	n, err := unix.Getxattr(sums, proofName, b[:])
	if err == unix.ENODATA {
		return ""
	}
	if err == unix.ENOTSUP {
		lacks(t, "the file system of "+sums+" has no extended attributes")
	}
	require.NoError(t, err)
	return string(b[:n])
}

// awaitNote waits until an object is noted to be checked.
func awaitNote(t *testing.T, sums string) {
	t.Helper()
	pageCache(t)
	noteOf(t, sums) // which skips
	require.Eventually(t, func() bool { return noteOf(t, sums) != "" }, time.Minute, time.Millisecond)
}

// What one mount has checked is not checked by the next one, unless the file was written to or its
// permissions set since, whatever its other times are, or the machine was restarted.
func TestPagesAreCheckedOnceUntilTheyChangeOrTheMachineRestarts(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, w *world, s *Storage)
		left   int64 // pages to check
	}{
		"nothing happened": {func(*testing.T, *world, *Storage) {}, 0},
		"a page was written and the times set back": {func(t *testing.T, w *world, _ *Storage) {
			path := w.path("a.tar", ".data")
			old, err := os.Stat(path)
			require.NoError(t, err)
			require.NoError(t, alter(path, 5000, func(b byte) byte { return b + 1 }))
			require.NoError(t, os.Chtimes(path, time.Time{}, old.ModTime()))
		}, 257},
		"the permissions were set": {func(t *testing.T, w *world, _ *Storage) {
			require.NoError(t, os.Chmod(w.path("a.tar", ".data"), 0o600))
		}, 257},
		"the file was copied": {func(t *testing.T, w *world, _ *Storage) {
			path := w.path("a.tar", ".data")
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path+".copy", b, 0o600))
			require.NoError(t, os.Rename(path+".copy", path))
		}, 257},
		"the machine was restarted": {func(_ *testing.T, _ *world, s *Storage) {
			s.seals.proofs.boot = "9b2c6e7a-0000-4000-8000-000000000000"
		}, 257},
		"the note is another program's": {func(t *testing.T, w *world, _ *Storage) {
			require.NoError(t, unix.Setxattr(w.path("a.tar", ".sums"), proofName, []byte("1"), 0))
		}, 257},
	} {
		t.Run(name, func(t *testing.T) {
			w := sealWorld(t)
			s := w.open(withSeals)
			w.read(s, "a.tar", 0, 1<<20+77)
			w.sealed(s, "a.tar")
			awaitNote(t, w.path("a.tar", ".sums"))
			s = w.open(withSeals)
			c.change(t, w, s)
			o := w.objects["a.tar"]
			require.NoError(t, s.seals.seal(o, s.seals.state(o)))
			require.Equal(t, c.left, s.seals.of(o).left.Load())
			w.read(s, "a.tar", 0, 1<<20+77) // compares
		})
	}
}

// Another machine may write to files of a file system of which lsiofs does not know otherwise, and
// this kernel may not notice. Overlayfs stands for them, as it has extended attributes.
func TestThereAreNoNotesWhereOthersMayWriteUnnoticed(t *testing.T) {
	privileged(t, "mounting an overlayfs")
	dir := t.TempDir()
	for _, part := range []string{"lower", "upper", "work", "merged"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, part), 0o700))
	}
	merged := filepath.Join(dir, "merged")
	if err := unix.Mount("overlay", merged, "overlay", 0, fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir)); err != nil {
		lacks(t, "overlayfs can't be mounted: "+err.Error())
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(merged, unix.MNT_DETACH)) })
	w := sealWorld(t)
	w.cache = filepath.Join(merged, "cache")
	s := w.open(withSeals)
	w.read(s, "a.tar", 0, 1<<20+77)
	o := w.objects["a.tar"]
	sealNow := func() *seal {
		s.seals.put(s.seals.state(o))
		require.NoError(t, s.seals.seal(o, s.seals.state(o)))
		return s.seals.of(o)
	}
	sealed := sealNow()
	for page := range int64(257) {
		sealed.add(page)
	}
	s.seals.note(o, sealed)
	sums := w.path("a.tar", ".sums")
	require.Empty(t, noteOf(t, sums))
	require.NoError(t, unix.Setxattr(sums, proofName, s.seals.proofs.of(sealed.file), 0), "a note of another program")
	require.EqualValues(t, 257, sealNow().left.Load())
}

// Not even a page that was checked before the file changed counts for the version that it has then.
func TestObjectWithAnUncheckedPageIsNotNoted(t *testing.T) {
	w := sealWorld(t)
	s := w.open(nil)
	w.read(s, "a.tar", 0, 1<<20+77)
	require.NoError(t, alter(w.path("a.tar", ".data"), 200*pageBytes, func(b byte) byte { return b + 1 }))
	s = w.open(withSeals)
	o := w.objects["a.tar"]
	require.NoError(t, s.seals.seal(o, s.seals.state(o)))
	require.Zero(t, w.read(s, "a.tar", 0, 128<<10))
	s.seals.note(o, s.seals.of(o))
	require.Empty(t, noteOf(t, w.path("a.tar", ".sums")))
}

// A decoded shard is checked soon after it was written, so that the next mount need not check it.
func TestDecodedShardsAreCheckedWhenTheyWereWritten(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, 10)})
	s := w.open(withSeals)
	shelf := keptShelf(t, s, 2, "v1")
	defer func() { require.NoError(t, shelf.Close()) }()
	for shard := range 2 {
		d := openKept(t, shelf, shard, Ours)
		defer d.Leave(Keep)
		fillDecoded(t, d, decodedBytes(shard, keptShardBytes))
	}
	sums, err := filepath.Glob(filepath.Join(w.cache, "v1", "*", "*.sums"))
	require.NoError(t, err)
	require.Len(t, sums, 2)
	for _, file := range sums {
		awaitNote(t, file)
	}
	next := w.open(withSeals)
	p := next.OpenPlain(keptConfig(2, "v1"), func(shard int) storage.Object {
		return storage.Object{Path: fmt.Sprint(shard, ".zst"), SizeBytes: 1000}
	}, func(shard int, _ func([]byte) error) error { return fmt.Errorf("shard %d is decoded", shard) })
	require.NotNil(t, p)
	for shard := range 2 {
		o := p.Object(shard)
		require.NoError(t, next.seals.seal(o, next.seals.state(o)))
		require.Zero(t, next.seals.of(o).left.Load())
	}
	require.NoError(t, p.Close())
}

// A damaged shard is not noted, nor one whose files were closed.
func TestDecodedShardIsNotedOnlyIfItIsRight(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, 10)})
	keepShards(t, w.open(nil), 1)
	data, err := filepath.Glob(filepath.Join(w.cache, "v1", "*", "*.data"))
	require.NoError(t, err)
	require.Len(t, data, 1)
	sums := data[0][:len(data[0])-len(".data")] + ".sums"
	add := func(n byte) {
		require.NoError(t, alter(data[0], 5000, func(b byte) byte { return b + n }))
	}
	s := w.open(withSeals)
	shelf := keptShelf(t, s, 1, "v1")
	d := openKept(t, shelf, 0, Whole)
	k := d.ground.(*keptShard)
	awaitNote(t, sums)
	clear := func() { require.NoError(t, unix.Removexattr(sums, proofName)) }
	clear()
	add(1)
	s.seals.checkKept(k)
	require.Empty(t, noteOf(t, sums))
	add(255)
	s.seals.checkKept(k)
	require.NotEmpty(t, noteOf(t, sums), "it is right again")
	clear()
	d.Leave(Keep)
	k.a.waitRemoved()
	s.seals.checkKept(k)
	require.Empty(t, noteOf(t, sums), "its files are closed")
	require.NoError(t, shelf.Close())
}

// What is spoilt is neither read like a file any more, nor noted to be checked, by any mount.
func TestSpoiltPagesEndSealsAndNotes(t *testing.T) {
	w := sealWorld(t)
	s := w.open(withSeals)
	w.read(s, "a.tar", 0, 1<<20+77)
	w.sealed(s, "a.tar")
	awaitNote(t, w.path("a.tar", ".sums"))
	o := w.objects["a.tar"]
	m, err := mapNow(s, o)
	require.NoError(t, err)
	held := s.hold(o)
	require.NoError(t, s.dir.spoil(held.files.Load(), run{0, 1}))
	s.release(held)
	require.ErrorIs(t, m.Check(), storage.ErrReadAgain)
	require.NoError(t, m.Close())
	next := w.open(withSeals)
	require.ErrorIs(t, next.seals.seal(o, next.seals.state(o)), errNotSealed)
	require.Positive(t, w.read(next, "a.tar", 0, 10))
}

// A disk that does not store what was written says so once. Then the object is given up, although the
// page cache has the right bytes: they would be lost later, unnoticed.
func TestObjectThatWasNotFlushedIsGivenUp(t *testing.T) {
	w := sealWorld(t)
	s := w.open(withSeals)
	w.read(s, "a.tar", 0, 1<<20+77)
	o := s.hold(w.objects["a.tar"])
	defer s.release(o)
	_, err := s.seals.settle(&o.wanted, o.files.Load(), func(int) error { return unix.EIO })
	require.ErrorIs(t, err, unix.EIO)
	_, err = s.seals.settle(&o.wanted, o.files.Load(), func(int) error { return nil })
	require.ErrorIs(t, err, errNotSealed)
}
