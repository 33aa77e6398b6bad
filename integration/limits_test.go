package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/integration/serve"
)

func TestFewDescriptorsAreEnough(t *testing.T) {
	prlimit := need(t, "prlimit")
	d := plain(t, "jsonl", 60)
	s := usual()
	s.Lanes, s.Workers = 20, 4
	ref := newReference(t, d)
	m := startMountBy(t, []string{prlimit, "--nofile=64:64"}, d, t.TempDir(), s.flags()...)
	require.NoError(t, m.waitUntilMounted())
	var group errgroup.Group
	for w := range s.Workers {
		want := ref.data(s, w)
		group.Go(func() error {
			got, err := os.ReadFile(m.path("worker-%d.jsonl", w))
			if err == nil && string(got) != string(want) {
				err = fmt.Errorf("worker %d: other bytes", w)
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
}

func TestNoDescriptorLeftIsEIOUntilThereAreSomeAgain(t *testing.T) {
	d := big(t)
	s := bigSettings()
	s.Shuffle = "none"
	ref := newReference(t, d)
	m := mountDataset(t, d, s, "--memory", "1MiB", "--direct", "off")
	// Opened while that is possible: opening also needs a descriptor for /proc.
	f, err := os.Open(m.path("worker-0.bin"))
	require.NoError(t, err)
	defer f.Close()

	limit := func(n uint64) {
		var most unix.Rlimit
		require.NoError(t, unix.Prlimit(m.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &most))
		require.NoError(t, unix.Prlimit(m.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: most.Max}, nil))
	}
	limit(3)
	failed := requireEIOOrRight(t, ref.data(s, 0), f.Name())
	m.requireAlive()
	t.Logf("%d reads failed", failed)
	if failed > 0 {
		require.Contains(t, string(m.read("status"))+m.log.String(), "ulimit -n", "the reason is said")
	}

	limit(1024)
	for w := range s.Workers {
		requireFile(t, ref.data(s, w), m.path("worker-%d.bin", w))
	}
}

// memoryGroup makes a control group with a memory limit. It returns the group's directory, and how
// often the kernel has killed in it.
func memoryGroup(t *testing.T, limit int) (dir string, killed func() string) {
	t.Helper()
	file, events, parent := "memory.limit_in_bytes", "memory.oom_control", "/sys/fs/cgroup/memory"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil { // version 2
		file, events, parent = "memory.max", "memory.events", "/sys/fs/cgroup"
		_ = os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+memory"), 0o644) // it may be enabled already
	}
	// A unique name: other tests may run here, or have been killed before they removed theirs.
	dir, err := os.MkdirTemp(parent, "lsiofs-test-")
	if err != nil {
		missing(t, "no control group can be made: %v", err)
	}
	t.Cleanup(func() {
		// It is empty once the kernel has cleaned up after the server.
		until(t, nil, func() bool { return os.Remove(dir) == nil })
	})
	if err := os.WriteFile(filepath.Join(dir, file), fmt.Append(nil, limit), 0o644); err != nil {
		missing(t, "no memory limit can be set: %v", err)
	}
	return dir, func() string {
		b, err := os.ReadFile(filepath.Join(dir, events))
		require.NoError(t, err)
		return string(regexp.MustCompile(`(?m)^oom_kill \d+$`).Find(b))
	}
}

// TestAControlGroupOfTheBudgetAnd200MiBIsEnough reads far more than the limit, which includes the
// page cache.
func TestAControlGroupOfTheBudgetAnd200MiBIsEnough(t *testing.T) {
	serve.Alone(t)
	withoutRace(t)
	const recordBytes, budget = 96_000, 32 << 20
	d := stamped(t, 24, 256, recordBytes)
	for _, direct := range []string{"auto", "on"} {
		t.Run("direct "+direct, func(t *testing.T) {
			group, killed := memoryGroup(t, budget+200<<20)
			s := usual()
			s.ShuffleSize, s.Lanes, s.ChunkBytes, s.ChunkRecords, s.Workers = 2048, 16, 1<<20, 128, 4
			enter := []string{"sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, group}
			m := startMountBy(t, enter, d, t.TempDir(), append(s.flags(), "--memory", fmt.Sprint(budget), "--direct", direct)...)
			require.NoError(t, m.waitUntilMounted())
			var readers errgroup.Group
			for w := range s.Workers {
				readers.Go(m.stampReader(recordBytes, 1<<20, w).all)
			}
			require.NoError(t, readers.Wait())
			m.requireAlive()
			require.Equal(t, "oom_kill 0", killed())
		})
	}
}

// TestNothingDependsOnTheClock has shards from the distant past and the future, a server whose
// other clocks differ from everyone else's, and an index directory that was written while the clock
// was wrong.
func TestNothingDependsOnTheClock(t *testing.T) {
	d := plain(t, "jsonl", 6)
	shards, err := filepath.Glob(filepath.Join(d.dir, "part-*", "*"))
	require.NoError(t, err)
	for i, shard := range shards {
		at := []time.Time{time.Unix(0, 0), time.Date(2100, 1, 1, 0, 0, 0, 1, time.UTC), time.Date(1950, 1, 1, 0, 0, 0, 0, time.UTC)}[i%3]
		require.NoError(t, os.Chtimes(shard, at, at))
	}
	s := usual()
	ref := newReference(t, d)
	dir := t.TempDir()
	look := func(starter ...string) {
		m := startMountBy(t, starter, d, t.TempDir(), append(s.flags(), "--index-dir", dir)...)
		require.NoError(t, m.waitUntilMounted())
		for w := range s.Workers {
			requireFile(t, ref.data(s, w), m.path("worker-%d.jsonl", w))
		}
		m.restore([]byte(`{"epoch": 2}`))
		epoch := s
		epoch.Epoch = 2
		requireFile(t, ref.data(epoch, 1), m.path("worker-1.jsonl"))
		m.end()
	}
	look()
	require.Equal(t, 6, index(t, d, "--index-dir", dir).Reused)

	files := indexFiles(t, dir)
	require.NotEmpty(t, files)
	for i, file := range files {
		at := time.Now().AddDate([]int{-80, 100}[i%2], 0, 0)
		require.NoError(t, os.Chtimes(file, at, at))
	}
	look()
	require.Equal(t, 6, index(t, d, "--index-dir", dir).Reused)

	if r := command(t, nil, nil, need(t, "unshare"), "-T", "--monotonic", "1", "true"); r.code != 0 {
		missing(t, "there are no namespaces of time: %s", strings.TrimSpace(r.stderr))
	}
	look("unshare", "-T", "--monotonic", "300000000", "--boottime", "300000000")
}
