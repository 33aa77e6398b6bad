package local

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// openWatched gives mappings of files a and b. What they take a for is wrong, so
// that they show when they look.
func openWatched(t *testing.T) (s *Storage, root string, a, b *mapping) {
	root = t.TempDir()
	mapsHere(t, root)
	s = openAt(t, root, 10)
	open := func(path string) *mapping {
		write(t, root, path, "content")
		m, err := s.Map(stat(t, s, path))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, m.Close()) })
		return m.(*mapping)
	}
	a, b = open("a"), open("b")
	if a.watched < 0 && os.Getenv("CI") != "true" {
		t.Skip("files of this file system are not watched")
	}
	require.NoError(t, a.Check(changes(s)))
	a.object.SizeBytes++
	return s, root, a, b
}

// changes is Changes as if no time passed between two calls, however long it took:
// the last one is still to come.
func changes(s *Storage) uint64 {
	s.watch.start = time.Now().Add(time.Hour - s.watch.asked)
	return s.Changes()
}

func TestAMappedFileIsLookedAtWhenSomeHasChanged(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, path string){
		"written":   func(t *testing.T, path string) { write(t, filepath.Dir(path), filepath.Base(path), "xxxxxxx") },
		"truncated": func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 1)) },
		"touched":   func(t *testing.T, path string) { require.NoError(t, os.Chtimes(path, time.Time{}, time.Unix(1, 1))) },
	} {
		t.Run(name, func(t *testing.T) {
			s, root, a, b := openWatched(t)
			require.NoError(t, b.Check(changes(s)))
			require.NoError(t, a.Check(changes(s)), "nothing has happened: it does not look")
			require.Error(t, a.Check(0), "it is to look")
			change(t, filepath.Join(root, "b"))
			require.ErrorIs(t, b.Check(changes(s)), storage.ErrChanged)
			require.Error(t, a.Check(changes(s)), "it looks, too")
		})
	}
}

func TestAMappedFileIsLookedAtNowAndThen(t *testing.T) {
	s, _, a, _ := openWatched(t)
	require.NoError(t, a.Check(changes(s)))
	s.watch.start = s.watch.start.Add(-2 * time.Hour)
	require.Error(t, a.Check(s.Changes()))
}

func TestAFileThatCannotBeWatchedIsAlwaysLookedAt(t *testing.T) {
	s, root, _, _ := openWatched(t)
	require.EqualValues(t, -1, s.watch.add(openFD(t, "/proc/self/stat")), "no local file system")
	s.watch.close()
	write(t, root, "c", "content")
	m, err := s.Map(stat(t, s, "c"))
	require.NoError(t, err)
	c := m.(*mapping)
	require.EqualValues(t, -1, c.watched)
	require.NoError(t, c.Check(changes(s)))
	c.object.SizeBytes++
	require.Error(t, c.Check(changes(s)))
	require.NoError(t, c.Close())
}

func openFD(t *testing.T, path string) int {
	f, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return int(f.Fd())
}

func TestOneFileThatIsMappedTwiceIsWatchedUntilBothAreClosed(t *testing.T) {
	s, root, a, _ := openWatched(t)
	require.NoError(t, os.Symlink("b", filepath.Join(root, "link")))
	m, err := s.Map(stat(t, s, "link"))
	require.NoError(t, err)
	require.NoError(t, m.Close())
	write(t, root, "c", "content")
	c, err := s.Map(stat(t, s, "c"))
	require.NoError(t, err)
	require.Len(t, s.watch.files, 3)
	require.NoError(t, c.Close())
	require.Len(t, s.watch.files, 2, "what is closed is not watched")
	require.NoError(t, a.Check(changes(s)), "to take a watch away is no change")
	require.NoError(t, os.Truncate(filepath.Join(root, "b"), 1))
	require.Error(t, a.Check(changes(s)))
}
