package hardlink

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/pipeline/storage/storagetest"
	"github.com/lsiofs/lsiofs/uring"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, root, path, content string) {
	full := filepath.Join(root, path)
	require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o700))
	require.NoError(t, os.WriteFile(full, []byte(content), 0o600))
}

func open(t *testing.T, root string) (*Storage, *Links) {
	engine, err := uring.Open(uring.ModePread)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	s, err := local.Open(root, engine)
	require.NoError(t, err)
	l := NewLinks(root)
	h := Wrap(s, l)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	return h, l
}

func TestSuite(t *testing.T) {
	storagetest.Run(t, func(t *testing.T, files map[string][]byte) storage.Storage {
		root := t.TempDir()
		for path, content := range files {
			write(t, root, path, string(content))
		}
		s, l := open(t, root)
		require.NoError(t, l.Use("run")) // nothing is held
		return s
	})
}

func read(s storage.Storage, o storage.Object) (string, error) {
	p := make([]byte, o.SizeBytes)
	err := storage.ReadAt(context.Background(), s, o, p, 0)
	return string(p), err
}

func TestLinkedFileIsReadAfterDeletion(t *testing.T) {
	root := t.TempDir()
	write(t, root, "x/a.tar", "the first")
	write(t, root, "b.tar", "not held")
	s, l := open(t, root)
	a, err := s.Stat(t.Context(), "x/a.tar")
	require.NoError(t, err)
	b, err := s.Stat(t.Context(), "b.tar")
	require.NoError(t, err)
	require.Error(t, l.Hold(t.Context(), []Line{{"x/a.tar", "1"}}), "there is no run yet")
	require.NoError(t, l.Use("run"))
	require.NoError(t, l.Hold(t.Context(), []Line{{"x/a.tar", "1"}, {"gone.tar", "2"}}))
	now, err := s.Stat(t.Context(), "x/a.tar")
	require.NoError(t, err)
	require.Equal(t, a, now, "a link does not make it another file")
	require.NoError(t, os.RemoveAll(filepath.Join(root, "x")))
	require.NoError(t, os.Remove(filepath.Join(root, "b.tar")))
	text, err := read(s, a)
	require.NoError(t, err)
	require.Equal(t, "the first", text)
	_, err = read(s, b)
	require.ErrorIs(t, err, storage.ErrChanged)

	// Another file in its place is read as it is, and the first one as it was.
	write(t, root, "x/a.tar", "the second")
	second, err := s.Stat(t.Context(), "x/a.tar")
	require.NoError(t, err)
	require.NoError(t, l.Hold(t.Context(), []Line{{"x/a.tar", "3"}}))
	require.NoError(t, os.Remove(filepath.Join(root, "x/a.tar")))
	again, l2 := open(t, root) // after a restart
	require.NoError(t, l2.Use("run"))
	require.NoError(t, l2.Hold(t.Context(), []Line{{"x/a.tar", "1"}, {"x/a.tar", "3"}}))
	for _, x := range []*Storage{s, again} {
		for text, o := range map[string]storage.Object{"the first": a, "the second": second} {
			got, err := read(x, o)
			require.NoError(t, err)
			require.Equal(t, text, got)
		}
	}

	// A link that Keep removes is gone permanently.
	kept := Kept{}
	kept.Add("3")
	removed, err := l2.Keep(kept)
	require.NoError(t, err)
	require.Zero(t, removed, "another node may just have made it")
	l2.young = 0
	removed, err = l2.Keep(kept)
	require.NoError(t, err)
	require.Equal(t, 1, removed)
	third, l3 := open(t, root)
	require.NoError(t, l3.Use("run"))
	require.NoError(t, l3.Hold(t.Context(), []Line{{"x/a.tar", "1"}, {"x/a.tar", "3"}}))
	_, err = read(third, a)
	require.ErrorIs(t, err, storage.ErrChanged)
	_, err = read(third, second)
	require.NoError(t, err)
}

// The same contents, written again: the link is to the file that exists now.
func TestRewrittenFileIsLinkedAgain(t *testing.T) {
	root := t.TempDir()
	write(t, root, "a.tar", "same")
	s, l := open(t, root)
	require.NoError(t, l.Use("run"))
	require.NoError(t, l.Hold(t.Context(), []Line{{"a.tar", "1"}}))
	write(t, root, "other", "same")
	require.NoError(t, os.Rename(filepath.Join(root, "other"), filepath.Join(root, "a.tar")))
	now, err := s.Stat(t.Context(), "a.tar")
	require.NoError(t, err)
	require.NoError(t, l.Hold(t.Context(), []Line{{"a.tar", "1"}}))
	require.NoError(t, os.Remove(filepath.Join(root, "a.tar")))
	text, err := read(s, now)
	require.NoError(t, err)
	require.Equal(t, "same", text)
}

