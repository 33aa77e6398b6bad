package catalog

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// liveWorld is a growing dataset, whose clock stands still until it is set.
type liveWorld struct {
	*world
	storage storage.Storage
	mu      sync.Mutex
	now     time.Time
	told    map[string]bool // files that were passed to the live index
}

func newLiveWorld(w *world) *liveWorld {
	s, err := w.config().OpenStorage(w.data, "")
	require.NoError(w.t, err)
	w.cleanup(func() { require.NoError(w.t, s.Close()) })
	return &liveWorld{world: w, storage: s, now: time.Now()}
}

func (w *liveWorld) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *liveWorld) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// openLive opens the live index; the test closes it.
func (w *liveWorld) openLive(change ...func(*Config)) (*LiveIndex, error) {
	c := LiveIndexConfig{Config: w.config(), Now: w.clock}
	c.OpenStorage = func(string, string) (storage.Storage, error) { return w.storage, nil }
	for _, f := range change {
		f(&c.Config)
	}
	return OpenLiveIndex(context.Background(), c)
}

func (w *liveWorld) mustOpenLiveIndex(change ...func(*Config)) *LiveIndex {
	s, err := w.openLive(change...)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, s.Close()) })
	return s
}

// files returns the files below the dataset's directory that a watcher would report.
func (w *liveWorld) files(s *LiveIndex) (list []storage.Object) {
	require.NoError(w.t, filepath.WalkDir(w.data, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(w.data, path)
		shown := rel
		if d.IsDir() {
			shown += "/"
		}
		switch {
		case err != nil:
			return err
		case rel != "." && strings.HasPrefix(d.Name(), "."):
			s.LeaveOut(shown, storage.OmittedHidden)
		case !d.IsDir() && !discover.Finished(d.Name()):
			s.LeaveOut(shown, "its name is that of a file that is being written")
			return nil
		case rel != "." && !s.Match(rel, d.IsDir()):
			s.LeaveOut(shown, s.LeavesOut(rel))
		}
		switch {
		case d.IsDir() && rel != "." && (strings.HasPrefix(d.Name(), ".") || !s.Match(rel, true)):
			return filepath.SkipDir
		case d.IsDir() || strings.HasPrefix(d.Name(), ".") || !s.Match(rel, false):
			return nil
		}
		list = append(list, w.object(rel))
		return nil
	}))
	return list
}

func (w *liveWorld) object(path string) storage.Object {
	o, err := w.storage.Stat(context.Background(), path)
	require.NoError(w.t, err)
	return o
}

// look reports the current files to the live index, as a watcher does.
func (w *liveWorld) look(s *LiveIndex) {
	there := w.files(s)
	paths := map[string]bool{}
	for _, o := range there {
		paths[o.Path] = true
	}
	for path := range w.told {
		if !paths[path] {
			s.Forget(path)
		}
	}
	w.told = paths
	require.NoError(w.t, s.Index(context.Background(), there))
}

func (w *liveWorld) remove(path string) {
	require.NoError(w.t, os.Remove(filepath.Join(w.data, path)))
}

func (w *liveWorld) mustSeal(s *LiveIndex, shards []LiveShard) *Catalog {
	text, err := s.Text(shards)
	require.NoError(w.t, err)
	c, err := s.Seal(context.Background(), text)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, c.Close()) })
	return c
}

func zst(data []byte) []byte {
	e, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	defer e.Close()
	return e.EncodeAll(data, nil)
}

// count returns the number of occurrences of text.
func (l *logLines) count(text string) int { return strings.Count(l.String(), text) }

func pathsOf(shards []LiveShard) (paths []string) {
	for _, x := range shards {
		paths = append(paths, x.Path)
	}
	sort.Strings(paths)
	return paths
}

func waitingPaths(s *LiveIndex) (paths []string) {
	for _, w := range s.Waiting() {
		paths = append(paths, w.Path)
	}
	return paths
}

// requireSame requires two catalogs to be equal in everything except the files' versions.
func requireSame(t require.TestingT, want, got *Catalog) {
	require.Equal(t, want.Fingerprint(), got.Fingerprint())
	require.Equal(t, want.Records(), got.Records())
	require.Equal(t, want.Format(), got.Format())
	require.Equal(t, want.Kind(), got.Kind())
	require.Equal(t, want.StreamExtension(), got.StreamExtension())
	require.Equal(t, want.Shards(), got.Shards())
	require.Equal(t, want.StreamBytes(), got.StreamBytes())
	require.Equal(t, want.Damaged(), got.Damaged())
	for i := range want.Shards() {
		a, b := want.Shard(i), got.Shard(i)
		a.Object.Version, b.Object.Version = storage.Version{}, storage.Version{}
		require.Equal(t, a, b)
	}
	numbers := make([]uint64, want.Records())
	for i := range numbers {
		numbers[i] = uint64(i)
	}
	a, b := make([]Extent, len(numbers)), make([]Extent, len(numbers))
	want.Extents(numbers, a)
	got.Extents(numbers, b)
	require.Equal(t, a, b)
	require.Equal(t, want.ChunkStarts(1<<10, 16), got.ChunkStarts(1<<10, 16))
	hashes, others := make([]uint64, len(numbers)), make([]uint64, len(numbers))
	require.Equal(t, want.KeyHashes(numbers, hashes), got.KeyHashes(numbers, others))
	require.Equal(t, hashes, others)
}
