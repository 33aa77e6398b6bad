package integration

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/integration/killing"
	"github.com/lsiofs/lsiofs/integration/serve"
)

// killedTogether is the number of cases that run at the same time. A process mostly waits for its
// files to settle.
const killedTogether = 16

// brittle is a directory in which games arrive, and two nodes, each with its own index directory,
// that take the epochs of one run. The first node is killed.
type brittle struct {
	t              *testing.T
	data, run      string
	indexes        [2]string
	window         int // in shards
	arrived, fresh int // number of shards, and of those since the last epoch
	next           int // the epoch to take next

	killed  bool // in this epoch
	kills   int  // in all
	before  *killing.Call
	began   string // the epoch's file after the kill, "" if the epoch was not taken
	reads   [2][]byte
	history int // sum over all epochs of the shards that were new
}

func newBrittle(t *testing.T, window int) *brittle {
	t.Helper()
	return &brittle{t: t, data: t.TempDir(), run: filepath.Join(t.TempDir(), "run"), indexes: [2]string{t.TempDir(), t.TempDir()}, window: window}
}

const killedLines = 3 // lines per shard

// arrive adds shards to the directory.
func (b *brittle) arrive(shards int) {
	b.t.Helper()
	b.fresh = shards
	for range shards {
		var text bytes.Buffer
		w := gzip.NewWriter(&text)
		for i := range killedLines {
			_, err := fmt.Fprintf(w, "game %d, line %d\n", b.arrived, i)
			require.NoError(b.t, err)
		}
		require.NoError(b.t, w.Close())
		name := filepath.Join(b.data, fmt.Sprintf("game.%d.txt.gz", b.arrived))
		require.NoError(b.t, os.WriteFile(name+".tmp", text.Bytes(), 0o644))
		require.NoError(b.t, os.Rename(name+".tmp", name))
		b.arrived++
	}
}

// command returns a node that starts the epoch, or joins it, and writes it to stdout.
func (b *brittle) command(node int, stdout, stderr *bytes.Buffer) *exec.Cmd {
	cmd := exec.Command(lsiofs, "cat", b.data, "--grow", "--run", b.run, "--index-dir", b.indexes[node], "--hold", "--format", "lines",
		"--window", fmt.Sprintf("%dshards", b.window), "--min-new", fmt.Sprintf("%dshards", b.fresh), "--settle", "200ms", "--epoch", fmt.Sprint(b.next), "--worker", "0/1")
	cmd.Env, cmd.Stdout, cmd.Stderr = environment(b.indexes[node]), stdout, stderr
	return cmd
}

// read makes a node read the epoch.
func (b *brittle) read(node int) error {
	var stdout, stderr bytes.Buffer
	if err := b.command(node, &stdout, &stderr).Run(); err != nil {
		return fmt.Errorf("%w: %s", err, &stderr)
	}
	b.reads[node] = stdout.Bytes()
	return nil
}

// kill makes the first node read the epoch, and kills it before its at-th call.
func (b *brittle) kill(at int) error {
	var stdout, stderr bytes.Buffer
	calls, err := killing.Run(b.command(0, &stdout, &stderr), at, b.data, filepath.Dir(b.run), b.indexes[0])
	if b.killed = errors.Is(err, killing.ErrKilled); b.killed {
		b.kills++
		b.before = &calls[at]
		err = nil
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, &stderr)
	}
	began, err := os.ReadFile(b.epochFile())
	b.began = string(began)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (b *brittle) epochFile() string {
	return filepath.Join(b.run, fmt.Sprintf("epoch-%d", b.next))
}

// requireEpoch compares what both nodes have read with what arrived, and advances to the next
// epoch.
func (b *brittle) requireEpoch() {
	b.t.Helper()
	b.t.Logf("epoch %d: killed before %v", b.next, b.before)
	text, err := os.ReadFile(b.epochFile())
	require.NoError(b.t, err)
	if b.began != "" {
		require.Equal(b.t, b.began, string(text), "the epoch that the one that was killed began")
	}
	var e struct {
		Epoch     int    `json:"epoch"`
		Snapshot  string `json:"snapshot"`
		Records   int    `json:"records"`
		NewShards int    `json:"new_shards"`
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	require.NoError(b.t, json.Unmarshal(line, &e))
	require.Equal(b.t, b.next, e.Epoch)
	require.Equal(b.t, b.fresh, e.NewShards, "each shard is new once")
	b.history += e.NewShards

	var want []string
	for shard := max(0, b.arrived-b.window); shard < b.arrived; shard++ {
		for i := range killedLines {
			want = append(want, fmt.Sprintf("game %d, line %d\n", shard, i))
		}
	}
	slices.Sort(want)
	require.Equal(b.t, want, slices.Sorted(strings.Lines(string(b.reads[0]))), "each record of the window comes once")
	requireSameBytes(b.t, b.reads[0], b.reads[1], "the nodes in epoch %d", b.next)
	require.Equal(b.t, len(want), e.Records)
	snapshot := output(b.t, "gzip", "-dc", filepath.Join(b.run, "snapshots", e.Snapshot+".gz"))
	require.Equal(b.t, min(b.arrived, b.window)+1, bytes.Count(snapshot, []byte("\n")))
	b.next++
	b.requireBounded()
}

// filesOf returns the files that match a pattern.
func filesOf(t *testing.T, pattern ...string) (found []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(pattern...))
	require.NoError(t, err)
	return found
}

