package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/backing"
)

type way struct {
	name   string
	flags  []string
	direct bool
}

// ways are the ways to read a shard's bytes. Each waits at a different place in the kernel if
// storage does not answer.
var ways = []way{
	{"uring, page cache", []string{"--io", "uring", "--direct", "off"}, false},
	{"uring, direct", []string{"--io", "uring", "--direct", "on"}, true},
	{"pread, page cache", []string{"--io", "pread", "--direct", "off"}, false},
	{"pread, direct", []string{"--io", "pread", "--direct", "on"}, true},
}

// inOrder deals big in order: worker-0 has shards a to d, and so on. So reading a range of a stream
// needs the corresponding range of the shard.
func inOrder() settings {
	s := usual()
	s.Shuffle, s.Workers, s.Deal, s.ChunkBytes, s.ChunkRecords = "none", 4, "contiguous", 64<<10, 16
	return s
}

// bigMount is a mount of big in order, read in one of the ways, from a storage that can be made to
// fail.
type bigMount struct {
	way      way
	settings settings
	mount    *mount
	backing  *backing.FileSystem
	want     *reference
}

// ofEachWay runs a test on such a mount for each way, in parallel.
func ofEachWay(t *testing.T, flags []string, test func(t *testing.T, o bigMount)) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			whole := big(t)
			d, b := backingDataset(t, whole, backing.Options{})
			s := inOrder()
			want := newReference(t, whole)
			test(t, bigMount{way, s, mountDataset(t, d, s, append(slices.Clone(way.flags), flags...)...), b, want})
		})
	}
}

// reads starts a program that reads 64 KiB of a file from off on.
func reads(t *testing.T, path string, off int) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(python(t), "-c", "import os, sys; os.pread(os.open(sys.argv[1], os.O_RDONLY), 65536, int(sys.argv[2]))", path, strconv.Itoa(off))
	startChild(t, cmd)
	return cmd
}

// startChild starts a program that does not outlive the test.
func startChild(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
}

// requireEnd waits until a child has ended, in any way.
func requireEnd(t *testing.T, cmd *exec.Cmd, why string) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(clientLimit):
		require.Fail(t, "a client has not ended", why)
	}
}

func TestAStalledRangeBlocksOnlyThoseWhoNeedItAndIsEIOAfterTheTimeout(t *testing.T) {
	t.Parallel()
	// The timeout is longer than a normal read takes on a busy machine.
	ofEachWay(t, []string{"--memory", "1MiB", "--read-timeout", "20s"}, func(t *testing.T, o bigMount) {
		m, b, s, want := o.mount, o.backing, o.settings, o.want
		first := want.data(s, 0)
		const from, to = 512 << 10, 768 << 10
		b.Fail(backing.Fault{Path: "a.bin", From: from, To: to, Do: backing.Stall})

		killed, waits := reads(t, m.path("worker-0.bin"), from), make(chan error, 1)
		f, err := os.Open(m.path("worker-0.bin"))
		require.NoError(t, err)
		defer f.Close()
		buf := make([]byte, 64<<10)
		go func() {
			_, err := f.ReadAt(buf, from+100)
			waits <- err
		}()
		b.WaitStalled(1)
		require.NoError(t, killed.Process.Kill())
		requireEnd(t, killed, "a reader that waits dies of a signal")
		for w := 1; w < s.Workers; w++ {
			requireFile(t, want.data(s, w), m.path("worker-%d.bin", w))
		}
		other, err := os.ReadFile(m.path("epoch-0/worker-0-of-16.bin"))
		require.ErrorIs(t, err, syscall.EIO, "all of a.bin is in it")
		require.Less(t, len(other), to)
		g, err := os.Open(m.path("worker-0.bin"))
		require.NoError(t, err, "the same file can be opened")
		defer g.Close()
		head := make([]byte, from-64<<10)
		_, err = g.ReadAt(head, 0)
		require.NoError(t, err)
		requireSameBytes(t, first[:len(head)], head, "before the stalled range")
		_, err = g.ReadAt(head[:4096], 1<<20)
		require.NoError(t, err)
		requireSameBytes(t, first[1<<20:1<<20+4096], head[:4096], "behind the stalled range")
		require.ErrorIs(t, <-waits, syscall.EIO)
		const said = `a\.bin: record \d+ at \[\d+, \d+\): storage has not answered within --read-timeout`
		require.Regexp(t, said, string(m.read("status")))
		m.requireLog(said)

		b.Fail()
		requireFile(t, first, m.path("worker-0.bin"))
	})
}

// stuckReads returns the number of reads by threads that have waited for more than a second.
func (m *mount) stuckReads() int {
	m.t.Helper()
	var s struct {
		Pipeline struct{ Engine struct{ Stuck int } }
	}
	require.NoError(m.t, json.Unmarshal(m.read("status.json"), &s))
	return s.Pipeline.Engine.Stuck
}

