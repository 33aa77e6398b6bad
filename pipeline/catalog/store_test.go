package catalog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestInterruptedBuildContinues(t *testing.T) {
	// With a core per shard, none would be finished when the first half is read.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	w := newWorld(t)
	const shards = 30
	for i := range shards {
		w.write(fmt.Sprintf("%02d.jsonl", i), linesOf(50, fmt.Sprint(i)))
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var mu sync.Mutex
	read := map[string]bool{}
	w.onRead = func(o storage.Object) error {
		mu.Lock()
		defer mu.Unlock()
		if read[o.Path] = true; len(read) == shards/2 {
			cancel()
		}
		return nil
	}
	_, err := w.openWith(ctx, w.config())
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, w.indexFiles("*.journal"), 1)
	first := len(read)
	require.Less(t, first, shards)
	// The tail of a journal is lost with its process; everything before it counts.
	journal := w.indexFiles("*.journal")[0]
	info, err := os.Stat(journal)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(journal, info.Size()-1))
	read = map[string]bool{}
	c := w.mustOpen()
	require.Equal(t, uint64(50*shards), c.Records())
	require.Less(t, len(read), shards)
	require.GreaterOrEqual(t, len(read), shards-first)
	require.Empty(t, w.indexFiles("*.journal"), "sealed")
	sealed := w.sealed()
	w.mustOpen(func(c *Config) { c.Rebuild = true })
	require.Equal(t, sealed, w.sealed())
}

func TestCancellingStopsBuildWithHangingReads(t *testing.T) {
	for _, only := range []string{"c", "a.jsonl", "b.jsonl.gz"} { // c while its content is judged
		w := newWorld(t)
		w.write(only, map[bool][]byte{true: gz(linesOf(50, "a")), false: linesOf(50, "a")}[only == "b.jsonl.gz"])
		ctx, cancel := context.WithCancel(context.Background())
		held := make(chan *storage.Read, 100)
		w.onHold = func(r *storage.Read) {
			if r.Object.Path != only {
				data, err := os.ReadFile(filepath.Join(w.data, r.Object.Path))
				require.NoError(t, err)
				copy(r.Buf, data[r.OffsetBytes:])
				r.Done(nil)
				return
			}
			held <- r
			cancel()
		}
		config := w.config()
		config.Rebuild = true // otherwise a shard that an earlier build had finished would not be read
		_, err := w.openWith(ctx, config)
		require.ErrorIs(t, err, context.Canceled)
		require.Len(t, held, 1)
		r := <-held
		clear(r.Buf) // the storage may still write to it
		r.Done(nil)
	}
}

func TestJournalOfLiveProcessIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.write("a.jsonl", linesOf(50, "a"))
	name := w.indexName()
	living, err := os.Create(filepath.Join(w.index, name+".abc.journal"))
	require.NoError(t, err)
	defer living.Close()
	require.NoError(t, unix.Flock(int(living.Fd()), unix.LOCK_EX))
	w.mustOpen()
	require.Len(t, w.indexFiles("*.journal"), 1)
	require.NoError(t, living.Close())
	w.mustOpen(func(c *Config) { c.Rebuild = true })
	require.Empty(t, w.indexFiles("*.journal"))
}

func TestConcurrentBuildsDoNotInterfere(t *testing.T) {
	w := newWorld(t)
	for i := range 20 {
		w.write(fmt.Sprintf("%02d.tar", i), tarOf(30, "s"))
	}
	var g errgroup.Group
	catalogs := make([]*Catalog, 4)
	for i := range catalogs {
		g.Go(func() (err error) {
			catalogs[i], err = w.open()
			return err
		})
	}
	require.NoError(t, g.Wait())
	for _, c := range catalogs {
		require.Equal(t, uint64(600), c.Records())
		require.Equal(t, catalogs[0].Identity(), c.Identity())
	}
	for _, c := range catalogs {
		require.NoError(t, c.Close())
	}
	require.Len(t, w.indexFiles("*.index"), 1)
	require.Empty(t, w.indexFiles("*.tmp"))
	require.Zero(t, w.readsOf(func() { w.mustOpen() }))
	require.NotContains(t, w.log.String(), "level=WARN")
}

func TestDamagedStoredIndexIsRebuilt(t *testing.T) {
	w := newWorld(t)
	w.write("a.jsonl", linesOf(50, "a"))
	good := w.mustOpen()
	path := w.indexFiles("*.index")[0]
	stored, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, at := range []int{3, 9, 100, len(stored) / 2, len(stored) - 1} {
		bad := append([]byte(nil), stored...)
		bad[at] ^= 4
		require.NoError(t, os.WriteFile(path+"x", bad, 0o600))
		require.NoError(t, os.Rename(path+"x", path))
		require.Positive(t, w.readsOf(func() { require.Equal(t, good.Fingerprint(), w.mustOpen().Fingerprint()) }))
		require.Contains(t, w.log.String(), "stored index can't be used and is built again")
		now, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, stored, now)
	}
}

