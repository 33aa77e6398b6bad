package pipeline

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/growing/snapshot"
	"github.com/lsiofs/lsiofs/pipeline/run"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// arrive puts a shard of some lines into a directory.
func arrive(t *testing.T, dir string, number int) {
	t.Helper()
	var b strings.Builder
	for i := range 50 + number {
		fmt.Fprintf(&b, "{\"shard\": %d, \"line\": %d}\n", number, i)
	}
	temporary := filepath.Join(dir, fmt.Sprintf("%d.tmp", number))
	require.NoError(t, os.WriteFile(temporary, []byte(b.String()), 0o644))
	require.NoError(t, os.Rename(temporary, filepath.Join(dir, fmt.Sprintf("s.%d.jsonl", number))))
}

// growingSpec is the spec of a growing directory, with its own index directory.
func growingSpec(t *testing.T, dir, runDir string) spec.Spec {
	s := testSpec(t, dir)
	s.IndexDir = t.TempDir()
	s.Grow = spec.Grow{On: true, Run: runDir, Latest: true, Settle: 100 * time.Millisecond}
	return s
}

// begin starts an epoch as soon as possible.
func begin(t *testing.T, d *Dataset, epoch uint64) {
	t.Helper()
	require.Eventually(t, func() bool {
		err := d.Begin(t.Context(), epoch)
		if err != nil {
			require.ErrorIs(t, err, growing.ErrNotYet)
		}
		return err == nil
	}, time.Minute, 20*time.Millisecond)
}

func TestDatasetGrowsFromEmptyDirectory(t *testing.T) {
	dir, runDir := t.TempDir(), filepath.Join(t.TempDir(), "run")
	waits := make(chan snapshot.Status, 1000)
	opened := make(chan *Dataset, 1)
	s := growingSpec(t, dir, runDir)
	s.Grow.MinNew = "1shards"
	go func() {
		d, err := Open(t.Context(), s, Options{Waiting: func(s snapshot.Status) {
			select {
			case waits <- s:
			default:
			}
		}})
		if err != nil {
			t.Error(err)
		}
		opened <- d
	}()
	require.Contains(t, (<-waits).NextEpoch, "epoch 0 is not available yet: there are no records")
	arrive(t, dir, 1)
	d := <-opened
	require.NotNil(t, d)
	defer func() { require.NoError(t, d.Close()) }()
	require.EqualValues(t, 51, d.Records())
	require.ErrorContains(t, d.Begin(t.Context(), 1), "epoch 1 is not available yet: 0 of 1 new shards")
	arrive(t, dir, 2)
	begin(t, d, 1)
	require.EqualValues(t, 51+52, d.Records())
	require.EqualValues(t, 1, *d.Status().Growing.Epoch)

	again := growingSpec(t, dir, runDir)
	other, err := Open(t.Context(), again, Options{})
	require.NoError(t, err)
	require.EqualValues(t, 1, other.Spec().Epoch, "a run goes on where its latest epoch is")
	require.Equal(t, d.Run(), other.Run())
	require.Equal(t, d.Fingerprint(), other.Fingerprint())
	require.NoError(t, other.Close())
}

func TestSnapshotIsSeparateDataset(t *testing.T) {
	dir, runDir := t.TempDir(), filepath.Join(t.TempDir(), "run")
	arrive(t, dir, 1)
	arrive(t, dir, 2)
	d, err := Open(t.Context(), growingSpec(t, dir, runDir), Options{})
	require.NoError(t, err)
	fingerprint := d.Fingerprint()
	require.NoError(t, d.Close())
	arrive(t, dir, 3)

	s := testSpec(t, dir)
	s.Grow.Snapshot = filepath.Join(runDir, "snapshots", fingerprint+".gz")
	alone, err := Open(t.Context(), s, Options{})
	require.NoError(t, err)
	require.Equal(t, fingerprint, alone.Fingerprint())
	require.EqualValues(t, 51+52, alone.Records())
	require.False(t, alone.Grows())
	require.NoError(t, alone.Close())

	require.NoError(t, os.Remove(filepath.Join(dir, "s.2.jsonl")))
	s.IndexDir = t.TempDir()
	_, err = Open(t.Context(), s, Options{})
	require.ErrorContains(t, err, "s.2.jsonl is in the snapshot but not here")
	s.Grow.Snapshot = filepath.Join(dir, "s.1.jsonl")
	_, err = Open(t.Context(), s, Options{})
	require.ErrorContains(t, err, "s.1.jsonl: it is not a snapshot")
}