// More reads stall than an engine makes at a time.
func TestManyStalledReadsHoldUpNobodyElse(t *testing.T) {
	t.Parallel()
	ofEachWay(t, []string{"--memory", "16MiB"}, func(t *testing.T, o bigMount) {
		m, b, s, want := o.mount, o.backing, o.settings, o.want
		var stalled []backing.Fault
		for _, shard := range []string{"a.bin", "b.bin", "c.bin", "d.bin"} {
			stalled = append(stalled, backing.Fault{Path: shard, To: 1 << 20, Do: backing.Stall})
		}
		b.Fail(stalled...)
		reader := exec.Command(python(t), "-c", `
import os, sys, threading
fd = os.open(sys.argv[1], os.O_RDONLY)
for i in range(64):
    threading.Thread(target=os.pread, args=(fd, 4096, i << 16)).start()
`, m.path("worker-0.bin"))
		startChild(t, reader)
		// At least four are started for each file, and in total as many as are requested in the
		// first second.
		m.until(func() bool { return m.stuckReads() >= 16 })
		for w := 1; w < s.Workers; w++ {
			requireFile(t, want.data(s, w), m.path("worker-%d.bin", w))
		}
		b.Fail()
		requireEnd(t, reader, "all its reads are answered")
		requireFile(t, want.data(s, 0), m.path("worker-0.bin"))
	})
}

// Each worker's stream is one file. Opening or reading it stalls for the first ones: for one, and
// for more than the number of files that are waited for at a time.
func TestFilesThatStallHoldUpTheirOwnReadersAlone(t *testing.T) {
	t.Parallel()
	const files = 60
	whole := dataset{name: "files", dir: t.TempDir(), flags: []string{"--format", "files"}, ext: ".tar"}
	for i := range files {
		writeFile(t, whole.dir, fmt.Sprintf("d/%02d.bin", i), bytes.Repeat([]byte{byte(i)}, 40_000))
	}
	s := usual()
	s.Shuffle, s.Workers, s.Deal, s.ChunkRecords = "none", files, "contiguous", 1
	want := newReference(t, whole)
	for _, opening := range []bool{true, false} {
		for _, hang := range []int{1, 40} {
			t.Run(fmt.Sprintf("opening=%v/files=%d", opening, hang), func(t *testing.T) {
				t.Parallel()
				d, b := backingDataset(t, whole, backing.Options{})
				m := mountDataset(t, d, s, "--memory", "1MiB")
				var faults []backing.Fault
				for i := range hang {
					faults = append(faults, backing.Fault{Path: fmt.Sprintf("d/%02d.bin", i), Open: opening, To: 1 << 30, Do: backing.Stall})
				}
				b.Fail(faults...)
				reader := exec.Command(python(t), "-c", `
import os, sys, threading
for i in range(int(sys.argv[2])):
    fd = os.open(sys.argv[1] + "/worker-%d.tar" % i, os.O_RDONLY)
    threading.Thread(target=os.pread, args=(fd, 4096, 0)).start()
`, m.dir, fmt.Sprint(hang))
				startChild(t, reader)
				b.WaitStalled(hang)
				for w := hang; w < files; w++ {
					requireFile(t, want.data(s, w), m.path("worker-%d.tar", w))
				}
				b.Fail()
				requireEnd(t, reader, "all its reads are answered")
				for w := range hang {
					requireFile(t, want.data(s, w), m.path("worker-%d.tar", w))
				}
			})
		}
	}
}

func TestAMountEndsWhileARangeIsStalled(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		// Each returns a process that ends once the server has ended, or nil.
		for name, end := range map[string]func(t *testing.T, m *mount) *exec.Cmd{
			"Ctrl-C": func(_ *testing.T, m *mount) *exec.Cmd { m.cmd.Process.Signal(syscall.SIGINT); return nil },
			"umount": func(t *testing.T, m *mount) *exec.Cmd { // it waits for the server
				umount := exec.Command(lsiofs, "umount", m.dir)
				require.NoError(t, umount.Start())
				return umount
			},
			"Ctrl-C twice, a reader waits": func(_ *testing.T, m *mount) *exec.Cmd {
				m.cmd.Process.Signal(syscall.SIGINT)
				m.until(func() bool { return !isMount(m.dir) })
				m.cmd.Process.Signal(syscall.SIGINT)
				return nil
			},
		} {
			t.Run(way.name+", "+name, func(t *testing.T) {
				t.Parallel()
				d, b := backingDataset(t, big(t), backing.Options{})
				m := mountDataset(t, d, inOrder(), append(way.flags, "--memory", "1MiB")...)
				b.Fail(backing.Fault{Path: "a.bin", To: 1 << 20, Do: backing.Stall})
				reader := reads(t, m.path("worker-0.bin"), 0)
				b.WaitStalled(1)
				stays := strings.Contains(name, "reader")
				if !stays {
					require.NoError(t, reader.Process.Kill())
					requireEnd(t, reader, "it was killed")
				}
				waits := end(t, m)
				m.until(func() bool { return !isMount(m.dir) })
				if stays {
					requireEnd(t, reader, "its read fails")
				}
				if way.direct {
					// The kernel keeps the process until FUSE answers.
					b.Fail()
				}
				require.True(t, m.ended(clientLimit), "the server ends")
				if waits != nil {
					requireEnd(t, waits, "the server has ended")
					require.Zero(t, waits.ProcessState.ExitCode())
				}
				m.requireNothingLeft()
			})
		}
	}
}

