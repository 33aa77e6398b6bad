package integration

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// big returns a dataset of about 16 MiB, far more than the smallest --memory, so that a second pass
// has to read shards again.
func big(t testing.TB) dataset {
	t.Helper()
	dir := t.TempDir()
	record := make([]byte, 4096)
	for i := range 16 {
		f, err := os.Create(filepath.Join(dir, string(rune('a'+i))+".bin"))
		require.NoError(t, err)
		for j := range 256 {
			for k := range record {
				record[k] = byte(i*31 + j*7 + k)
			}
			_, err = f.Write(record)
			require.NoError(t, err)
		}
		require.NoError(t, f.Close())
	}
	return dataset{name: "big", dir: dir, flags: []string{"--format", "fixed", "--record-bytes", "4096"}, ext: ".bin"}
}

// bigSettings makes readers of big go through all shards at once.
func bigSettings() settings {
	s := usual()
	s.ShuffleSize, s.Lanes, s.ChunkBytes, s.ChunkRecords, s.Workers = 512, 8, 64<<10, 16, 4
	return s
}

// start starts a client program that reads, and returns when it has read something.
func start(t testing.TB, line string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-ec", line, "sh"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = io.ReadFull(out, make([]byte, 4096))
	require.NoError(t, err)
	t.Cleanup(func() {
		if cmd.ProcessState == nil { // otherwise its number may have been reused
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			cmd.Wait()
		}
	})
	return cmd
}

func TestKilledReaderAffectsNoOther(t *testing.T) {
	d := big(t)
	s := bigSettings()
	m := mountDataset(t, d, s, "--memory", "1MiB")
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT} {
		reader := start(t, `exec cat "$1"`, m.path("worker-0.bin"))
		require.NoError(t, syscall.Kill(-reader.Process.Pid, signal))
		reader.Wait()
	}
	ref := newReference(t, d)
	for w := range s.Workers {
		requireFile(t, ref.data(s, w), m.path("worker-%d.bin", w))
	}
}

func TestAKilledServerWakesItsReadersAndTheNextMountHealsThePointAndResumes(t *testing.T) {
	d := big(t)
	s := bigSettings()
	ref := newReference(t, d)
	dir := t.TempDir()
	m := mountAt(t, d, dir, s.flags()...)
	came := [][]string{m.take(d, 0, 100), m.take(d, 3, 57)}
	saved := filepath.Join(t.TempDir(), "ckpt.json")
	shell(t, `cp "$1" "$2"`, m.path("checkpoint"), saved)

	reader, err := os.Open(m.path("worker-1.bin"))
	require.NoError(t, err)
	defer reader.Close()
	_, err = reader.Read(make([]byte, 10000))
	require.NoError(t, err)
	m.kill()
	_, err = io.ReadAll(reader)
	require.ErrorIs(t, err, syscall.ENOTCONN)
	_, err = os.Stat(m.path("status"))
	require.ErrorIs(t, err, syscall.ENOTCONN, "the killed server leaves a stale mount")
	require.Contains(t, tool(t, "top", m.dir).stderr, "the server of "+m.dir+" is gone: mount again")

	m = mountAt(t, d, dir, "--resume", saved, "--workers", "3")
	done := []taken{{Batch: 1, Consumed: []int{100, 0, 0, 57}}}
	s.Workers = 3
	for w := range 3 {
		requireFile(t, ref.ask(question{settings: s, Worker: w, Done: done, Kind: "data"}), m.path("worker-%d.bin", w))
		came = append(came, splitIDs(m.read("worker-%d.ids", w)))
	}
	requireTiles(t, ref.g(s), came...)
}

func TestSIGTERMLetsOpenReadersFinish(t *testing.T) {
	d := big(t)
	s := bigSettings()
	m := mountDataset(t, d, s)
	want := newReference(t, d).data(s, 2)
	reader, err := os.Open(m.path("worker-2.bin"))
	require.NoError(t, err)
	head := make([]byte, len(want)-256<<10) // the rest has some seconds
	_, err = io.ReadFull(reader, head)
	require.NoError(t, err)

	require.NoError(t, m.cmd.Process.Signal(syscall.SIGTERM))
	m.until(func() bool { return !isMount(m.dir) }, "the tree is detached while a file is open")
	rest, err := io.ReadAll(reader)
	require.NoError(t, err)
	requireSameBytes(t, want, append(head, rest...), "what a reader gets that was open at SIGTERM")
	require.NoError(t, reader.Close())
	require.True(t, m.ended(clientLimit), "the server ends when its last reader has")
	m.requireNothingLeft()
}