// Another process, or this one after a restart, holds an old snapshot, one of whose shards has been
// replaced: only the link is left of it.
func TestLinkingOldSnapshotAgainKeepsExistingLinks(t *testing.T) {
	root := t.TempDir()
	write(t, root, "a.tar", "the first")
	s, l := open(t, root)
	a, err := s.Stat(t.Context(), "a.tar")
	require.NoError(t, err)
	require.NoError(t, l.Use("run"))
	require.NoError(t, l.Hold(t.Context(), []Line{{"a.tar", "1"}}))
	write(t, root, "other", "the second")
	require.NoError(t, os.Rename(filepath.Join(root, "other"), filepath.Join(root, "a.tar")))
	second, err := s.Stat(t.Context(), "a.tar")
	require.NoError(t, err)
	for range 2 { // it is there for the next ones, too, and may be the same shard
		again, l := open(t, root)
		require.NoError(t, l.Use("run"))
		require.NoError(t, l.Hold(t.Context(), []Line{{"a.tar", "1"}}))
		for text, o := range map[string]storage.Object{"the first": a, "the second": second} {
			got, err := read(again, o)
			require.NoError(t, err)
			require.Equal(t, text, got)
		}
		require.NoError(t, os.RemoveAll(filepath.Join(root, "a.tar")))
	}
	l2 := NewLinks(root)
	l2.young = 0
	require.NoError(t, l2.Use("run"))
	removed, err := l2.Keep(Kept{})
	require.NoError(t, err)
	require.Equal(t, 2, removed)
	left, err := os.ReadDir(filepath.Join(root, ".lsiofs", "hold", "run"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// Links add no capability and take none away.
func TestLinksPassCapabilitiesOn(t *testing.T) {
	s, _ := open(t, t.TempDir())
	has, below := reflect.ValueOf(s.Caps()), reflect.ValueOf(s.Storage.Caps())
	for i := range has.NumField() {
		require.Equal(t, below.Field(i).IsNil(), has.Field(i).IsNil(), has.Type().Field(i).Name)
	}
}

// Reads that bypass the page cache find the links, too.
func TestWhatIsHeldIsReadUncached(t *testing.T) {
	root := t.TempDir()
	write(t, root, "a.tar", "uncached")
	s, l := open(t, root)
	require.NoError(t, l.Use("run"))
	o, err := s.Stat(t.Context(), "a.tar")
	require.NoError(t, err)
	require.NoError(t, l.Hold(t.Context(), []Line{{"a.tar", "1"}}))
	require.NoError(t, os.Remove(filepath.Join(root, "a.tar")))
	u, err := s.Caps().Uncached()
	require.NoError(t, err)
	got, err := read(u, o)
	require.NoError(t, err)
	require.Equal(t, "uncached", got)
	now, err := u.Stat(t.Context(), "a.tar")
	require.NoError(t, err)
	require.Equal(t, o, now)
	require.NoError(t, u.Close())
}

// A mapping of a file that was deleted maps the link.
func TestLinkedFileIsMapped(t *testing.T) {
	root := t.TempDir()
	write(t, root, "a.tar", "mapped")
	s, l := open(t, root)
	if s.Caps().Mapper == nil {
		t.Skip("nothing is mapped here")
	}
	require.NoError(t, l.Use("run"))
	o, err := s.Stat(t.Context(), "a.tar")
	require.NoError(t, err)
	require.NoError(t, l.Hold(t.Context(), []Line{{"a.tar", "1"}}))
	require.NoError(t, os.Remove(filepath.Join(root, "a.tar")))
	type answer struct {
		m   storage.Mapping
		err error
	}
	got := make(chan answer, 1)
	s.Map(o, func(m storage.Mapping, err error) { got <- answer{m, err} })
	a := <-got
	require.NoError(t, a.err)
	require.Equal(t, int(o.SizeBytes), len(a.m.Bytes()))
	require.NoError(t, a.m.Check())
	require.NoError(t, a.m.Close())
}

// A file that is gone is described as it was last, whichever of its links was made first.
func TestGoneFileIsDescribedByItsNewestLink(t *testing.T) {
	root := t.TempDir()
	s, l := open(t, root)
	require.NoError(t, l.Use("run"))
	var last storage.Object
	for i, content := range []string{"one", "the second", "the very last"} {
		write(t, root, "new", content)
		require.NoError(t, os.Rename(filepath.Join(root, "new"), filepath.Join(root, "a.tar")))
		require.NoError(t, l.Hold(t.Context(), []Line{{"a.tar", content}}))
		var err error
		last, err = s.Stat(t.Context(), "a.tar")
		require.NoError(t, err, "%d", i)
	}
	require.NoError(t, os.Remove(filepath.Join(root, "a.tar")))
	for _, stat := range []func(context.Context, string) (storage.Object, error){s.Stat, s.Caps().StatStable} {
		now, err := stat(t.Context(), "a.tar")
		require.NoError(t, err)
		require.Equal(t, last, now)
	}
	got, err := read(s, last)
	require.NoError(t, err)
	require.Equal(t, "the very last", got)
}
