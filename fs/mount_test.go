package fs

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/integration/serve"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func TestInvalidMountPointsAreRefused(t *testing.T) {
	needFUSE(t)
	dataset := newPoint(t)
	inside := filepath.Join(dataset, "deep", "point")
	require.NoError(t, os.MkdirAll(inside, 0o755))
	file := filepath.Join(newPoint(t), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	full := newPoint(t)
	require.NoError(t, os.WriteFile(filepath.Join(full, "x"), nil, 0o644))
	link := filepath.Join(newPoint(t), "link")
	require.NoError(t, os.Symlink(inside, link))
	live := mount(t, 1)
	for _, c := range []struct{ name, point, want string }{
		{"missing", filepath.Join(full, "nothing"), "does not exist: create it"},
		{"a file", file, "is not a directory"},
		{"not empty", full, "is not empty"},
		{"inside of the dataset", inside, "is inside the dataset"},
		{"inside by a symbolic link", link, "is inside the dataset"},
		{"the dataset itself", dataset, "is the dataset itself"},
		{"around the dataset", mountsDir, "would hide the dataset"},
		{"a live mount", live.dir, "is already a mount of lsiofs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newFakeDataset(1)
			d.spec.Dataset = dataset
			before := mountsBelow(mountsDir)
			_, err := newMount(t.Context(), Config{Dataset: d, Rings: ringed, MountPoint: c.point}, d.set)
			require.ErrorContains(t, err, c.want)
			require.Equal(t, before, mountsBelow(mountsDir))
		})
	}
	require.NotEmpty(t, live.read(live.path("worker-0.rec")), "the live mount is as it was")
}

func TestDatasetRoots(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	file := filepath.Join(dir, "a.tar")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	for dataset, want := range map[string]struct {
		root      string
		recursive bool
	}{
		dir:                              {dir, true},
		file:                             {dir, false},
		dir + "/train-{000..146}.tar":    {dir, false},
		dir + "/**/*.tar":                {dir, true},
		dir + "/x/y-*/**/shard[0-9].tar": {dir + "/x", true},
	} {
		root, recursive, err := datasetRoot(dataset)
		require.NoError(t, err)
		require.Equal(t, want.root, root, dataset)
		require.Equal(t, want.recursive, recursive, dataset)
	}
}

func TestMountPointNextToSingleFileIsAccepted(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.tar")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	require.NoError(t, apart(filepath.Join(dir, "mnt"), file))
	require.NoError(t, apart(filepath.Join(dir, "mnt"), filepath.Join(dir, "*.tar")))
	require.Error(t, apart(filepath.Join(dir, "mnt"), filepath.Join(dir, "**", "*.tar")))
}

// startServer is a mount in another process, which can be killed.
func startServer(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], dir)
	cmd.Env = append(os.Environ(), agentEnv+"=server")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "mounted\n", line)
	return cmd
}

func TestMountOfKilledServerIsHealed(t *testing.T) {
	needFUSE(t)
	dir := newPoint(t)
	server := startServer(t, dir)
	a := newAgent(t)
	fd := a.open(filepath.Join(dir, "worker-0.rec"), unix.O_RDONLY)
	a.must(call{Op: "pread", FD: fd, N: 100})
	require.NoError(t, server.Process.Kill())
	_ = server.Wait()
	got := a.do(call{Op: "pread", FD: fd, N: 100}).Errno
	for ringed && (got == syscall.ECANCELED || got == syscall.ECONNABORTED) { // the process has ended, and its rings are being torn down
		got = a.do(call{Op: "pread", FD: fd, N: 100}).Errno
	}
	require.Equal(t, syscall.ENOTCONN, got)
	require.Equal(t, syscall.ENOTCONN, a.do(call{Op: "stat", Path: dir}).Errno)

	d := newFakeDataset(1)
	m, err := newMount(t.Context(), Config{Dataset: d, Rings: ringed, MountPoint: dir}, d.set)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(fmt.Sprint(mountsBelow(mountsDir)), dir))
	require.NotEmpty(t, a.read(filepath.Join(dir, "worker-0.rec")))
	require.NoError(t, m.Unmount(t.Context()))
}

func TestUnmountWhileFilesAreOpen(t *testing.T) {
	needFUSE(t)
	dir, d := newPoint(t), newFakeDataset(1)
	m, err := newMount(t.Context(), Config{Dataset: d, Rings: ringed, MountPoint: dir}, d.set)
	require.NoError(t, err)
	a := newAgent(t)
	fd := a.open(filepath.Join(dir, "worker-0.rec"), unix.O_RDONLY)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorContains(t, m.Unmount(ended), "programs are still reading it (1 open file)")
	require.NotContains(t, mountsBelow(mountsDir), dir, "the name is free at once")
	require.Len(t, a.must(call{Op: "pread", FD: fd, N: 100}).Data, 100, "readers go on")

	again := make(chan error, 1)
	go func() { again <- m.Unmount(context.Background()) }()
	require.Len(t, a.must(call{Op: "pread", FD: fd, Off: 100, N: 100}).Data, 100)
	a.must(call{Op: "close", FD: fd})
	require.NoError(t, <-again)
	require.NoError(t, m.Wait())
	require.Zero(t, d.handles(0))
	require.NoError(t, m.Unmount(t.Context()), "once more is fine")
}

