package snapshot

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/run"
)

func TestEpochContainsShardsPresentAtStart(t *testing.T) {
	n := open(t, newPlace(t), window(t, "3shards"))
	require.Empty(t, n.Run())
	_, any := n.Latest()
	require.False(t, any)
	require.EqualError(t, n.refused(0, true), "epoch 0 is not available yet: there are no records")
	require.ErrorIs(t, n.refused(0, false), growing.ErrNotYet)
	require.EqualError(t, n.refused(1, true), "epoch 1 does not exist: this run has no epoch yet")
	require.NoDirExists(t, n.place.run, "nothing is recorded before there is an epoch")

	n.put(t, 10, "a.9.txt", "a.10.txt", "deep/a.11.txt", "a.2.txt")
	n.eventually("a.9.txt", "a.10.txt", "deep/a.11.txt", "a.2.txt")
	require.ErrorIs(t, n.refused(0, false), growing.ErrNotYet, "it is there, and nobody has taken it")
	first, paths := n.taken(0)
	require.Equal(t, []string{"a.10.txt", "a.9.txt", "deep/a.11.txt"}, paths)
	require.EqualValues(t, 3, first.NewShards)
	require.EqualValues(t, 30, first.NewRecords)
	require.Equal(t, "3shards", first.Window)
	require.Len(t, n.Run(), 32)
	require.Equal(t, first.Run, n.Run())

	n.put(t, 5, "a.12.txt")
	n.eventually("a.9.txt", "a.10.txt", "deep/a.11.txt", "a.2.txt", "a.12.txt")
	again, _ := n.taken(0)
	require.Equal(t, first, again, "what arrived since changes nothing")
	second, paths := n.taken(1)
	require.Equal(t, []string{"a.10.txt", "a.12.txt", "deep/a.11.txt"}, paths)
	require.EqualValues(t, 1, second.NewShards)
	require.EqualValues(t, 5, second.NewRecords)
	require.EqualValues(t, 1, second.GoneShards)
	require.EqualError(t, n.refused(5, true), "epoch 5 does not exist: this run is at 1; the next one is 2")
	latest, any := n.Latest()
	require.True(t, any)
	require.EqualValues(t, 1, latest)
	third, _ := n.taken(2)
	require.Equal(t, second.Snapshot, third.Snapshot, "nothing has to be new")
}

// Checking whether an epoch can be started does not start it, and sees new arrivals, also on other
// nodes.
func TestCheckingNextEpochDoesNotStartIt(t *testing.T) {
	p := newPlace(t)
	n, other := open(t, p, minNew(t, "2shards")), open(t, p, minNew(t, "2shards"))
	can := func(epoch uint64) error { return n.CanTake(t.Context(), epoch) }
	require.EqualError(t, can(0), "epoch 0 is not available yet: there are no records")
	n.put(t, 10, "1.txt", "2.txt")
	for _, node := range []*node{n, other} {
		node.eventually("1.txt", "2.txt")
	}
	for range 3 {
		require.NoError(t, can(0))
	}
	require.EqualError(t, can(1), "epoch 1 does not exist: this run has no epoch yet")
	_, any := n.Latest()
	require.False(t, any)
	require.NoDirExists(t, p.run)
	other.taken(0)
	require.NoError(t, can(0), "another node has taken it")
	require.EqualError(t, can(1), "epoch 1 is not available yet: 0 of 2 new shards")
	n.put(t, 10, "3.txt", "4.txt")
	n.eventually("1.txt", "2.txt", "3.txt", "4.txt")
	require.NoError(t, can(1))
	_, paths := n.taken(1)
	require.Len(t, paths, 4)
}

// A snapshot is equal to a dataset that has only its shards.
func TestSnapshotEqualsDatasetOfItsShards(t *testing.T) {
	n := open(t, newPlace(t), window(t, "2shards"))
	n.put(t, 7, "1.txt", "2.txt", "3.txt")
	n.eventually("1.txt", "2.txt", "3.txt")
	e, _ := n.taken(0)
	alone := newPlace(t)
	alone.put(t, 7, "2.txt", "3.txt")
	other, paths := openedAlone(t, alone)
	require.Equal(t, []string{"2.txt", "3.txt"}, paths)
	require.Equal(t, other, e.Snapshot)
}

func openedAlone(t *testing.T, p place) (fingerprint string, paths []string) {
	n := open(t, p)
	n.eventually("2.txt", "3.txt")
	e, paths := n.taken(0)
	return e.Snapshot, paths
}