func TestCheckingStartsNoEpoch(t *testing.T) {
	dir, runDir := t.TempDir(), filepath.Join(t.TempDir(), "run")
	arrive(t, dir, 1)
	_, err := Open(t.Context(), growingSpec(t, dir, runDir), Options{TakesNone: true})
	require.ErrorIs(t, err, growing.ErrNotYet)
	require.ErrorContains(t, err, "there is no run in "+runDir+" yet")
	require.ErrorContains(t, err, "lsiofs mount --grow and lsiofs cat --grow do")
	require.NoDirExists(t, runDir)
	d, err := Open(t.Context(), growingSpec(t, dir, runDir), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	looks, err := Open(t.Context(), growingSpec(t, dir, runDir), Options{TakesNone: true})
	require.NoError(t, err)
	require.Equal(t, d.Fingerprint(), looks.Fingerprint())
	err = looks.Begin(t.Context(), 1)
	require.ErrorIs(t, err, growing.ErrNotYet)
	require.ErrorContains(t, err, "this command starts no epoch")
	require.NoError(t, looks.Close())
	require.NoError(t, d.Begin(t.Context(), 1), "nobody has taken it")
}

func TestOtherRunIsRefusedBeforeEpochStarts(t *testing.T) {
	dir, runDir := t.TempDir(), filepath.Join(t.TempDir(), "run")
	arrive(t, dir, 1)
	s := growingSpec(t, dir, runDir)
	s.Grow.Of, s.Grow.Latest = strings.Repeat("3f", 16), false
	_, err := Open(t.Context(), s, Options{})
	require.ErrorContains(t, err, "there is no run in "+runDir)
	require.NoDirExists(t, runDir)

	d, err := Open(t.Context(), growingSpec(t, dir, runDir), Options{})
	require.NoError(t, err)
	ours, fingerprint := d.Run(), d.Fingerprint()
	require.NoError(t, d.Close())
	_, err = Open(t.Context(), s, Options{})
	require.ErrorContains(t, err, "has run "+ours+": name its directory with --run")
	s.Grow.Of, s.Epoch = ours, 1
	_, err = Open(t.Context(), s, Options{})
	require.ErrorContains(t, err, "does not have: it may be an old copy")
	latest, err := os.ReadDir(runDir)
	require.NoError(t, err)
	require.Len(t, latest, 3, "epoch-0, run.json, snapshots")

	// The run continues at another place, with only the snapshot.
	s.Epoch, s.Grow.Run = 7, filepath.Join(t.TempDir(), "new")
	s.Grow.Snapshot = filepath.Join(runDir, "snapshots", fingerprint+".gz")
	s.IndexDir = t.TempDir()
	d, err = Open(t.Context(), s, Options{})
	require.NoError(t, err)
	require.Equal(t, ours, d.Run())
	require.Equal(t, fingerprint, d.Fingerprint())
	require.ErrorIs(t, d.Begin(t.Context(), 6), growing.ErrNoEpoch)
	require.NoError(t, d.Begin(t.Context(), 8))
	require.NoError(t, d.Close())
	there, err := run.Read(s.Grow.Run)
	require.NoError(t, err)
	require.NotEmpty(t, there.Info().Format)
}

func TestLinkedShardsSurviveDeletion(t *testing.T) {
	dir, runDir := t.TempDir(), filepath.Join(t.TempDir(), "run")
	arrive(t, dir, 1)
	s := growingSpec(t, dir, runDir)
	s.Grow.Hold = true
	d, err := Open(t.Context(), s, Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	require.NoError(t, os.Remove(filepath.Join(dir, "s.1.jsonl")))
	set, err := d.Set(t.Context(), 0, nil, d.Spec().Deal)
	require.NoError(t, err)
	lines := 0
	for w := range d.Spec().Deal.Workers {
		lines += strings.Count(string(readFile(t, set, w, stream.Data, 1<<20)), "\n")
	}
	require.Equal(t, 51, lines)
}