func TestUnmountReportsThatNoOpenStreamHoldsMount(t *testing.T) {
	needFUSE(t)
	dir, d := newPoint(t), newFakeDataset(1)
	m, err := newMount(t.Context(), Config{Dataset: d, Rings: ringed, MountPoint: dir}, d.set)
	require.NoError(t, err)
	a := newAgent(t)
	fd := a.open(dir, unix.O_RDONLY|unix.O_DIRECTORY)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorContains(t, m.Unmount(ended), "no stream is open, but the mount is in use")
	a.must(call{Op: "close", FD: fd})
	require.NoError(t, m.Unmount(t.Context()))
}

func TestUnmountFromOutside(t *testing.T) {
	needFUSE(t)
	dir, d := newPoint(t), newFakeDataset(1)
	m, err := newMount(t.Context(), Config{Dataset: d, Rings: ringed, MountPoint: dir}, d.set)
	require.NoError(t, err)
	out, code := run(t, "/", "umount", dir)
	require.Zero(t, code, out)
	require.NoError(t, m.detach(), "what an unmount finds that comes at the same time")
	require.NoError(t, m.Wait())
	require.NoError(t, m.Unmount(t.Context()))
}

func TestPathWithSpacesAndQuotes(t *testing.T) {
	needFUSE(t)
	dir := filepath.Join(newPoint(t), `it's a "test"`)
	require.NoError(t, os.Mkdir(dir, 0o755))
	d := newFakeDataset(1)
	m, err := newMount(t.Context(), Config{Dataset: d, Rings: ringed, MountPoint: dir}, d.set)
	require.NoError(t, err)
	a := newAgent(t)
	text := a.read(filepath.Join(dir, "README"))
	_, rest, found := strings.Cut(text, "  cp ")
	require.True(t, found)
	line, _, _ := strings.Cut(rest, "\n")
	out, code := run(t, t.TempDir(), "sh", "-c", "cp "+line)
	require.Zero(t, code, "%s: %s", line, out)
	require.NoError(t, m.Unmount(t.Context()))
	require.Empty(t, mountsBelow(dir))
}

func TestMountIsNamedInProcMounts(t *testing.T) {
	m := mount(t, 1)
	mounts, err := os.ReadFile("/proc/mounts")
	require.NoError(t, err)
	require.Contains(t, string(mounts), "lsiofs "+strings.ReplaceAll(m.dir, " ", `\040`)+" fuse.lsiofs ")
}

func TestStatusTextAndJSON(t *testing.T) {
	m := mount(t, 70)
	m.read(m.path("worker-0.rec"))
	fd := m.open(m.path("worker-1.rec"), unix.O_RDONLY)
	m.must(call{Op: "pread", FD: fd, N: 50})
	status := m.read(m.path("status"))
	for _, want := range []string{
		"v0-test, mounted at " + m.dir, "pread (this is a test)", "1.0 MiB of 1.0 GiB held",
		fmt.Sprintf("read by process %d", m.cmd.Process.Pid), "no reader", "… and 6 more",
	} {
		require.Contains(t, status, want)
	}
	var r statusReport
	require.NoError(t, json.Unmarshal([]byte(m.read(m.path("status.json"))), &r))
	require.Equal(t, "pread", r.Pipeline.Engine.Engine)
	require.Len(t, r.Files, filesShown)
	require.EqualValues(t, 15, r.Files[0].DeliveredRecords)
	require.EqualValues(t, m.cmd.Process.Pid, r.Files[1].ReaderPID)
	require.EqualValues(t, 50, r.Files[1].DeliveredBytes)
	require.Positive(t, r.Traffic.SentBytes)
	require.Positive(t, r.Process.Goroutines)
	out, code := run(t, "/", "cat", m.path("status"), m.path("status.json"))
	require.Zero(t, code)
	require.Contains(t, out, `"mount_point": `)
}