func TestEpochWaitsForEnoughNewShards(t *testing.T) {
	n := open(t, newPlace(t), minNew(t, "1500records"))
	n.put(t, 1000, "1.txt")
	n.eventually("1.txt")
	for range 3 {
		require.EqualError(t, n.refused(0, true), "epoch 0 is not available yet: 1 000 of 1 500 new records")
	}
	s := n.Status()
	require.Equal(t, "epoch 0 is not available yet: 1 000 of 1 500 new records", s.NextEpoch)
	require.EqualValues(t, 1000, s.NewRecords)
	require.EqualValues(t, 1500, s.NeededRecords)
	n.put(t, 600, "2.txt")
	n.eventually("1.txt", "2.txt")
	e, _ := n.taken(0)
	require.EqualValues(t, 1600, e.NewRecords)
	require.EqualError(t, n.refused(1, true), "epoch 1 is not available yet: 0 of 1 500 new records")
	s = n.Status()
	require.EqualValues(t, 0, *s.Epoch)
	require.Equal(t, e.Snapshot, s.Snapshot)
	require.Equal(t, "2.txt", s.NewestShard)
	require.InDelta(t, 1600.0/1500, *s.UsesPerRecord, 1e-9)
	require.Empty(t, s.Warning)
}

func TestStatusWarnsAboutOverusedRecords(t *testing.T) {
	n := open(t, newPlace(t), minNew(t, "10records"))
	n.put(t, 1000, "1.txt")
	n.eventually("1.txt")
	n.taken(0)
	s := n.Status()
	require.InDelta(t, 100, *s.UsesPerRecord, 1e-9)
	require.Contains(t, s.Warning, "raise --min-new")
	n.config.SampleOf = 39
	require.InDelta(t, 100.0/39, *n.Status().UsesPerRecord, 1e-9)
}

// A mount on an empty directory waits.
func TestFirstEpochIsWaitedFor(t *testing.T) {
	n := open(t, newPlace(t), minNew(t, "20records"))
	ctx, cancel := context.WithCancel(context.Background())
	require.ErrorIs(t, n.Wait(ctx, func(s Status) {
		require.Contains(t, s.NextEpoch, "there are no records")
		cancel()
	}), context.Canceled)
	waited := make(chan error, 1)
	seen := make(chan Status, 1000)
	go func() {
		waited <- n.Wait(context.Background(), func(s Status) {
			select {
			case seen <- s:
			default:
			}
		})
	}()
	n.put(t, 10, "1.txt")
	for s := range seen {
		if s.NextEpoch == "epoch 0 is not available yet: 10 of 20 new records" {
			break
		}
	}
	n.put(t, 10, "2.txt")
	require.NoError(t, <-waited)
	_, any := n.Latest()
	require.False(t, any, "waiting takes nothing")
	n.taken(0)
	require.NoError(t, n.Wait(context.Background(), nil))
}

// Another node has its own index, copy of the data, and listing order.
func TestSameRunDirectoryYieldsSameCatalogsOnOtherNode(t *testing.T) {
	here := newPlace(t)
	n := open(t, here, window(t, "4shards"))
	n.put(t, 10, numbered("x/#.txt", 0, 6)...)
	n.eventually(numbered("x/#.txt", 0, 6)...)
	e, paths := n.taken(0)

	there := newPlace(t)
	there.run = here.run
	there.put(t, 10, "x/5.txt", "x/3.txt", "x/4.txt")
	other := open(t, there, window(t, "1shards"))
	err := other.refused(0, true)
	lacking, ok := errors.AsType[*catalog.LackingError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, []string{"x/2.txt"}, lacking.Paths)
	require.ErrorContains(t, err, "(started by "+e.By+", host/process)")
	there.put(t, 11, "x/2.txt") // while it is being copied
	err = other.refused(0, true)
	differs, ok := errors.AsType[*catalog.DiffersError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, "x/2.txt", differs.Path)
	require.ErrorContains(t, err, "x/2.txt: 11 records here, 10")
	there.put(t, 10, "x/2.txt")
	got, others := other.taken(0)
	require.Equal(t, e, got)
	require.Equal(t, paths, others)

	// The node that starts an epoch decides on its shards.
	other.eventually("x/5.txt", "x/3.txt", "x/4.txt", "x/2.txt")
	taken, _ := other.taken(1)
	require.Equal(t, "1shards", taken.Window)
	got, paths = n.taken(1)
	require.Equal(t, taken, got)
	require.Equal(t, []string{"x/5.txt"}, paths)
}

// A shard that is still being copied does not count for the next epoch.
func TestFileBeingCopiedIsMissingOnOtherNode(t *testing.T) {
	here := newPlace(t)
	n := open(t, here)
	n.put(t, 10, "1.txt", "2.txt")
	n.eventually("1.txt", "2.txt")
	n.taken(0)
	there := newPlace(t)
	there.run = here.run
	there.put(t, 10, "1.txt")
	w, err := os.Create(filepath.Join(there.data, "2.txt"))
	require.NoError(t, err)
	_, err = w.Write(lines("2.txt", 10))
	require.NoError(t, err)
	other := open(t, there)
	_, ok := errors.AsType[*catalog.LackingError](other.refused(0, true))
	require.True(t, ok)
	require.NoError(t, w.Close())
	other.taken(0)
}