func TestUnwritableIndexDirectoryIsAWarning(t *testing.T) {
	w := newWorld(t)
	w.write("a.jsonl", linesOf(50, "a"))
	blocker := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(blocker, nil, 0o600))
	for _, dir := range []string{filepath.Join(blocker, "index"), "/proc/self/fdinfo"} {
		w.log.text.Reset()
		c := w.mustOpen(func(c *Config) { c.IndexDir = dir })
		require.Equal(t, uint64(50), c.Records())
		require.Contains(t, w.log.String(), "level=WARN")
		require.Contains(t, w.log.String(), "index")
		require.Empty(t, c.Explain(c.Fingerprint()))
	}
}

func TestDatasetIndexDirectoryIsUsedIfPresent(t *testing.T) {
	w := newWorld(t)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(w.index, "cache"))
	w.write("a.jsonl", linesOf(5, "a"))
	w.mustOpen(func(c *Config) { c.IndexDir = "" })
	require.Len(t, w.indexFiles("cache/lsiofs/*.index"), 1)
	require.NoError(t, os.Mkdir(filepath.Join(w.data, ".lsiofs"), 0o700))
	w.mustOpen(func(c *Config) { c.IndexDir = "" })
	own, err := filepath.Glob(filepath.Join(w.data, ".lsiofs", "*.index"))
	require.NoError(t, err)
	require.Len(t, own, 1)
	// An index directory inside the dataset does not hold shards.
	c := w.mustOpen(func(c *Config) { c.IndexDir = filepath.Join(w.data, "visible") })
	c2 := w.mustOpen(func(c *Config) { c.IndexDir = filepath.Join(w.data, "visible") })
	for _, c := range []*Catalog{c, c2} {
		require.Equal(t, ".lsiofs/", c.Selection().FirstLeft[0].Path)
		require.Equal(t, 1, c.PassedOver())
	}
}

func TestFilesDatedInFutureDoNotDisplaceNewOnes(t *testing.T) {
	w := newWorld(t)
	w.write("a.jsonl", linesOf(5, "a"))
	c := w.mustOpen()
	const kept = 3
	for i := range kept {
		require.NoError(t, c.SaveBeside(fmt.Sprint("wrong", i), ".layout", kept, []byte("x")))
	}
	wrong := time.Now().AddDate(1, 0, 0)
	for _, path := range w.indexFiles("*.layout") {
		require.NoError(t, os.Chtimes(path, wrong, wrong))
	}
	for i := range kept {
		name := fmt.Sprint("right", i)
		require.NoError(t, c.SaveBeside(name, ".layout", kept, []byte("y")))
		b, err := c.LoadBeside(name, ".layout", 1)
		require.NoError(t, err)
		require.Equal(t, []byte("y"), b)
	}
	require.Len(t, w.indexFiles("*.layout"), kept)
	require.Empty(t, w.indexFiles("*wrong*"))
}

func TestLeftoversOfKilledProcessesAreRemovedEvenIfIndexIsValid(t *testing.T) {
	w := newWorld(t)
	w.write("a.jsonl", linesOf(5, "a"))
	w.mustOpen()
	path := filepath.Join(w.index, w.indexName())
	for _, left := range []string{".abc.tmp", ".def.journal"} {
		require.NoError(t, os.WriteFile(path+left, []byte("left"), 0o600))
	}
	other := filepath.Join(w.index, "0123456789abcdef0123456789abcdef.abc.tmp")
	require.NoError(t, os.WriteFile(other, nil, 0o600))
	alive, err := os.Create(path + ".ghi.tmp")
	require.NoError(t, err)
	defer alive.Close()
	require.NoError(t, unix.Flock(int(alive.Fd()), unix.LOCK_EX))

	require.Zero(t, w.readsOf(func() { w.mustOpen() }))
	require.ElementsMatch(t, []string{other, alive.Name()}, append(w.indexFiles("*.tmp"), w.indexFiles("*.journal")...),
		"those of another dataset and of a living process stay")
}

func TestHistoryKeepsNewestFour(t *testing.T) {
	w := newWorld(t)
	var seen []string
	for i := range 6 {
		w.write("a.jsonl", linesOf(i+1, "a"))
		seen = append(seen, w.mustOpen().Fingerprint())
	}
	c := w.mustOpen()
	for i, fingerprint := range seen {
		require.Equal(t, i < 2, c.Explain(fingerprint) == "", "fingerprint %d", i)
	}
	// A file whose content does not hash to its name is not used.
	path := w.indexFiles("*." + seen[3] + ".gz")[0]
	require.NoError(t, os.WriteFile(path, gz([]byte("lsiofs/1 dataset tar\n")), 0o600))
	require.Empty(t, c.Explain(seen[3]))
	require.NoError(t, os.WriteFile(filepath.Clean(path), []byte("x"), 0o600))
	require.Empty(t, c.Explain(seen[3]))
}