func TestInterruptUnmounts(t *testing.T) {
	m := mountDataset(t, plain(t, "jsonl", 2), usual())
	m.requireAlive()
	require.NoError(t, m.cmd.Process.Signal(syscall.SIGINT))
	require.True(t, m.ended(clientLimit))
	require.False(t, isMount(m.dir))
}

func TestUmountEndsServer(t *testing.T) {
	for name, umount := range map[string]func(dir string) result{
		"lsiofs umount": func(dir string) result { return tool(t, "umount", dir) },
		"umount(8)":     func(dir string) result { return command(t, nil, nil, "umount", dir) },
		"fusermount3":   func(dir string) result { return command(t, nil, nil, "fusermount3", "-u", dir) },
	} {
		t.Run(name, func(t *testing.T) {
			m := mountDataset(t, plain(t, "jsonl", 2), usual())
			m.requireAlive()
			r := umount(m.dir)
			require.Zero(t, r.code, r.stderr)
			require.True(t, m.ended(clientLimit))
			m.requireNothingLeft()
		})
	}
}

func TestInvalidMountPointsAreRefusedWithExplanation(t *testing.T) {
	d := plain(t, "jsonl", 2)
	live := mountDataset(t, d, usual())
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	inside := filepath.Join(d.dir, "part-0", "mnt")
	require.NoError(t, os.Mkdir(inside, 0o755))
	for name, dir := range map[string]string{
		"a live mount":                   live.dir,
		"a directory inside the dataset": inside,
		"the dataset itself":             d.dir,
		"a file":                         file,
		"nothing":                        filepath.Join(t.TempDir(), "nothing"),
	} {
		t.Run(name, func(t *testing.T) {
			r := tool(t, "mount", d.dir, dir)
			require.Equal(t, exitMount, r.code)
			require.Contains(t, r.stderr, dir, "the message names the point")
		})
	}
	live.requireAlive()
	require.Len(t, mountsBelow(filepath.Dir(live.dir)), 1, "nothing was mounted on top of it")
}