func TestRestartedNodeFindsItsEpochs(t *testing.T) {
	p := newPlace(t)
	n := open(t, p)
	n.put(t, 10, "1.txt", "2.txt")
	n.eventually("1.txt", "2.txt")
	first, paths := n.taken(0)
	n.close()
	p.put(t, 10, "3.txt")
	n = open(t, p)
	again, got := n.taken(0)
	require.Equal(t, first, again)
	require.Equal(t, paths, got)
	require.Equal(t, first.Run, n.Run())
}

func TestEpochWithMissingSnapshotIsAnError(t *testing.T) {
	n := open(t, newPlace(t))
	n.put(t, 10, "1.txt")
	n.eventually("1.txt")
	e, _ := n.taken(0)
	require.NoError(t, os.Remove(filepath.Join(n.place.run, "snapshots", e.Snapshot+".gz")))
	require.ErrorIs(t, n.refused(0, true), run.ErrGone)
	next, _ := n.taken(1) // the run continues: everything counts as new
	require.EqualValues(t, 1, next.NewShards)
}

func TestOtherRunsAreRefused(t *testing.T) {
	p := newPlace(t)
	_, err := run.Open(p.run, run.Info{Format: "tar", Newest: "name"})
	require.NoError(t, err)
	_, err = tryOpen(t, p)
	require.ErrorContains(t, err, `its format is "tar", not "lines"`)
	p = newPlace(t)
	_, err = run.Open(p.run, run.Info{Format: "lines", Newest: "mtime"})
	require.NoError(t, err)
	_, err = tryOpen(t, p)
	require.ErrorContains(t, err, "--newest")
	info, ok, err := InfoOf(p.run)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "mtime", info.Newest)
	_, ok, err = InfoOf(filepath.Join(p.data, "none"))
	require.NoError(t, err)
	require.False(t, ok)
}

// A checkpoint can continue without its run directory.
func TestPinnedEpochContinuesElsewhere(t *testing.T) {
	p := newPlace(t)
	n := open(t, p, window(t, "2shards"))
	n.put(t, 10, "1.txt", "2.txt", "3.txt")
	n.eventually("1.txt", "2.txt", "3.txt")
	n.taken(0)
	e, paths := n.taken(1)
	_, text, err := run.ReadSnapshot(filepath.Join(p.run, "snapshots", e.Snapshot+".gz"))
	require.NoError(t, err)
	n.close()

	p.run += "-new"
	pinned := func(c *Config) { c.Pinned = &Pinned{Run: e.Run, Epoch: 1, Text: text} }
	for range 2 {
		n = open(t, p, pinned)
		require.Equal(t, e.Run, n.Run())
		got, others := n.taken(1)
		require.Equal(t, e.Snapshot, got.Snapshot)
		require.Equal(t, paths, others)
		require.ErrorIs(t, n.refused(0, true), growing.ErrNoEpoch)
		n.close()
	}
	_, err = tryOpen(t, p, func(c *Config) { c.Pinned = &Pinned{Run: strings.Repeat("ab", 16), Epoch: 1, Text: text} })
	require.ErrorContains(t, err, "name a directory that has none with --run")
}

// A caller may give up; what it began continues.
func TestStartContinuesAfterCallerCancels(t *testing.T) {
	n := open(t, newPlace(t))
	n.put(t, 10, "1.txt")
	n.eventually("1.txt")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, err := n.Catalog(ctx, 0, true)
	require.ErrorIs(t, err, context.Canceled)
	require.Eventually(t, func() bool { _, any := n.Latest(); return any }, patience, 10*time.Millisecond)
	// After Close no epoch is started.
	require.NoError(t, n.Close())
	_, _, err = n.Catalog(context.Background(), 1, true)
	require.ErrorIs(t, err, errClosed)
	require.NoError(t, n.Close())
}

func TestRunDirectoryLocations(t *testing.T) {
	root, index := t.TempDir(), t.TempDir()
	beside := filepath.Join(index, "a")
	asked, err := Place(beside, root, root, index)
	require.NoError(t, err)
	require.Equal(t, beside, asked)
	_, err = Place(filepath.Join(index, "not there", "a"), root, root, index)
	require.ErrorContains(t, err, "create its parent directory")
	own, err := Place("", root, root, index)
	require.NoError(t, err)
	require.Equal(t, index, filepath.Dir(own))
	other, err := Place("", root+"/*.tar", root, index)
	require.NoError(t, err)
	require.NotEqual(t, own, other)
	_, err = Place("", root, root, "")
	require.ErrorContains(t, err, "--run")
	shared := filepath.Join(root, ".lsiofs", "runs", "default")
	require.NoError(t, os.MkdirAll(shared, 0o755))
	got, err := Place("", root, root, index)
	require.NoError(t, err)
	require.Equal(t, shared, got)
}