func TestMetricsAreWellFormed(t *testing.T) {
	m := mount(t, 2)
	b := len(m.read(m.path("worker-0.rec")))
	require.Equal(t, syscall.EINVAL, m.write("x"))
	require.Equal(t, syscall.Errno(0), m.write(`{"epoch": 9}`))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(m.read(m.path("metrics"))))
	require.NoError(t, err)
	require.EqualValues(t, b, families["lsiofs_sent_bytes_total"].Metric[0].Counter.GetValue())
	require.EqualValues(t, 1, families["lsiofs_checkpoint_refusals_total"].Metric[0].Counter.GetValue())
	require.EqualValues(t, 1, families["lsiofs_checkpoint_restores_total"].Metric[0].Counter.GetValue())
	require.EqualValues(t, 9, families["lsiofs_epoch"].Metric[0].Gauge.GetValue())
	require.Equal(t, "pread", families["lsiofs_engine_info"].Metric[0].Label[0].GetValue())
}

func TestPythonReadsAndMaps(t *testing.T) {
	m := mount(t, 1)
	out, code := run(t, "/", "/usr/bin/python3", "-c", `
import mmap, os, sys
p = sys.argv[1]
whole = open(p, "rb").read()
assert len(whole) == os.path.getsize(p) > 0
with open(p, "rb") as f:
    f.seek(len(whole) // 2); assert f.read(77) == whole[len(whole) // 2:][:77]
    f.seek(-5, 2); assert f.read() == whole[-5:]
    with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY) as m:
        assert m[:] == whole and m[100:200] == whole[100:200]
assert os.stat(p).st_blksize == int(sys.argv[2])
`, m.path("worker-0.rec"), strconv.Itoa(int(m.tree.blockBytes)))
	require.Zero(t, code, out)
}

// A mapping made before a restore must not continue to show the old stream: its next access is
// refused, for which the kernel's only signal is SIGBUS.
func TestMappingsEndAtRestore(t *testing.T) {
	m := mount(t, 1)
	out, code := run(t, "/", "/usr/bin/python3", "-c", `
import mmap, os, signal, sys
p, control = sys.argv[1:]
old = open(p, "rb")
m = mmap.mmap(old.fileno(), 0, access=mmap.ACCESS_COPY)
m[0], m[-1]
open(control, "w").write('{"epoch": 1}')
with open(p, "rb") as f:
    new = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY)
    assert new[:] == f.read()
signal.signal(signal.SIGALRM, lambda *_: os._exit(1))
signal.alarm(80)
if os.fork() == 0:
    while True: m[0]
_, status = os.wait()
assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGBUS, status
`, m.path("worker-0.rec"), m.path("checkpoint"))
	require.Zero(t, code, out)
}

// The whole path, with nothing replaced by memory that is not so in a real mount.
func TestRealDataset(t *testing.T) {
	needFUSE(t)
	root, index := t.TempDir(), t.TempDir()
	var want []string
	for shard := range 5 {
		var b strings.Builder
		for line := range 200 {
			text := fmt.Sprintf(`{"shard": %d, "line": %d, "text": %q}`, shard, line, strings.Repeat("x", line%90))
			want = append(want, text)
			b.WriteString(text + "\n")
		}
		require.NoError(t, os.WriteFile(filepath.Join(root, fmt.Sprintf("s%d.jsonl", shard)), []byte(b.String()), 0o644))
	}
	s := spec.Default()
	s.Dataset, s.IndexDir, s.Deal.Workers, s.Order.SizeRecords = root, index, 3, 100
	d, err := pipeline.Open(t.Context(), s, pipeline.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	dir := newPoint(t)
	m, err := New(t.Context(), Config{Dataset: d, Rings: ringed, MountPoint: dir, Version: "v0-test"})
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Unmount(context.Background())) }()
	a := newAgent(t)
	var got []string
	lines := func(text string) { got = append(got, strings.Split(strings.TrimSuffix(text, "\n"), "\n")...) }
	text := a.read(filepath.Join(dir, "worker-0.jsonl"))
	require.Equal(t, text, a.read(filepath.Join(dir, "epoch-0/worker-0-of-3.jsonl")))
	lines(text)
	doc := a.read(filepath.Join(dir, "checkpoint"))
	fd := a.open(filepath.Join(dir, "checkpoint"), unix.O_WRONLY|unix.O_TRUNC)
	a.must(call{Op: "write", FD: fd, Data: []byte(doc)})
	a.must(call{Op: "close", FD: fd})
	for w := range 3 {
		lines(a.read(filepath.Join(dir, fmt.Sprintf("worker-%d.jsonl", w))))
	}
	sort.Strings(got)
	sort.Strings(want)
	require.Equal(t, want, got)
	require.Contains(t, a.read(filepath.Join(dir, "status")), "last") // it renders
	require.True(t, json.Valid([]byte(a.read(filepath.Join(dir, "dataset.json")))))
}

