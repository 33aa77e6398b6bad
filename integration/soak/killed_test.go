package soak

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// victim is a dataset whose servers are killed, with what is passed on from one of them to the
// next.
type victim struct {
	m          *model
	dir        string // the mount point, the same for all servers
	index      string
	spool      string
	saves      string // the directory of the checkpoint
	flags      []string
	mountTakes time.Duration
}

func (v *victim) checkpoint() string { return filepath.Join(v.saves, "ckpt.json") }

// killings counts how servers ended.
type killings struct {
	signals     map[string]int
	exits       map[int]int
	beforeMount int // killed before they had mounted
	saved       int // rounds in which the checkpoint changed
	healed      int // mounts over the mount that a killed server left
	done        tally
}

// killers is the number of clients of a mount that is killed; each reads the file of one worker.
const killers = 4

func TestKilledAtRandom(t *testing.T) {
	serve.Tier(t, serve.Night)
	needAll(t)
	t.Logf("again: go test -v ./integration/soak -run TestKilledAtRandom -kills %d -soak-seed %d", *kills, *soakSeed)
	began, sharedMemory := time.Now(), names(t, "/dev/shm")
	r := rand.New(rand.NewPCG(*soakSeed, 99))
	var victims []*victim
	for _, k := range []kind{fixed, linesGz, tarsZstd} {
		d := makeDataset(t, k, *soakSeed)
		s := drawSettings(r, len(d.records))
		s["workers"], s["deal"], s["tail"] = killers, "interleaved", "keep"
		v := &victim{m: newModel(d, newReference(t, d), s), dir: t.TempDir(), index: t.TempDir(), spool: t.TempDir(), saves: t.TempDir(), mountTakes: 100 * time.Millisecond}
		v.flags = []string{"--index-dir", v.index, "--spool-dir", v.spool, "--memory", "1MiB"}
		if k.name == linesGz.name {
			v.flags = append(v.flags, "--read", "spool")
		}
		victims = append(victims, v)
	}
	k := &killings{signals: map[string]int{}, exits: map[int]int{}}
	for round := range *kills {
		v := victims[round%len(victims)]
		if r.IntN(4) == 0 {
			v.killBeforeMount(t, r, k)
		} else {
			v.killServing(t, r, k)
		}
	}
	for _, v := range victims {
		v.finish(t, k)
	}
	requireGone(t, "/dev/shm", without(names(t, "/dev/shm"), sharedMemory))
	t.Logf("%d servers killed in %v: by %v, %d of them before they had mounted; exit codes %v (-1: by SIGKILL)\n  %v\n  %d mounts in the place of a dead one, %d rounds saved a position that the next ones went on from",
		*kills, time.Since(began).Round(time.Second), k.signals, k.beforeMount, k.exits, &k.done, k.healed, k.saved)
}

// start mounts again where the last server died, at the last saved position.
func (v *victim) start(t *testing.T, k *killings) *mounted {
	t.Helper()
	if serve.IsMount(v.dir) {
		k.healed++
	}
	var p position
	flags := v.flags
	if b, err := os.ReadFile(v.checkpoint()); err == nil {
		d, err := parse(b)
		require.NoError(t, err, "the checkpoint that was saved is whole: %q", b)
		p = d.position()
		flags = append(slices.Clone(flags), "--resume", v.checkpoint())
	}
	s := startServer(t, v.m, v.dir, flags...)
	s.now.position = p
	return s
}

// killBeforeMount kills a server while it builds its index, or when it has just mounted.
func (v *victim) killBeforeMount(t *testing.T, r *rand.Rand, k *killings) {
	if r.IntN(3) > 0 { // otherwise it continues with what a killed one left
		require.NoError(t, os.RemoveAll(v.index))
	}
	s := v.start(t, k)
	time.Sleep(time.Duration(r.Int64N(int64(v.mountTakes))))
	if !strings.Contains(s.Log.String(), "mounted ") {
		k.beforeMount++
	}
	s.kill(t, r, k)
	v.requireSound(t, s)
}

// killServing kills a server while clients read, save and restore.
func (v *victim) killServing(t *testing.T, r *rand.Rand, k *killings) {
	before, _ := os.ReadFile(v.checkpoint())
	began := time.Now()
	s := v.start(t, k)
	require.NoError(t, s.WaitUntilMounted(), "the mount after a kill")
	v.mountTakes = time.Since(began)
	c := &doomed{mounted: s, v: v}
	group := errgroup.Group{}
	for w := range killers {
		seed := r.Uint64()
		group.Go(func() error { return c.run(w, rand.New(rand.NewPCG(seed, 0))) })
	}
	time.Sleep(time.Duration(20+r.IntN(500)) * time.Millisecond)
	c.dying.Store(true)
	if s.signal(t, r, k); r.IntN(2) == 0 {
		time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond) // clients continue as long as they can
	}
	c.stop.Store(true)
	require.NoError(t, group.Wait(), "soak-seed %d", *soakSeed)
	s.requireEnd(t, k)
	v.requireSound(t, s)
	if after, err := os.ReadFile(v.checkpoint()); err == nil && string(after) != string(before) {
		k.saved++
	}
	k.done.add(&s.done)
}

