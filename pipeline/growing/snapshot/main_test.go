package snapshot

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/run"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/uring"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for something that must happen.
const patience = 2 * time.Minute

// place has the directories of a dataset, its index and its run, on one node.
type place struct{ data, index, run string }

func newPlace(t *testing.T) place {
	root := t.TempDir()
	p := place{filepath.Join(root, "data"), filepath.Join(root, "index"), filepath.Join(root, "run")}
	require.NoError(t, os.Mkdir(p.data, 0o755))
	return p
}

// node is a snapshotter with everything it needs.
type node struct {
	*Snapshotter
	place
	t     testing.TB
	live  *catalog.LiveIndex
	close func()
}

// format is the format of the tests' shards.
const format = "lines"

// open opens a node; it is closed at the end of the test, or earlier.
func open(t testing.TB, p place, change ...func(*Config)) *node {
	t.Helper()
	n, err := tryOpen(t, p, change...)
	require.NoError(t, err)
	return n
}

func tryOpen(t testing.TB, p place, change ...func(*Config)) (*node, error) {
	t.Helper()
	engine, err := uring.Open(uring.ModePread)
	require.NoError(t, err)
	s, err := local.Open(p.data, engine)
	require.NoError(t, err)
	index, err := catalog.OpenLiveIndex(context.Background(), catalog.LiveIndexConfig{Config: catalog.Config{
		Dataset: p.data, Format: spec.Format{Name: format}, OnCorrupt: spec.CorruptFail, IndexDir: p.index,
		OpenStorage: func(string, string) (storage.Storage, error) { return s, nil },
	}})
	require.NoError(t, err)
	c := Config{Index: index, Storage: s, Root: p.data, RunDir: p.run, Log: slog.New(slog.DiscardHandler), Poll: 100 * time.Millisecond}
	for _, ch := range change {
		ch(&c)
	}
	snapshotter, err := Open(context.Background(), c)
	shut := func() {
		require.NoError(t, index.Close())
		require.NoError(t, engine.Close())
	}
	if err != nil {
		shut()
		return nil, err
	}
	n := &node{Snapshotter: snapshotter, place: p, t: t, live: index}
	closed := false
	n.close = func() {
		if !closed {
			closed = true
			require.NoError(t, snapshotter.Close())
			shut()
		}
	}
	t.Cleanup(n.close)
	return n, nil
}

// lines returns n records.
func lines(path string, n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "%s %d\n", path, i)
	}
	return b.Bytes()
}

// put adds shards as rsync does: under another name first.
func (p place) put(t testing.TB, records int, paths ...string) {
	for _, path := range paths {
		full := filepath.Join(p.data, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		hidden := filepath.Join(filepath.Dir(full), "."+filepath.Base(full)+".x")
		require.NoError(t, os.WriteFile(hidden, lines(path, records), 0o644))
		require.NoError(t, os.Rename(hidden, full))
	}
}

// shards returns the paths that are indexed now.
func (n *node) shards() (paths []string) {
	for _, s := range n.live.Shards() {
		paths = append(paths, s.Path)
	}
	slices.Sort(paths)
	return paths
}

// eventually waits until exactly these shards are indexed.
func (n *node) eventually(paths ...string) {
	n.t.Helper()
	slices.Sort(paths)
	require.Eventually(n.t, func() bool { return slices.Equal(paths, n.shards()) }, patience, 10*time.Millisecond, "%v", paths)
}

// taken returns the record and the shards of an epoch, starting it if it is the next.
func (n *node) taken(epoch uint64) (run.Epoch, []string) {
	n.t.Helper()
	c, e, err := n.Catalog(context.Background(), epoch, true)
	require.NoError(n.t, err)
	defer func() { require.NoError(n.t, c.Close()) }()
	require.Equal(n.t, e.Snapshot, c.Fingerprint())
	require.Equal(n.t, e.Records, c.Records())
	require.EqualValues(n.t, e.Shards, c.Shards())
	return e, pathsOf(c)
}

func pathsOf(c *catalog.Catalog) (paths []string) {
	for i := range c.Shards() {
		paths = append(paths, c.Shard(i).Object.Path)
	}
	return paths
}

func (n *node) refused(epoch uint64, take bool) error {
	n.t.Helper()
	c, _, err := n.Catalog(context.Background(), epoch, take)
	if err == nil {
		_ = c.Close()
	}
	require.Error(n.t, err)
	return err
}

func window(t testing.TB, text string) func(*Config) {
	w, err := growing.ParseWindow(text)
	require.NoError(t, err)
	return func(c *Config) { c.Window = w }
}

func minNew(t testing.TB, text string) func(*Config) {
	a, err := growing.ParseAmount(text)
	require.NoError(t, err)
	return func(c *Config) { c.MinNew = a }
}

func numbered(pattern string, from, to int) (paths []string) {
	for i := from; i < to; i++ {
		paths = append(paths, strings.Replace(pattern, "#", fmt.Sprint(i), 1))
	}
	return paths
}