// requireBounded checks that no more is left over than allowed: at most one temporary file of the
// run per kill, and nothing else that is not needed.
func (b *brittle) requireBounded() {
	b.t.Helper()
	require.LessOrEqual(b.t, len(filesOf(b.t, b.run, "tmp-*")), b.kills)
	known := 2 + len(filesOf(b.t, b.run, "epoch-*")) + len(filesOf(b.t, b.run, "tmp-*")) // plus run.json and snapshots
	require.Len(b.t, filesOf(b.t, b.run, "*"), known)
	require.LessOrEqual(b.t, len(filesOf(b.t, b.run, "snapshots", "*")), len(filesOf(b.t, b.run, "epoch-*")))
	require.Equal(b.t, b.arrived, len(filesOf(b.t, b.data, "*.gz")))
	require.Equal(b.t, b.arrived+1, len(filesOf(b.t, b.data, "*")), "with .lsiofs")
	require.Equal(b.t, b.arrived, len(filesOf(b.t, b.data, ".lsiofs", "hold", "*", "*")), "a link for each shard")
	for _, dir := range b.indexes {
		require.Empty(b.t, filesOf(b.t, dir, "*.tmp"))
		// A process that indexes something starts a journal. The next process takes over the
		// journal of a killed one.
		journals := len(filesOf(b.t, dir, "*.journal"))
		require.LessOrEqual(b.t, journals, b.next+1)
		require.LessOrEqual(b.t, len(filesOf(b.t, dir, "*")), journals+7, "the newest indexes and layouts")
	}
}

// age makes the run's leftovers a day old, so that the next process removes them.
func (b *brittle) age() {
	b.t.Helper()
	old := time.Now().Add(-25 * time.Hour)
	for _, path := range filesOf(b.t, b.run, "tmp-*") {
		require.NoError(b.t, os.Chtimes(path, old, old))
	}
}

// withAll does something to all cases concurrently.
func withAll(t *testing.T, cases []*brittle, do func(i int, b *brittle) error) {
	t.Helper()
	var group errgroup.Group
	for i, b := range cases {
		group.Go(func() error { return do(i, b) })
	}
	require.NoError(t, group.Wait())
}

// killTogether kills the first node of each case, one call later than in the case before, makes
// both nodes read the epoch, starting with first, and returns how many were killed.
func killTogether(t *testing.T, cases []*brittle, call, first int, seen map[string]bool) (killed int) {
	t.Helper()
	withAll(t, cases, func(i int, b *brittle) error { return b.kill(call + i) })
	withAll(t, cases, func(_ int, b *brittle) error { return b.read(first) })
	withAll(t, cases, func(_ int, b *brittle) error { return b.read(1 - first) })
	for _, b := range cases {
		if b.killed {
			seen[b.before.Name] = true
			killed++
		}
		b.requireEpoch()
	}
	return killed
}

// requireCleaned checks that the run's leftovers of killed processes are removed.
func requireCleaned(t *testing.T, cases []*brittle) {
	t.Helper()
	for _, b := range cases {
		b.age()
		b.next--
	}
	withAll(t, cases, func(_ int, b *brittle) error { return b.read(1) })
	for _, b := range cases {
		require.Empty(t, filesOf(t, b.run, "tmp-*"))
	}
}

// killedBefore are the calls before which a node must have been killed for the test to be
// meaningful.
var killedBefore = []string{"fchmod", "fsync", "linkat", "openat", "pwrite64", "renameat", "unlinkat", "write"}

// A node that starts the first epoch of a run is killed before each of its calls that change a
// file. It or another node comes back, and starts the epoch or finds it. The other node reads the
// same: each record that arrived, once.
func TestNodeKilledBeforeAnyCallLosesNothing(t *testing.T) {
	serve.Tier(t, serve.Night)
	for first, who := range []string{"it comes back", "another one comes"} {
		t.Run(who, func(t *testing.T) {
			seen := map[string]bool{}
			for call, killed := 0, killedTogether; killed == killedTogether; call += killedTogether {
				cases := make([]*brittle, killedTogether)
				for i := range cases {
					cases[i] = newBrittle(t, 8)
					cases[i].arrive(3)
				}
				killed = killTogether(t, cases, call, first, seen)
				requireCleaned(t, cases)
			}
			require.Subset(t, slices.Collect(maps.Keys(seen)), append([]string{"mkdirat"}, killedBefore...))
		})
	}
}

// In a run that has had epochs, and whose shards leave the window, a node that starts an epoch is
// killed before another one of its calls in each epoch, until it was killed before each.
func TestNodeKilledInEveryEpochLosesNothing(t *testing.T) {
	serve.Tier(t, serve.CI)
	seen := map[string]bool{}
	cases := make([]*brittle, killedTogether)
	for i := range cases {
		cases[i] = newBrittle(t, 4)
		cases[i].arrive(3)
	}
	never := math.MaxInt32
	killTogether(t, cases, never, 0, seen)
	for call, killed := 0, killedTogether; killed == killedTogether; call += killedTogether {
		for _, b := range cases {
			b.arrive(1)
		}
		killed = killTogether(t, cases, call, call/killedTogether%2, seen)
	}
	for _, b := range cases {
		require.Equal(t, b.arrived, b.history, "each shard was new once")
	}
	requireCleaned(t, cases)
	require.Subset(t, slices.Collect(maps.Keys(seen)), killedBefore)
}