// Closing a growing dataset waits for reads, too, and logs how many are left.
func TestGrowingMountEndsDuringStalledRange(t *testing.T) {
	t.Parallel()
	d, b := backingDataset(t, big(t), backing.Options{})
	m := mountDataset(t, d, inOrder(), "--memory", "1MiB", "--io", "pread", "--direct", "off",
		"--grow", "--run", filepath.Join(t.TempDir(), "run"), "--settle", "200ms")
	b.Fail(backing.Fault{Path: "a.bin", To: 1 << 20, Do: backing.Stall})
	reader := reads(t, m.path("worker-0.bin"), 0)
	b.WaitStalled(1)
	require.NoError(t, reader.Process.Kill())
	requireEnd(t, reader, "it was killed")
	require.NoError(t, m.cmd.Process.Signal(syscall.SIGINT))
	require.True(t, m.ended(clientLimit), "the server ends")
	require.Zero(t, m.cmd.ProcessState.ExitCode(), m.log.String())
	require.Regexp(t, `not waiting for its outstanding reads.* reads=[1-9]`, m.log.String())
	m.requireNothingLeft()
}

func TestCtrlCEndsIndexingOfStalledShard(t *testing.T) {
	d, b := backingDataset(t, plain(t, "jsonl", 3), backing.Options{})
	b.Fail(backing.Fault{Path: "part-1/shard-0001.jsonl", To: 1 << 40, Do: backing.Stall})
	m := startMount(t, d, t.TempDir(), usual().flags()...)
	b.WaitStalled(1)
	require.NoError(t, m.cmd.Process.Signal(syscall.SIGINT))
	require.True(t, m.ended(clientLimit))
	require.Equal(t, 130, m.cmd.ProcessState.ExitCode(), m.log.String())
	require.False(t, isMount(m.dir))
}

func TestFaultsOfTheStorageAreEIOThatNamesThemOrPassUnseen(t *testing.T) {
	t.Parallel()
	ofEachWay(t, []string{"--memory", "1MiB"}, func(t *testing.T, o bigMount) {
		m, b, s, want := o.mount, o.backing, o.settings, o.want
		b.Fail(backing.Fault{Path: "b.bin", From: 100 << 10, To: 101 << 10, Do: backing.EIO})
		first := want.data(s, 0)
		require.NotZero(t, requireEIOOrRight(t, first, m.path("worker-0.bin")))
		const said = `b\.bin: record \d+ at \[\d+, \d+\): (bytes \[\d+, \d+\): )?input/output error`
		require.Regexp(t, said, string(m.read("status")))
		m.requireLog(said)
		b.Fail()
		requireFile(t, first, m.path("worker-0.bin"))

		b.Fail(
			backing.Fault{Path: "e.bin", To: 1 << 20, Do: backing.Slow, Times: 3},
			backing.Fault{Path: "f.bin", To: 1 << 20, Do: backing.EINTR, Times: 3},
		)
		requireFile(t, want.data(s, 1), m.path("worker-1.bin"))
		m.requireAlive()
	})
}

// Several threads, AIO and io_uring make concurrent reads of one open file, and storage may answer
// the first of them last.
func TestConcurrentReadsAllCountAsDelivered(t *testing.T) {
	whole := big(t)
	d, b := backingDataset(t, whole, backing.Options{})
	s := inOrder()
	m := mountDataset(t, d, s, "--memory", "1MiB")
	b.Fail(backing.Fault{Path: "a.bin", To: 256 << 10, Do: backing.Stall})
	reader := exec.Command(python(t), "-c", `
import os, sys, threading
fd = os.open(sys.argv[1], os.O_RDONLY)
size = os.fstat(fd).st_size
first = threading.Thread(target=os.pread, args=(fd, 65536, 0))
first.start()
sys.stdin.readline()
for off in range(1 << 20, size, 1 << 20):
    os.pread(fd, 1 << 20, off)
print("read", flush=True)
first.join()
`, m.path("worker-0.bin"))
	in, err := reader.StdinPipe()
	require.NoError(t, err)
	out, err := reader.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, reader.Start())
	t.Cleanup(func() {
		b.Fail()
		reader.Process.Kill()
		reader.Wait()
	})
	b.WaitStalled(1)
	_, err = in.Write([]byte("\n"))
	require.NoError(t, err)
	_, err = out.Read(make([]byte, 10))
	require.NoError(t, err)
	b.Fail()
	requireEnd(t, reader, "storage has answered")
	require.Contains(t, string(m.read("checkpoint")), `"consumed": [1024,    0,    0,    0]`)
}
