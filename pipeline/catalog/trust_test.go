package catalog

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

const stranger = 12345 // a user who is neither the tests' nor root

// asRoot skips a test that must change the owner of files, unless it runs as root.
func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("CI=true, and giving files away takes root")
	}
	t.Skip("giving files away takes root")
}

// TestFilesOfTheIndexThatOthersCouldHaveWrittenAreNotUsed puts something else in the place of a
// stored index and of the files next to it. None may be used, waited for or written to.
func TestFilesOfTheIndexThatOthersCouldHaveWrittenAreNotUsed(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		root         bool
		do           func(path string) error
	}{
		{"a link to the index", "symbolic links", false, func(p string) error {
			return errors.Join(os.Rename(p, p+".away"), os.Symlink(p+".away", p))
		}},
		{"a pipe", "not a regular file", false, func(p string) error { return errors.Join(os.Remove(p), syscall.Mkfifo(p, 0o600)) }},
		{"a directory", "not a regular file", false, func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) }},
		{"a file that all may write to", "other users may write to it", false, func(p string) error { return os.Chmod(p, 0o602) }},
		{"a file that its group may write to", "other users may write to it", false, func(p string) error { return os.Chmod(p, 0o620) }},
		{"a file of a stranger", "it belongs to user 12345", true, func(p string) error { return os.Chown(p, stranger, stranger) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.root {
				asRoot(t)
			}
			w := newWorld(t)
			w.write("a.jsonl", linesOf(50, "a"))
			require.NoError(t, w.mustOpen().SaveBeside("x", ".beside", 2, []byte("kept")))
			index, beside := w.indexFiles("*.index")[0], w.indexFiles("*.beside")[0]
			before, err := os.ReadFile(index)
			require.NoError(t, err)
			require.NoError(t, c.do(index))
			require.NoError(t, c.do(beside))
			require.NotZero(t, w.readsOf(func() {
				again := w.mustOpen()
				require.Equal(t, uint64(50), again.Records())
				_, err := again.LoadBeside("x", ".beside", 4)
				require.Error(t, err)
			}), "the shard is indexed again")
			require.Contains(t, w.log.String(), "built again")
			require.Contains(t, w.log.String(), c.reason)
			if _, err := os.Stat(index + ".away"); err == nil {
				away, err := os.ReadFile(index + ".away")
				require.NoError(t, err)
				require.Equal(t, before, away, "what a link points to is not written to")
			}
		})
	}
}

func TestJournalOfOtherUserIsNotUsed(t *testing.T) {
	asRoot(t)
	w := newWorld(t)
	w.write("a.jsonl", linesOf(50, "a"))
	journal := filepath.Join(w.index, w.indexName()+".abc.journal")
	require.NoError(t, os.WriteFile(journal, nil, 0o600))
	require.NoError(t, os.Chown(journal, stranger, stranger))
	w.mustOpen()
	require.Len(t, w.indexFiles("*.journal"), 1, "neither read nor removed")
}

func TestADirectoryThatAStrangerPutBesideADatasetIsNotUsed(t *testing.T) {
	asRoot(t)
	data, cache := t.TempDir(), t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	own := filepath.Join(data, ".lsiofs")
	use := func() (string, error) {
		dir, refused, err := DirectoryFor("", data)
		require.NoError(t, err)
		return dir, refused
	}
	require.NoError(t, os.Mkdir(own, 0o755))
	dir, refused := use()
	require.NoError(t, refused)
	require.Equal(t, own, dir)

	require.NoError(t, os.Chown(own, stranger, stranger))
	dir, refused = use()
	require.ErrorContains(t, refused, "belongs to user 12345")
	require.Equal(t, filepath.Join(cache, "lsiofs"), dir)

	require.NoError(t, os.Chown(data, stranger, stranger))
	dir, refused = use()
	require.NoError(t, refused, "the dataset's owner may")
	require.Equal(t, own, dir)

	require.NoError(t, errors.Join(os.Chown(data, 0, 0), os.Remove(own), os.Symlink(cache, own), os.Lchown(own, stranger, stranger)))
	_, refused = use()
	require.ErrorContains(t, refused, "belongs to user 12345", "nor where a stranger's link leads")
	w := newWorld(t)
	w.write("a.jsonl", linesOf(50, "a"))
	require.NoError(t, errors.Join(os.Mkdir(filepath.Join(w.data, ".lsiofs"), 0o700), os.Chown(filepath.Join(w.data, ".lsiofs"), stranger, stranger)))
	c := w.mustOpen(func(c *Config) { c.IndexDir = "" })
	require.Equal(t, filepath.Join(cache, "lsiofs"), c.IndexDir())
	require.Contains(t, w.log.String(), "the index directory of the dataset is not used")
}