// asNobody runs a script as another user, with $0 for a directory.
func asNobody(t *testing.T, script, dir string) (string, error) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script, dir)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "LC_ALL=C") // its messages are checked
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestOtherUsers(t *testing.T) {
	needFUSE(t)
	if os.Geteuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	for _, allowed := range []bool{false, true} {
		dir, d := serve.ShortDir(t), newFakeDataset(1)
		m, err := newMount(t.Context(), Config{Dataset: d, Rings: ringed, MountPoint: dir, AllowOther: allowed}, d.set)
		require.NoError(t, err)
		for _, c := range []struct {
			script string
			works  bool
		}{
			{`cat "$0"/worker-0.rec > /dev/null`, allowed},
			{`cat "$0"/epoch-7/from-3/worker-1-of-2.ids > /dev/null`, allowed},
			{`cat "$0"/checkpoint "$0"/status > /dev/null`, allowed},
			{`echo '{"epoch": 1}' > "$0"/checkpoint`, false},
			{`echo x > "$0"/scratch`, false},
			{`rm "$0"/checkpoint`, false},
		} {
			out, err := asNobody(t, c.script, dir)
			require.Equal(t, c.works, err == nil, "%s: %s", c.script, out)
		}
		require.EqualValues(t, 0, m.tree.view.Load().position.Epoch)
		require.NoError(t, m.Unmount(t.Context()))
	}
}

// A copy of a mount lives on in a container while something else is mounted at its place. The
// kernel gives that the number of the old mount again.
func TestUnmountLeavesWhatIsAtItsPlaceByNow(t *testing.T) {
	needFUSE(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a tmpfs")
	}
	dir, elsewhere, d := newPoint(t), newPoint(t), newFakeDataset(1)
	m, err := newMount(t.Context(), Config{Dataset: d, Rings: ringed, MountPoint: dir}, d.set)
	require.NoError(t, err)
	require.NoError(t, unix.Mount(dir, elsewhere, "", unix.MS_BIND, ""))
	require.NoError(t, unix.Unmount(dir, 0))
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"))
	precious := filepath.Join(dir, "precious")
	require.NoError(t, os.WriteFile(precious, []byte("data"), 0o644))

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorContains(t, m.Unmount(ended), "a copy of it in a container")
	require.FileExists(t, precious)
	require.NoError(t, unix.Unmount(elsewhere, 0))
	require.NoError(t, m.Wait())
	require.NoError(t, m.Unmount(t.Context()))
	require.FileExists(t, precious)
	require.NoError(t, unix.Unmount(dir, 0))
}

func TestUnmountLeavesMountOnTopOfIt(t *testing.T) {
	needFUSE(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a tmpfs")
	}
	m := mount(t, 1)
	require.NoError(t, unix.Mount("tmpfs", m.dir, "tmpfs", 0, "size=1m"))
	require.ErrorContains(t, m.Unmount(t.Context()), "another file system (tmpfs) is mounted on top of this one")
	require.NoError(t, unix.Unmount(m.dir, 0))
	require.NotEmpty(t, m.read(m.path("worker-0.rec")))
}

func TestEachMountHasItsOwnIdentity(t *testing.T) {
	identity := func(m *mounted) string {
		var s Status
		require.NoError(t, json.Unmarshal([]byte(m.read(m.path("status.json"))), &s))
		require.Equal(t, m.Identity(), s.MountID)
		return s.MountID
	}
	m := mount(t, 1)
	first := identity(m)
	require.Equal(t, syscall.Errno(0), m.write(`{"epoch": 1}`))
	require.Equal(t, first, identity(m), "a restore does not change it")
	require.NotEqual(t, first, identity(mount(t, 1)))
}

func TestCeilingReadsLikeAnyStream(t *testing.T) {
	needFUSE(t)
	const size = 3<<20 + 17
	dir := newPoint(t)
	m, err := NewCeiling(t.Context(), CeilingConfig{Rings: ringed, MountPoint: dir, StreamBytes: size, Log: discard})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		require.NoError(t, m.Unmount(ctx))
	})
	a := newAgent(t)
	got := a.read(filepath.Join(dir, "epoch-3", "worker-1-of-4"+CeilingExtension))
	require.Len(t, got, size)
	for i := range got {
		if got[i] != byte(i*7) {
			t.Fatalf("byte %d is %d", i, got[i])
		}
	}
	out, code := run(t, dir, "cmp", "-i", "1000001:1", "worker-0.bin", "epoch-0/worker-0-of-1.bin")
	require.Equal(t, 1, code, "other places have other bytes: %s", out)
	out, code = run(t, dir, "cmp", "-n", "2000000", "-i", "1000001:65", "worker-0.bin", "epoch-0/worker-0-of-1.bin")
	require.Zero(t, code, "bytes at a place don't depend on how it is read: %s", out)
}
