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

// killedTogether is how many cases run at the same time. A process mostly waits for its files
// to settle.
const killedTogether = 16

// brittle is a directory that games arrive in, and two nodes, each with an index directory of
// its own, that take the epochs of one run. The first one is killed.
type brittle struct {
	t              *testing.T
	data, run      string
	indexes        [2]string
	window         int // in shards
	arrived, fresh int // shards, and those since the epoch before
	next           int // the epoch that is to be taken

	killed  bool // in this epoch
	kills   int  // in all
	before  *killing.Call
	began   string // the epoch's file after the kill, "" where it was not taken
	reads   [2][]byte
	history int // shards that were new in an epoch, over all epochs
}

func newBrittle(t *testing.T, window int) *brittle {
	t.Helper()
	return &brittle{t: t, data: t.TempDir(), run: filepath.Join(t.TempDir(), "run"), indexes: [2]string{t.TempDir(), t.TempDir()}, window: window}
}

const killedLines = 3 // of each shard

// arrive puts shards into the directory.
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

// command is a node that takes the epoch, or joins it, and writes it to stdout.
func (b *brittle) command(node int, stdout, stderr *bytes.Buffer) *exec.Cmd {
	cmd := exec.Command(lsiofs, "cat", b.data, "--grow", "--run", b.run, "--index-dir", b.indexes[node], "--hold", "--format", "lines",
		"--window", fmt.Sprintf("%dshards", b.window), "--min-new", fmt.Sprintf("%dshards", b.fresh), "--settle", "200ms", "--epoch", fmt.Sprint(b.next), "--worker", "0/1")
	cmd.Env, cmd.Stdout, cmd.Stderr = environment(b.indexes[node]), stdout, stderr
	return cmd
}

// read has a node read the epoch.
func (b *brittle) read(node int) error {
	var stdout, stderr bytes.Buffer
	if err := b.command(node, &stdout, &stderr).Run(); err != nil {
		return fmt.Errorf("%w: %s", err, &stderr)
	}
	b.reads[node] = stdout.Bytes()
	return nil
}

// kill has the first node read the epoch, and kills it before its at-th call.
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

// requireEpoch holds what both nodes have read against what arrived, and goes on to the next
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

// filesOf gives the files of a pattern.
func filesOf(t *testing.T, pattern ...string) (found []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(pattern...))
	require.NoError(t, err)
	return found
}

// requireBounded holds what is left against what may be: at most one temporary file of the run
// for each kill, and nothing else that nobody needs.
func (b *brittle) requireBounded() {
	b.t.Helper()
	require.LessOrEqual(b.t, len(filesOf(b.t, b.run, "tmp-*")), b.kills)
	known := 2 + len(filesOf(b.t, b.run, "epoch-*")) + len(filesOf(b.t, b.run, "tmp-*")) // and run.json, snapshots
	require.Len(b.t, filesOf(b.t, b.run, "*"), known)
	require.LessOrEqual(b.t, len(filesOf(b.t, b.run, "snapshots", "*")), len(filesOf(b.t, b.run, "epoch-*")))
	require.Equal(b.t, b.arrived, len(filesOf(b.t, b.data, "*.gz")))
	require.Equal(b.t, b.arrived+1, len(filesOf(b.t, b.data, "*")), "with .lsiofs")
	require.Equal(b.t, b.arrived, len(filesOf(b.t, b.data, ".lsiofs", "hold", "*", "*")), "a link for each shard")
	for _, dir := range b.indexes {
		require.Empty(b.t, filesOf(b.t, dir, "*.tmp"))
		// A process that indexes something begins a journal; what one that was killed has begun
		// becomes the next one's.
		journals := len(filesOf(b.t, dir, "*.journal"))
		require.LessOrEqual(b.t, journals, b.next+1)
		require.LessOrEqual(b.t, len(filesOf(b.t, dir, "*")), journals+7, "the newest indexes and layouts")
	}
}

// age makes what was left in the run a day old: whoever comes next removes it.
func (b *brittle) age() {
	b.t.Helper()
	old := time.Now().Add(-25 * time.Hour)
	for _, path := range filesOf(b.t, b.run, "tmp-*") {
		require.NoError(b.t, os.Chtimes(path, old, old))
	}
}

// withAll does something to all cases at the same time.
func withAll(t *testing.T, cases []*brittle, do func(i int, b *brittle) error) {
	t.Helper()
	var group errgroup.Group
	for i, b := range cases {
		group.Go(func() error { return do(i, b) })
	}
	require.NoError(t, group.Wait())
}

// killTogether kills the first node of each case before the call after the one of the case
// before, has both nodes read the epoch, one of them first, and says how many were killed.
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

// requireCleaned says that what those who were killed left in a run does not stay there.
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

// killedBefore are the calls that a node must have been killed before, for the test to mean
// something.
var killedBefore = []string{"fchmod", "fsync", "linkat", "openat", "pwrite64", "renameat", "unlinkat", "write"}

// A node that begins the first epoch of a run is killed before each of its calls that change a
// file. It comes back, or another node comes, and begins the epoch or finds it; and the other
// one reads the same: each record that arrived, once.
func TestANodeThatIsKilledBeforeAnyCallLosesNothing(t *testing.T) {
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

// In a run that has had epochs, whose shards leave the window, epoch after epoch is begun by a
// node that is killed before another one of its calls, until it was killed before each.
func TestANodeThatIsKilledInEveryEpochLosesNothing(t *testing.T) {
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