// kill ends a server without readers.
func (s *mounted) kill(t *testing.T, r *rand.Rand, k *killings) {
	t.Helper()
	s.signal(t, r, k)
	s.requireEnd(t, k)
}

// signal sends one of the signals that end a server, or two.
func (s *mounted) signal(t *testing.T, r *rand.Rand, k *killings) {
	t.Helper()
	sig := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT}[r.IntN(3)]
	name := map[syscall.Signal]string{syscall.SIGKILL: "SIGKILL", syscall.SIGTERM: "SIGTERM", syscall.SIGINT: "SIGINT"}[sig]
	ignoreGone(t, s.Cmd.Process.Signal(sig))
	if sig != syscall.SIGKILL && r.IntN(4) == 0 {
		time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
		ignoreGone(t, s.Cmd.Process.Signal(sig))
		name += " twice"
	}
	k.signals[name]++
}

// ignoreGone is for signals to a process that may have ended by itself.
func ignoreGone(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, os.ErrProcessDone) {
		require.NoError(t, err)
	}
}

// requireEnd waits for the end of a server that was killed, and checks what it leaves behind.
func (s *mounted) requireEnd(t *testing.T, k *killings) {
	t.Helper()
	require.True(t, s.Ended(endLimit), "the server of %s does not end: %s", s.m.d.name, s.Log)
	code := s.Cmd.ProcessState.ExitCode()
	k.exits[code]++
	// Killed; unmounted; unmounted under readers; interrupted before it was mounted.
	require.Contains(t, []int{-1, 0, 4, 130}, code, "%s", s.Log)
	early := s.overDead && !strings.Contains(s.Log.String(), "mounted ") // the dead mount may still be there
	if code >= 0 && !early {
		require.False(t, serve.IsMount(s.Dir), "a server that was not killed leaves a mount; it ended with %d: %s", code, s.Log)
	}
	require.NotContains(t, s.Log.String(), "DATA RACE")
	require.NotContains(t, s.Log.String(), "panic")
}

// requireSound checks what a dead server may have left.
func (v *victim) requireSound(t *testing.T, s *mounted) {
	t.Helper()
	requireEmpty(t, s.tmp)
	requireEmpty(t, v.spool)
	for _, name := range names(t, v.saves) {
		require.Equal(t, "ckpt.json", name, "a save leaves nothing beside the checkpoint")
	}
}

// finish mounts for the last time, reads the rest of each file, and unmounts.
func (v *victim) finish(t *testing.T, k *killings) {
	s := v.start(t, k)
	require.NoError(t, s.WaitUntilMounted())
	for w := range killers {
		f, want, _, err := s.openWorker(w)
		require.NoError(t, err)
		buf, off := make([]byte, 1<<20), int64(0)
		for err == nil {
			var n int
			n, err = s.compareAt(f, want, buf, off)
			off += int64(n)
		}
		require.ErrorIs(t, err, io.EOF, "%s", f.Name())
		require.NoError(t, f.Close())
	}
	s.end(t)
	v.requireSound(t, s)
	for _, name := range names(t, v.index) {
		require.NotContains(t, []string{".tmp", ".journal"}, filepath.Ext(name), "an index directory that killed servers have left heaps in")
	}
	k.done.add(&s.done)
	serveNothing(t, v.dir)
	var found struct {
		Shards int `json:"shards"`
		Reused int `json:"shards_reused"`
	}
	out, err := exec.Command(lsiofs, append([]string{"index", v.m.d.dir, "--json", "--index-dir", v.index}, v.m.d.flags...)...).Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &found))
	require.NotZero(t, found.Shards)
	require.Equal(t, found.Shards, found.Reused, "the index is whole")
}

// serveNothing checks that a mount point is an ordinary directory again.
func serveNothing(t *testing.T, dir string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/mounts")
	require.NoError(t, err)
	require.NotContains(t, string(mounts), dir)
	require.Empty(t, names(t, dir))
}

// names returns the names in a directory, none if it does not exist.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// requireGone checks that nothing is left of what appeared in a directory. There may be files of
// other programs, which they remove at some time.
func requireGone(t *testing.T, dir string, came []string) {
	t.Helper()
	var left []string
	require.Eventually(t, func() bool {
		left = without(came, without(came, names(t, dir)))
		return len(left) == 0
	}, endLimit, 100*time.Millisecond, "left in %s: %q", dir, &left)
}

// without returns the elements of list that are not in others.
func without(list, others []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(name string) bool { return slices.Contains(others, name) })
}

func (t *tally) add(o *tally) {
	for _, c := range []struct{ sum, more *atomic.Int64 }{
		{&t.restores, &o.restores}, {&t.saves, &o.saves}, {&t.refusals, &o.refusals}, {&t.openings, &o.openings},
		{&t.reads, &o.reads}, {&t.bytes, &o.bytes}, {&t.stale, &o.stale}, {&t.signals, &o.signals},
	} {
		c.sum.Add(c.more.Load())
	}
}
