package cgroup

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// machine writes files below a directory that looks like a machine's root.
func machine(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		at := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, []byte(text), 0o644))
	}
	return root
}

const (
	unifiedMount = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
	memoryMount  = "31 23 0:27 / /sys/fs/cgroup/memory rw,nosuid shared:5 - cgroup cgroup rw,memory\n32 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
)

func TestLowestLimitOfAncestorsCounts(t *testing.T) {
	const none = int64(math.MaxInt64)
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"there are no control groups": {map[string]string{}, none},
		"version 2 without a limit": {map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "proc/self/mountinfo": unifiedMount, "sys/fs/cgroup/a/memory.max": "max\n", "sys/fs/cgroup/a/b/memory.max": "max\n",
		}, none},
		"version 2, the group above allows less": {map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "proc/self/mountinfo": unifiedMount, "sys/fs/cgroup/a/memory.max": "100\n", "sys/fs/cgroup/a/b/memory.max": "200\n",
		}, 100},
		"version 2, the own group allows less": {map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "proc/self/mountinfo": unifiedMount, "sys/fs/cgroup/a/memory.max": "300\n", "sys/fs/cgroup/a/b/memory.max": "200\n",
		}, 200},
		"version 2, in a container with a namespace of its own": {map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": unifiedMount, "sys/fs/cgroup/memory.max": "200\n",
		}, 200},
		"version 2, the mount is of the container's own group": {map[string]string{
			"proc/self/cgroup": "0::/docker/x\n", "proc/self/mountinfo": "30 23 0:26 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n", "sys/fs/cgroup/memory.max": "200\n",
		}, 200},
		"version 2, the process has been moved out of what is mounted": {map[string]string{
			"proc/self/cgroup": "0::/../y\n", "proc/self/mountinfo": unifiedMount, "sys/fs/cgroup/memory.max": "200\n",
		}, 200},
		"version 1": {map[string]string{
			"proc/self/cgroup": "4:cpu:/c\n5:memory:/a\n0::/\n", "proc/self/mountinfo": memoryMount,
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "500\n",
		}, 500},
		"version 1 without a limit": {map[string]string{
			"proc/self/cgroup": "5:memory:/\n", "proc/self/mountinfo": memoryMount, "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, none},
		"version 1, a group that is not visible allows less": {map[string]string{
			"proc/self/cgroup": "5:cpu,memory:/pod/c\n", "proc/self/mountinfo": "31 23 0:27 /pod/c /sys/fs/cgroup/cpu,memory ro - cgroup cgroup rw,cpu,memory\n",
			"sys/fs/cgroup/cpu,memory/memory.limit_in_bytes": "900\n", "sys/fs/cgroup/cpu,memory/memory.stat": "cache 5\nhierarchical_memory_limit 300\n",
		}, 300},
		"both versions at once": {map[string]string{
			"proc/self/cgroup": "5:memory:/a\n0::/b\n", "proc/self/mountinfo": unifiedMount + memoryMount,
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "500\n", "sys/fs/cgroup/b/memory.max": "400\n",
		}, 400},
		"what is no number": {map[string]string{
			"proc/self/cgroup": "0::/\nx\n", "proc/self/mountinfo": "x\n" + unifiedMount, "sys/fs/cgroup/memory.max": "-5\n",
		}, none},
	} {
		require.Equal(t, c.want, at(machine(t, c.files)).MemoryBytes(), name)
	}
}

func TestLimitsAreReportedByName(t *testing.T) {
	root := machine(t, map[string]string{
		"proc/self/cgroup": "5:memory:/m\n0::/a/b\n", "proc/self/mountinfo": unifiedMount + memoryMount,
		"sys/fs/cgroup/a/memory.max": "max\n", "sys/fs/cgroup/a/cpu.max": "150000 100000\n", "sys/fs/cgroup/a/pids.max": "20\n",
		"sys/fs/cgroup/a/b/pids.max": "30\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n", "sys/fs/cgroup/a/b/memory.high": "rubbish\n",
		"sys/fs/cgroup/memory/m/memory.limit_in_bytes": "4294967296\n",
	})
	require.Equal(t, map[string]string{"memory.max": "4294967296", "cpu.max": "150000 100000", "pids.max": "20"}, at(root).Limits())
	require.Empty(t, at(t.TempDir()).Limits())
}

func TestMeminfo(t *testing.T) {
	text := []byte("MemTotal:   9 kB\nMemAvailable:        5 kB\nBuffers: 1 kB\n")
	require.EqualValues(t, 5<<10, Meminfo(text, "MemAvailable"))
	require.EqualValues(t, 9<<10, Meminfo(text, "MemTotal"))
	for _, text := range []string{"", "MemAvailable:", "MemAvailable: x kB", "MemAvailable: 5 MB"} {
		require.EqualValues(t, math.MaxInt64, Meminfo([]byte(text), "MemAvailable"), text)
	}
	require.Positive(t, AllowedBytes())
	require.Positive(t, FreeBytes())
}