func TestAnOrdinaryUserMountsReadsSavesAndResumes(t *testing.T) {
	needFUSE(t)
	need(t, "fusermount3")
	lsiofs := openToOthers(t)
	d := plain(t, "jsonl", 3)
	s := usual()
	dir, home := t.TempDir(), t.TempDir()
	as := func(program string, args ...string) result {
		return command(t, []string{"HOME=" + home, "XDG_CACHE_HOME=" + home, "TMPDIR=" + home}, nil, program, args...)
	}
	if os.Getuid() == 0 { // run as another user
		if info, err := os.Stat("/dev/fuse"); err != nil || info.Mode().Perm() != 0o666 {
			missing(t, "/dev/fuse is not open to everybody")
		}
		letOthersThrough(t, d.dir, dir, home)
		require.NoError(t, errors.Join(os.Chown(dir, nobody, nobody), os.Chown(home, nobody, nobody)))
		setpriv, root := need(t, "setpriv"), as
		as = func(program string, args ...string) result {
			return root(setpriv, append([]string{"--reuid=65534", "--regid=65534", "--clear-groups", program}, args...)...)
		}
		theirs := t.TempDir()
		letOthersThrough(t, theirs)
		r := as(lsiofs, "mount", d.dir, theirs, "--daemon")
		require.Equal(t, 4, r.code, r.stderr)
		require.Contains(t, r.stderr, "mount point "+theirs+": this user may not mount there")
		require.Contains(t, r.stderr, "sudo chown 65534 "+theirs)
	}
	t.Cleanup(func() {
		if isMount(dir) {
			detach(dir)
		}
	})
	r := as(lsiofs, append([]string{"mount", d.dir, dir, "--daemon"}, s.flags()...)...)
	require.Zero(t, r.code, r.stderr)
	r = as("cat", filepath.Join(dir, "worker-1.jsonl"))
	require.Zero(t, r.code, r.stderr)
	requireSameBytes(t, newReference(t, d).data(s, 1), r.stdout, "a stream of a user's mount")
	saved := filepath.Join(home, "ckpt.json")
	r = as(lsiofs, "checkpoint", "save", dir, saved)
	require.Zero(t, r.code, r.stderr)
	unmount := func() {
		t.Helper()
		r := as(lsiofs, "umount", dir)
		require.Zero(t, r.code, r.stderr)
		require.False(t, isMount(dir))
		requireServersEnd(t, lsiofs)
	}
	unmount()
	indexes, err := filepath.Glob(filepath.Join(home, "lsiofs", "*.index"))
	require.NoError(t, err)
	require.Len(t, indexes, 1, "the index is the user's own")

	r = as(lsiofs, "mount", d.dir, dir, "--daemon", "--resume", saved, "--workers", "2")
	require.Zero(t, r.code, r.stderr)
	document, err := os.ReadFile(saved)
	if os.Getuid() == 0 {
		r = as("cat", saved) // run it as that user, since others may not read the file
		document, err = r.stdout, nil
	}
	require.NoError(t, err)
	done := []taken{last(documentOf(t, document).Done)}
	require.Equal(t, len(newReference(t, d).ids(s, 1)), done[0].Consumed[1])
	s.Workers = 2
	for w := range s.Workers {
		r = as("cat", filepath.Join(dir, fmt.Sprintf("worker-%d.jsonl", w)))
		require.Zero(t, r.code, r.stderr)
		requireSameBytes(t, newReference(t, d).ask(question{settings: s, Worker: w, Done: done, Kind: "data"}), r.stdout, "worker %d after the resume", w)
	}
	r = as("sh", "-c", `echo '{"epoch": 1}' > "$1"/checkpoint && cp "$1"/checkpoint "$2"`, "sh", dir, saved)
	require.Zero(t, r.code, r.stderr)
	unmount()
}

// requireServersEnd waits until no server of lsiofs, or of copies of it, is left: a daemon ends
// some time after its mount is gone.
func requireServersEnd(t *testing.T, copies ...string) {
	t.Helper()
	for _, program := range append(copies, lsiofs) {
		until(t, nil, func() bool { return len(serve.Processes(program)) == 0 }, "the daemon ends")
	}
}

// openToOthers makes the test's further directories in a place that other users can reach
// (letOthersThrough), and returns a copy of lsiofs that they may run.
func openToOthers(t *testing.T) (program string) {
	t.Helper()
	dir := serve.ShortDir(t)
	t.Setenv("TMPDIR", dir)
	program = filepath.Join(dir, "lsiofs")
	// Copied by another process: a child of this one would have the file open for writing until its
	// exec, and meanwhile it could not be run.
	output(t, "cp", lsiofs, program)
	return program
}

// letOthersThrough lets other users reach directories of this test, after openToOthers.
func letOthersThrough(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		for ; dir != os.TempDir(); dir = filepath.Dir(dir) {
			require.NotEqual(t, "/", dir)
			require.NoError(t, os.Chmod(dir, 0o755))
		}
	}
}

func TestDaemonIsReadyWhenCommandReturns(t *testing.T) {
	needFUSE(t)
	d := plain(t, "jsonl", 3)
	s := usual()
	dir := t.TempDir()
	args := append([]string{"mount", d.dir, dir, "--daemon"}, s.flags()...)
	t.Cleanup(func() {
		if isMount(dir) {
			detach(dir)
		}
	})
	toolOK(t, args...)
	requireFile(t, newReference(t, d).data(s, 0), filepath.Join(dir, "worker-0.jsonl"))

	r := tool(t, args...)
	require.NotZero(t, r.code, "a second one on the same point")
	require.Contains(t, r.stderr, dir)

	toolOK(t, "umount", dir)
	require.False(t, isMount(dir))
	requireServersEnd(t)

	r = tool(t, "mount", filepath.Join(d.dir, "nothing"), dir, "--daemon")
	require.NotZero(t, r.code, "a daemon that can't start says so")
	require.Contains(t, r.stderr, "nothing")
}

