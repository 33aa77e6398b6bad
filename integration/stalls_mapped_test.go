package integration

import (
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/backing"
	"github.com/lsiofs/lsiofs/integration/serve"
)

func TestMappingOfStalledRangeWaitsForTimeout(t *testing.T) {
	serve.Tier(t, serve.CI)
	t.Parallel()
	whole := big(t)
	d, b := backingDataset(t, whole, backing.Options{})
	s := inOrder()
	// The timeout is longer than a normal read takes on a busy machine.
	const timeout = 20 * time.Second
	m := mountDataset(t, d, s, "--memory", "1MiB", "--read-timeout", timeout.String())
	b.Fail(backing.Fault{Path: "a.bin", From: 512 << 10, To: 768 << 10, Do: backing.Stall})
	began := time.Now()
	r := command(t, nil, nil, python(t), "-c", `
import mmap, sys
f = open(sys.argv[1], "rb")
m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
print(m[0], flush=True)
m[600 << 10]
`, m.path("worker-0.bin"))
	require.Equal(t, -1, r.code, "SIGBUS: %s", r.stderr)
	require.NotEmpty(t, r.stdout, "it had the beginning")
	require.GreaterOrEqual(t, time.Since(began), timeout)
	b.Fail()
	requireFile(t, newReference(t, whole).data(s, 0), m.path("worker-0.bin"))
}

// A goroutine that touches a missing page blocks a processor, and once the collector wants to stop
// the world, everything waits for it.
func TestPagesDroppedDuringStorageStallBlockNoOtherReaders(t *testing.T) {
	whole := big(t)
	d, b := backingDataset(t, whole, backing.Options{})
	s := inOrder()
	want := newReference(t, whole)
	m := mountDataset(t, d, s, "--memory", "64MiB")
	shell(t, `cat "$1"/*.bin > /dev/null`, d.dir) // into the page cache, from which it could be mapped
	for w := range s.Workers {
		requireFile(t, want.data(s, w), m.path("worker-%d.bin", w))
	}
	b.Fail(backing.Fault{Path: "a.bin", To: 1 << 40, Do: backing.Stall})
	b.Drop("a.bin")
	reads(t, m.path("worker-0.bin"), 0)
	for range 300 {
		m.read("status.json") // so that the collector has something to do
	}
	for w := 1; w < s.Workers; w++ {
		requireFile(t, want.data(s, w), m.path("worker-%d.bin", w))
	}
	require.Zero(t, m.fetchStats().MappedBytes)
	b.Fail()
	requireFile(t, want.data(s, 0), m.path("worker-0.bin"))
}

// Reads of mappings are background requests in the kernel, which only allows a limited number of
// them at a time.
func TestManyMappingsThatStallHoldUpNoOther(t *testing.T) {
	whole := big(t)
	d, b := backingDataset(t, whole, backing.Options{})
	s := inOrder()
	want := newReference(t, whole)
	m := mountDataset(t, d, s, "--memory", "16MiB")
	b.Fail(backing.Fault{Path: "a.bin", Do: backing.Stall})
	var paths []string
	for epoch := range 200 {
		paths = append(paths, m.path("epoch-%d/worker-0-of-4.bin", epoch))
	}
	reader := exec.Command(compiled(t, "testdata/mapper/main.c"), paths...)
	require.NoError(t, reader.Start())
	t.Cleanup(func() {
		b.Fail()
		reader.Process.Kill()
		reader.Wait()
	})
	queued := regexp.MustCompile(`lsiofs_stage_queued{stage="fuse"} (\d+)`)
	m.until(func() bool {
		n, err := strconv.Atoi(string(queued.FindSubmatch(m.read("metrics"))[1]))
		return err == nil && n >= 64
	}, "requests wait")
	r := command(t, nil, nil, python(t), "-c", `
import mmap, sys
with open(sys.argv[1], "rb") as f: sys.stdout.buffer.write(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[:])
`, m.path("worker-1.bin"))
	require.Zero(t, r.code, r.stderr)
	requireSameBytes(t, want.data(s, 1), r.stdout, "the other mapping")
	b.Fail()
	requireEnd(t, reader, "all its reads are answered")
	require.Zero(t, reader.ProcessState.ExitCode())
}
