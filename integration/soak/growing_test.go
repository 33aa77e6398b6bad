package soak

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/integration/serve"
)

var growFor = flag.Duration("grow", time.Minute, "how long the soak of a dataset that grows lasts at least")

const (
	growingMemory  = 64 << 20
	beyondMemory   = 150 << 20 // what a mount may hold on top of --memory, with up to 10⁵ shards
	shardMemory    = 1 << 10   // and for each shard above 10⁵: about 700 bytes, and what is garbage
	growingReaders = 2         // of each node
	checkedEpochs  = 2         // that the reference reads as well, at the end
)

// grower is a growing dataset, and two nodes that train on it: two mounts with separate index
// directories.
type grower struct {
	t        *testing.T
	arrivals *arrivals
	run      string
	nodes    [2]*node

	epochs, records, kills, readersKilled, resumed, retried, deleted atomic.Int64
}

// node is a mount that is started again after each kill.
type node struct {
	g            *grower
	point, index string
	m            *model
	workers      int // of the present server

	mu    sync.RWMutex // held for writing while the server is killed and started again
	s     *mounted
	kills atomic.Int64
}

// TestGrowing makes shards arrive at 1000 a second, in all the ways that programs write them, and
// deletes those that no epoch needs any more. Two nodes with two readers each read epochs of a few
// seconds, one after the other. One node is killed and started again, sometimes from a checkpoint
// and with another number of workers; readers are killed, too. Every byte is what its writer wrote.
// Every epoch has each record of its snapshot once, in the same order on both nodes. The memory of
// the node that lives stays within the documented bound.
func TestGrowing(t *testing.T) {
	serve.Tier(t, serve.Night)
	needAll(t)
	t.Logf("again: go test -v ./integration/soak -run TestGrowing -grow %v -soak-seed %d -timeout 0", *growFor, *soakSeed)
	r := rand.New(rand.NewPCG(*soakSeed, 5))
	g := &grower{t: t, arrivals: &arrivals{dir: t.TempDir(), staged: t.TempDir(), seed: *soakSeed}, run: filepath.Join(t.TempDir(), "run")}
	s := settings{"seed": r.IntN(1 << 30), "shuffle": "reservoir", "shuffle-size": 5000, "workers": growingReaders, "batch": 3}
	d := &dataset{name: "growing", dir: g.arrivals.dir, ext: ".txt", flags: []string{"--format", "lines"}}

	began := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	group, ctx := errgroup.WithContext(ctx)
	defer group.Wait()
	defer cancel() // before the wait, or a failing test waits forever
	writing, stopWriting := context.WithCancel(ctx)
	defer stopWriting()
	group.Go(func() error { return g.arrivals.write(writing) })
	for i := range g.nodes {
		g.nodes[i] = &node{g: g, point: t.TempDir(), index: t.TempDir(), m: newModel(d, nil, s)}
		require.NoError(t, g.nodes[i].start(growingReaders))
	}
	group.Go(func() error { return g.clean(writing) })
	watching, stopWatching := context.WithCancel(ctx)
	var samples []sample
	group.Go(func() (err error) {
		samples, err = g.nodes[0].s.watch(watching)
		return err
	})

	indexed := &delays{index: g.nodes[0].index, data: g.arrivals.dir}
	group.Go(func() error { return indexed.watch(watching) })

	epoch := g.nodes[1].now(t)
	for ; ctx.Err() == nil && (time.Since(began) < *growFor || g.kills.Load() < 3); epoch++ {
		g.everybodyReads(ctx, epoch, r)
		if epoch%4 == 3 {
			g.resumes(ctx, epoch, r)
		}
	}
	stopWriting()
	stopWatching()
	require.NoError(t, group.Wait())
	for e := epoch - checkedEpochs; e < epoch; e++ {
		g.requireReference(e, d, s)
	}
	most := slices.MaxFunc(samples, func(a, b sample) int { return a.MemoryBytes - b.MemoryBytes })
	t.Logf("%d epochs, %d records read and compared; %v; %d shards deleted; %d kills of a node, %d of readers; %d resumed, %d readings began anew",
		g.epochs.Load(), g.records.Load(), g.arrivals, g.deleted.Load(), g.kills.Load(), g.readersKilled.Load(), g.resumed.Load(), g.retried.Load())
	t.Logf("  from a shard's close to its index: %v", indexed)
	third := len(samples) / 3
	for _, f := range figures {
		t.Logf("  %-14s %5d in the second third, %5d in the last", f.name, f.median(samples[third:2*third])/f.scale, f.median(samples[2*third:])/f.scale)
	}
	beyond := beyondMemory + max(g.arrivals.count()-1e5, 0)*shardMemory
	t.Logf("  most memory    %5d MiB, of %d and %d", most.MemoryBytes>>20, growingMemory>>20, beyond>>20)
	if !serve.RaceBuilt {
		require.LessOrEqual(t, most.MemoryBytes, growingMemory+beyond)
	}
	for _, n := range g.nodes {
		n.s.end(t)
	}
}