// damages are changes to a shard of a dataset under a running mount.
var damages = []struct {
	name string
	do   func(path string) error
}{
	{"truncated", func(p string) error { return os.Truncate(p, 300_000) }},
	{"truncated to nothing", func(p string) error { return os.Truncate(p, 0) }},
	{"removed", os.Remove},
	{"changed in place", func(p string) error {
		f, err := os.OpenFile(p, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteAt(make([]byte, 500_000), 100_000)
		return errors.Join(err, f.Close())
	}},
	{"replaced by a file of the same size", func(p string) error {
		return errors.Join(os.WriteFile(p+".new", make([]byte, 1<<20), 0o644), os.Rename(p+".new", p))
	}},
	{"grown", func(p string) error {
		f, err := os.OpenFile(p, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		_, err = f.Write(make([]byte, 5000))
		return errors.Join(err, f.Close())
	}},
	{"made a directory", func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o755)) }},
}

func TestShardsThatChangeUnderAMountGiveEIOOrTheRightBytes(t *testing.T) {
	serve.Tier(t, serve.CI)
	for _, engine := range []string{"auto", "pread"} {
		for _, damage := range damages {
			t.Run(engine+" "+damage.name, func(t *testing.T) {
				d := big(t)
				s := bigSettings()
				ref := newReference(t, d)
				m := mountDataset(t, d, s, "--memory", "1MiB", "--io", engine)
				requireFile(t, ref.data(s, 0), m.path("worker-0.bin"))

				require.NoError(t, damage.do(filepath.Join(d.dir, "c.bin")))
				failed := 0
				for _, epoch := range []uint64{0, 1} {
					s.Epoch = epoch
					for w := range s.Workers {
						failed += requireEIOOrRight(t, ref.data(s, w), m.path("epoch-%d/worker-%d-of-4.bin", epoch, w))
					}
				}
				m.requireAlive()
				if failed > 0 {
					requireChanged(m, "c.bin")
				} else {
					require.NotContains(t, string(m.read("status")), "c.bin")
					require.Contains(t, []string{"removed", "replaced by a file of the same size", "made a directory"}, damage.name,
						"only a file that is still open can still be read")
				}
			})
		}
	}
}

// requireChanged checks that status, metrics and log name the one shard that has changed; the log
// once, however many reads have failed.
func requireChanged(m *mount, shard string) {
	m.t.Helper()
	require.Regexp(m.t, `(?m)^changed since they were indexed: 1 shard; .*\n .* `+regexp.QuoteMeta(shard)+": .", string(m.read("status")))
	require.Regexp(m.t, `"changed_shards": {\s*"count": 1,`, string(m.read("status.json")))
	require.Contains(m.t, string(m.read("metrics")), "\nlsiofs_changed_shards_total 1\n")
	said := func() int { return strings.Count(m.log.String(), "a shard has changed since it was indexed") }
	m.until(func() bool { return said() > 0 }, "the log names it")
	require.Equal(m.t, 1, said())
	m.requireLog("shard=" + shard)
}

// requireEIOOrRight reads a stream record by record. Each read must return EIO or the right bytes.
// It returns the number of failures.
func requireEIOOrRight(t *testing.T, want []byte, path string) (failed int) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	for off := 0; off < len(want); off += 4096 {
		buf := make([]byte, min(4096, len(want)-off))
		n, err := f.ReadAt(buf, int64(off))
		if err != nil {
			require.ErrorIs(t, err, syscall.EIO)
			require.Zero(t, n)
			failed++
			continue
		}
		requireSameBytes(t, want[off:off+len(buf)], buf, "%s at %d", path, off)
	}
	return failed
}

func TestShardTruncatedUnderMappingKillsOnlyItsReader(t *testing.T) {
	d := big(t)
	m := mountDataset(t, d, bigSettings(), "--memory", "1MiB")
	require.NoError(t, os.Truncate(filepath.Join(d.dir, "c.bin"), 5000))
	r := command(t, nil, nil, python(t), "-c", `
import mmap, sys
f = open(sys.argv[1], "rb")
m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
sum(m[i] for i in range(0, len(m), 4096))
`, m.path("epoch-3/worker-0-of-1.bin"))
	require.Equal(t, -1, r.code, "SIGBUS is how the kernel tells a mapping of EIO: %s", r.stderr)
	m.requireAlive()
}