// start mounts, from a checkpoint if more names one. The caller holds n.mu, or has the node to
// itself.
func (n *node) start(workers int, more ...string) error {
	m := newModel(n.m.d, nil, settings{})
	for name, value := range n.m.s {
		m.s[name] = value
	}
	m.s["workers"] = workers
	n.workers = workers
	n.s = startServer(n.g.t, m, n.point, append(more, "--grow", "--run", n.g.run, "--index-dir", n.index, "--memory", fmt.Sprint(growingMemory),
		"--window", "5000shards", "--min-new", "1500shards", "--settle", "3s", "--spool-dir", n.index)...)
	return n.s.WaitUntilMounted()
}

// now returns the epoch of the node's worker files.
func (n *node) now(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile(n.s.path("checkpoint"))
	require.NoError(t, err)
	d, err := parse(b)
	require.NoError(t, err)
	return int(d.Epoch)
}

// kill kills the server, as when a machine dies, and starts it again.
func (n *node) kill(workers int, more ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kills.Add(1)
	n.g.kills.Add(1)
	if err := n.s.Cmd.Process.Kill(); err != nil {
		return err
	}
	<-n.s.Exited
	return n.start(workers, more...)
}

// read reads a file once it exists. If the node is killed meanwhile it starts over.
func (n *node) read(ctx context.Context, way func(path string) ([]byte, error), format string, args ...any) ([]byte, error) {
	for ctx.Err() == nil {
		kills := n.alive()
		b, err := way(filepath.Join(n.point, fmt.Sprintf(format, args...)))
		switch {
		case err == nil:
			return b, nil
		case n.kills.Load() != kills || errors.Is(err, errKilled):
			n.g.retried.Add(1)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("%w; status: %s", err, n.status())
		default: // not there yet
			pause(ctx, 50*time.Millisecond)
		}
	}
	return nil, ctx.Err()
}

// alive waits until the server runs, and returns how often it has been killed.
func (n *node) alive() (kills int64) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.kills.Load()
}

func (n *node) status() string {
	b, err := os.ReadFile(n.s.path("status"))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// errKilled means that the reader was killed.
var errKilled = errors.New("the reader was killed")

// program returns a function that reads a file with a program that writes it to stdout; now and
// then the program is killed.
func (g *grower) program(r *rand.Rand, name string, args ...string) func(path string) ([]byte, error) {
	return func(path string) ([]byte, error) {
		if _, err := os.Stat(path); err != nil {
			return nil, err
		}
		cmd := exec.Command(name, append(args, path)...)
		cmd.Env = environment()
		var out, said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &said
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		killed := false
		if r.IntN(4) == 0 {
			time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
			killed = cmd.Process.Signal(syscall.SIGKILL) == nil
		}
		err := cmd.Wait()
		if err != nil && killed {
			g.readersKilled.Add(1)
			return nil, errKilled
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w: %s", name, path, err, said.String())
		}
		return out.Bytes(), nil
	}
}

const readByPython = "import sys\nwith open(sys.argv[1], 'rb') as f:\n    while b := f.read(100_003): sys.stdout.buffer.write(b)"

// everybodyReads makes all readers of both nodes read an epoch, and compares the results. Meanwhile
// the second node may be killed.
func (g *grower) everybodyReads(ctx context.Context, epoch int, r *rand.Rand) {
	ways := [2][growingReaders]func(string) ([]byte, error){
		{os.ReadFile, g.program(rand.New(rand.NewPCG(r.Uint64(), 0)), "cat")},
		{os.ReadFile, g.program(rand.New(rand.NewPCG(r.Uint64(), 0)), "python3", "-c", readByPython)},
	}
	var got [2][growingReaders][]byte
	group, ctx := errgroup.WithContext(ctx)
	for i, n := range g.nodes {
		for w := range growingReaders {
			group.Go(func() (err error) {
				got[i][w], err = n.read(ctx, ways[i][w], "epoch-%d/worker-%d-of-%d.txt", epoch, w, growingReaders)
				return err
			})
		}
	}
	if r.IntN(3) == 0 {
		wait := time.Duration(r.IntN(3000)) * time.Millisecond
		group.Go(func() error {
			pause(ctx, wait)
			return g.nodes[1].kill(growingReaders)
		})
	}
	require.NoError(g.t, group.Wait(), "epoch %d, soak-seed %d", epoch, *soakSeed)
	for w := range growingReaders {
		require.Equal(g.t, sha256.Sum256(got[0][w]), sha256.Sum256(got[1][w]), "epoch %d, worker %d: the nodes read other bytes; soak-seed %d", epoch, w, *soakSeed)
	}
	g.requireSnapshot(epoch, bytes.Join(got[0][:], nil))
	g.epochs.Add(1)
}

// shards returns the shards of an epoch's snapshot.
func (g *grower) shards(epoch int) (fingerprint string, names []string) {
	g.t.Helper()
	b, err := os.ReadFile(filepath.Join(g.run, fmt.Sprintf("epoch-%d", epoch)))
	require.NoError(g.t, err)
	_, after, _ := strings.Cut(string(b), `"snapshot":"`)
	fingerprint = after[:64]
	text, err := exec.Command("gzip", "-dc", filepath.Join(g.run, "snapshots", fingerprint+".gz")).Output()
	require.NoError(g.t, err)
	for line := range strings.Lines(string(text)) {
		if fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4); len(fields) == 4 && strings.HasPrefix(fields[3], "game.") {
			names = append(names, fields[3])
		}
	}
	return fingerprint, names
}

// requireSnapshot compares an epoch's records with what the writers of its shards wrote: each must
// be there once.
func (g *grower) requireSnapshot(epoch int, all []byte) {
	g.t.Helper()
	_, names := g.shards(epoch)
	require.NotEmpty(g.t, names)
	want := map[string]bool{}
	for _, name := range names {
		number, err := numberOf(name)
		require.NoError(g.t, err)
		for i := range linesPerShard {
			want[string(g.arrivals.line(number, i))] = true
		}
	}
	for line := range strings.Lines(string(all)) {
		require.True(g.t, want[line], "epoch %d has a record that is not of its snapshot, or came twice: %.80q; soak-seed %d", epoch, line, *soakSeed)
		delete(want, line)
		g.records.Add(1)
	}
	require.Empty(g.t, want, "records of epoch %d that did not come; soak-seed %d", epoch, *soakSeed)
}

// resumes reads a part of an epoch on the second node, saves the position, kills the node, and
// reads the rest with another number of workers: together they are the epoch.
func (g *grower) resumes(ctx context.Context, epoch int, r *rand.Rand) {
	n := g.nodes[1]
	require.NoError(g.t, writeThrough(n.s.path("checkpoint"), fmt.Appendf(nil, "{\"epoch\": %d}\n", epoch)))
	var came []byte
	for w := range n.workers {
		b, err := os.ReadFile(n.s.path("epoch-%d/worker-%d-of-%d.txt", epoch, w, n.workers))
		require.NoError(g.t, err)
		part := b[:bytes.LastIndexByte(b[:r.IntN(len(b)+1)], '\n')+1]
		f, err := os.Open(n.s.path("worker-%d.txt", w))
		require.NoError(g.t, err)
		got := make([]byte, len(part))
		if len(got) > 0 {
			_, err = f.ReadAt(got, 0)
			require.NoError(g.t, err)
		}
		require.NoError(g.t, f.Close())
		require.True(g.t, bytes.Equal(part, got), "epoch %d, worker %d: the beginning is another one", epoch, w)
		came = append(came, got...)
	}
	doc, err := n.s.save()
	require.NoError(g.t, err)
	saved := filepath.Join(g.t.TempDir(), "ckpt.json")
	require.NoError(g.t, os.WriteFile(saved, doc, 0o600))
	workers := 1 + r.IntN(5)
	require.NoError(g.t, n.kill(workers, "--resume", saved))
	for w := range workers {
		b, err := n.read(ctx, os.ReadFile, "worker-%d.txt", w)
		require.NoError(g.t, err)
		came = append(came, b...)
	}
	g.requireSnapshot(epoch, came)
	g.resumed.Add(1)
}

// clean deletes what no epoch needs any more, as described in the manual, until ctx ends.
func (g *grower) clean(ctx context.Context) error {
	for ; ctx.Err() == nil; pause(ctx, 2*time.Second) {
		cmd := exec.Command(lsiofs, "snapshots", g.run, "--unused", g.arrivals.dir, "--keep", "4")
		cmd.Env = environment()
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("lsiofs snapshots: %w: %s", err, said(err))
		}
		for path := range strings.Lines(string(out)) {
			if err := os.Remove(strings.TrimSuffix(path, "\n")); err != nil {
				return err
			}
			g.deleted.Add(1)
		}
	}
	return nil
}

// said returns what a program wrote to stderr.
func said(err error) string {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(e.Stderr)
	}
	return ""
}

// requireReference compares an epoch, as one worker reads it on each node, with the second
// implementation, which reads the same shards in a separate directory.
func (g *grower) requireReference(epoch int, of *dataset, s settings) {
	g.t.Helper()
	fingerprint, names := g.shards(epoch)
	d := &dataset{name: fingerprint, dir: g.t.TempDir(), ext: of.ext, flags: of.flags, records: map[string][]byte{}}
	for _, name := range names {
		number, err := numberOf(name)
		require.NoError(g.t, err)
		require.NoError(g.t, os.WriteFile(filepath.Join(d.dir, name), g.arrivals.content(number), 0o600))
		for i := range linesPerShard {
			d.records[recordID(name, i)] = g.arrivals.line(number, i)
		}
	}
	order, err := newModel(d, newReference(g.t, d), s).order(uint64(epoch))
	require.NoError(g.t, err)
	h := sha256.New()
	for _, id := range order {
		h.Write(d.records[id])
	}
	for i, n := range g.nodes {
		b, err := os.ReadFile(n.s.path("epoch-%d/worker-0-of-1.txt", epoch))
		require.NoError(g.t, err)
		sum := sha256.Sum256(b)
		require.Equal(g.t, h.Sum(nil), sum[:], "epoch %d at node %d is not as the reference has it; soak-seed %d", epoch, i, *soakSeed)
	}
}
