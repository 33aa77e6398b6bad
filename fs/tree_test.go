package fs

import (
	"context"
	"fmt"
	"math"
	"strings"
	"syscall"
	"testing"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

func TestListingShowsFilesOfMountWorkers(t *testing.T) {
	m := mount(t, 2)
	require.Equal(t, []string{
		"README", "checkpoint", "dataset.json", "epoch-0", "epoch-1", "metrics", "status", "status.json",
		"worker-0.ids", "worker-0.offsets", "worker-0.rec", "worker-1.ids", "worker-1.offsets", "worker-1.rec",
	}, m.must(call{Op: "list", Path: m.dir}).Names)
	require.Equal(t, []string{
		"worker-0-of-2.ids", "worker-0-of-2.offsets", "worker-0-of-2.rec",
		"worker-1-of-2.ids", "worker-1-of-2.offsets", "worker-1-of-2.rec",
	}, m.must(call{Op: "list", Path: m.path("epoch-0")}).Names)
	require.Equal(t, append([]string{"checkpoint"}, m.must(call{Op: "list", Path: m.path("epoch-0")}).Names...),
		m.must(call{Op: "list", Path: m.path("epoch-77", "from-3")}).Names)
}

func TestExistingAndMissingPaths(t *testing.T) {
	m := mount(t, 2)
	for _, path := range []string{
		"epoch-0/worker-0-of-4.rec", "epoch-0/worker-3-of-4.ids", "epoch-5/worker-65535-of-65536.offsets",
		"epoch-18446744073709551615/worker-0-of-1.rec", "epoch-0/from-0/worker-0-of-1.rec", "epoch-0/from-1000/worker-0-of-1.rec",
		"worker-1.offsets", "epoch-3/from-7", "epoch-3/from-7/checkpoint", "README", "status", "status.json", "metrics", "dataset.json", "checkpoint",
	} {
		require.Equal(t, syscall.Errno(0), m.do(call{Op: "stat", Path: m.path(path)}).Errno, path)
	}
	for _, path := range []string{
		"worker-2.rec", "worker-01.rec", "worker-0-of-2.rec", "worker-0.tar", "worker-0",
		"epoch-00", "epoch-01", "epoch--1", "epoch-x", "epoch-", "epoch-18446744073709551616", "epoch-0x1",
		"epoch-0/worker-5-of-4.rec", "epoch-0/worker-4-of-4.rec", "epoch-0/worker-0-of-0.rec", "epoch-0/worker-0-of-65537.rec",
		"epoch-0/worker-0.rec", "epoch-0/worker-0-of-04.rec", "epoch-0/from-1099511627776", "epoch-0/from-01", "epoch-0/from-x",
		"epoch-0/from-1/from-1", "epoch-0/README", "epoch-0/checkpoint", "from-1", "nothing",
	} {
		require.Equal(t, syscall.ENOENT, m.do(call{Op: "stat", Path: m.path(path)}).Errno, path)
	}
	require.Equal(t, syscall.ENOTDIR, m.do(call{Op: "stat", Path: m.path("worker-0.rec", "x")}).Errno)
}

func TestSizesAndBytesAreExact(t *testing.T) {
	m := mount(t, 2)
	from := func(n uint64) []order.Done { return []order.Done{order.First(n, m.data.spec.Order)} }
	for _, c := range []struct {
		dir string
		at  checkpoint.Position
		of  uint64
	}{
		{"", checkpoint.Position{}, 2},
		{"epoch-0", checkpoint.Position{}, 2},
		{"epoch-0", checkpoint.Position{}, 3},
		{"epoch-4", checkpoint.Position{Epoch: 4}, 1},
		{"epoch-4/from-10", checkpoint.Position{Epoch: 4, Done: from(10)}, 5},
		{"epoch-0/from-1000", checkpoint.Position{Done: from(1000)}, 1},
		{fmt.Sprintf("epoch-%d", uint64(math.MaxUint64)), checkpoint.Position{Epoch: math.MaxUint64}, 2},
	} {
		for w := range c.of {
			want := m.expect(c.at, w, c.of)
			for _, k := range kinds {
				name := fileName{worker: w, of: c.of, kind: k}
				if c.dir == "" {
					name.of = 0
				}
				path := m.path(c.dir, name.format(".rec"))
				st := m.must(call{Op: "stat", Path: path})
				require.EqualValues(t, len(want[k]), st.Size, path)
				require.EqualValues(t, m.tree.blockBytes, st.Blksize)
				require.EqualValues(t, (len(want[k])+511)/512, st.Blocks)
				require.Equal(t, string(want[k]), m.read(path), path)
				require.Equal(t, string(want[k]), m.read(path), "%s read again", path)
			}
		}
	}
	for _, name := range []string{"README", "dataset.json", "checkpoint"} {
		require.EqualValues(t, len(m.read(m.path(name))), m.must(call{Op: "stat", Path: m.path(name)}).Size, name)
	}
}

func TestReadsAtUnusualOffsets(t *testing.T) {
	m := mount(t, 1)
	want := m.expect(checkpoint.Position{}, 0, 1)
	for _, k := range kinds {
		b := want[k]
		fd := m.open(m.path(fileName{kind: k}.format(".rec")), unix.O_RDONLY)
		for _, at := range []struct{ off, n int }{
			{0, 1}, {0, len(b)}, {1, 4095}, {4095, 2}, {7, 8191}, {len(b) - 1, 1}, {len(b) - 1, 100}, {len(b), 10}, {len(b) + 5000, 10},
			{0, len(b) + 1}, {len(b) / 2, len(b)}, {12345 % len(b), 777}, {3, 0},
		} {
			r := m.must(call{Op: "pread", FD: fd, Off: int64(at.off), N: at.n})
			lo, hi := min(at.off, len(b)), min(at.off+at.n, len(b))
			require.Equal(t, string(b[lo:hi]), string(r.Data), "%d bytes at %d", at.n, at.off)
		}
		m.must(call{Op: "close", FD: fd})
	}
}

func TestMappedFilesShowSameBytes(t *testing.T) {
	m := mount(t, 1)
	want := m.expect(checkpoint.Position{}, 0, 1)[stream.Data]
	fd := m.open(m.path("worker-0.rec"), unix.O_RDONLY)
	require.Equal(t, string(want), string(m.must(call{Op: "mmap", FD: fd, N: len(want), Flags: unix.MAP_PRIVATE}).Data))
	if len(m.tree.kernel.get().Lacks) == 0 {
		require.Equal(t, string(want), string(m.must(call{Op: "mmap", FD: fd, N: len(want), Flags: unix.MAP_SHARED}).Data))
	}
	m.must(call{Op: "close", FD: fd})
}

func TestManyConcurrentReaders(t *testing.T) {
	m := mount(t, 4)
	var others []*agent
	for range 4 {
		others = append(others, newAgent(t))
	}
	for round := range 8 {
		for i, a := range others {
			a.start(call{Op: "read", Path: m.path(fmt.Sprintf("worker-%d.rec", (i+round)%4))})
		}
		for i, a := range others {
			want := m.expect(checkpoint.Position{}, uint64(i+round)%4, 4)[stream.Data]
			require.Equal(t, string(want), string(a.wait().Data))
		}
	}
}

func TestTreeIsReadOnly(t *testing.T) {
	m := mount(t, 1)
	for _, path := range []string{"README", "status", "worker-0.rec", "worker-0.ids", "dataset.json", "metrics", "epoch-0/worker-0-of-1.rec", "epoch-0/from-7/checkpoint"} {
		p := m.path(path)
		for _, c := range []call{
			{Op: "open", Path: p, Flags: unix.O_WRONLY}, {Op: "open", Path: p, Flags: unix.O_RDWR}, {Op: "open", Path: p, Flags: unix.O_WRONLY | unix.O_TRUNC},
			{Op: "truncate", Path: p}, {Op: "chmod", Path: p}, {Op: "unlink", Path: p},
			{Op: "rename", Path: p, To: m.path("x")}, {Op: "rename", Path: p, To: m.path("checkpoint")}, {Op: "link", Path: p, To: m.path("y")},
		} {
			require.Equal(t, syscall.EROFS, m.do(c).Errno, "%s %s", c.Op, path)
		}
	}
	for _, c := range []call{
		{Op: "mkdir", Path: m.path("dir")}, {Op: "mkdir", Path: m.path("epoch-0/dir")}, {Op: "rmdir", Path: m.path("epoch-0")},
		{Op: "open", Path: m.path("epoch-0/x"), Flags: unix.O_CREAT | unix.O_WRONLY}, {Op: "open", Path: m.path("worker-9.rec"), Flags: unix.O_CREAT | unix.O_WRONLY},
		{Op: "symlink", Path: m.path("ln"), To: "README"}, {Op: "chmod", Path: m.dir}, {Op: "chmod", Path: m.path("epoch-0")},
		{Op: "rename", Path: m.path("epoch-0"), To: m.path("epoch-9")}, {Op: "rename", Path: m.path("epoch-0/worker-0-of-1.rec"), To: m.path("checkpoint")},
	} {
		require.Equal(t, syscall.EROFS, m.do(c).Errno, "%s %s", c.Op, c.Path)
	}
	require.NotContains(t, m.must(call{Op: "list", Path: m.dir}).Names, "dir")
}

func TestFileKeepsInodeWhileUnchanged(t *testing.T) {
	m := mount(t, 2)
	for _, path := range []string{"worker-0.rec", "worker-1.ids", "epoch-0/worker-0-of-2.rec", "epoch-9/from-3/worker-0-of-1.rec", "README"} {
		// Open, or the kernel may forget it in between, if it is short of memory.
		fd := m.open(m.path(path), unix.O_RDONLY)
		a := m.must(call{Op: "stat", Path: m.path(path)})
		require.Equal(t, a.Ino, newAgent(t).must(call{Op: "stat", Path: m.path(path)}).Ino, path)
		m.must(call{Op: "close", FD: fd})
	}
	require.NotEqual(t, m.must(call{Op: "stat", Path: m.path("worker-0.rec")}).Ino, m.must(call{Op: "stat", Path: m.path("worker-1.rec")}).Ino)
}

func TestREADMENamesRealPaths(t *testing.T) {
	m := mount(t, 2)
	text := m.read(m.path("README"))
	for _, want := range []string{m.path("worker-0.rec"), m.path("worker-1.rec"), m.path("checkpoint"), m.path("status"), m.path("epoch-0", "worker-0-of-4.rec"), "torch"} {
		require.Contains(t, text, want)
	}
	for _, line := range strings.Split(text, "\n") {
		require.LessOrEqual(t, len(strings.ReplaceAll(line, m.dir, "/mnt")), 110, line)
	}
}

// section is the indented text below a heading of README.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n"+heading+"\n\n")
	require.True(t, found, heading)
	var b strings.Builder
	for line := range strings.Lines(rest) {
		if line != "\n" && !strings.HasPrefix(line, "  ") {
			break
		}
		b.WriteString(strings.TrimPrefix(line, "  "))
	}
	return b.String()
}

func TestREADMEProgramsWork(t *testing.T) {
	m := mount(t, 2)
	text := m.read(m.path("README"))
	python := section(t, text, "Python") + `
import sys
n = 0
for w in range(2):
    for r in records(w):
        number, = struct.unpack("<Q", r[:8])
        assert len(r) == 8 + number % 57
        n += 1
assert n == 1000, n
`
	out, code := run(t, "/", "/usr/bin/python3", "-c", python)
	require.Zero(t, code, out)
	dir := t.TempDir()
	out, code = run(t, dir, "sh", "-ec", section(t, text, "Save what your program has used (here 500 records of all workers), and continue there later"))
	require.Zero(t, code, out)
	require.EqualValues(t, 2, m.tree.view.Load().number)
	require.EqualValues(t, 500, m.tree.view.Load().files.Remaining())
	out, code = run(t, dir, "sh", "-ec", section(t, text, "The next epoch"))
	require.Zero(t, code, out)
	require.EqualValues(t, 1, m.epoch())
	paths := section(t, text, "Any epoch, for any number of workers, from any record on, regardless of the checkpoint")
	for path := range strings.Lines(strings.TrimSpace(paths)) {
		require.NotEmpty(t, m.read(strings.Trim(path, "'\n"))) // quoted if the shell needs it
	}
}

func TestInodeNumbersBelowEpochDependOnNames(t *testing.T) {
	m := mount(t, 2)
	inos := func(m *mounted) map[string]uint64 {
		t.Helper()
		numbers, seen := map[string]uint64{}, map[uint64]string{}
		for _, name := range []string{
			"epoch-0", "epoch-7", "epoch-0/from-0", "epoch-0/from-5", "epoch-7/from-5",
			"epoch-0/worker-0-of-2.rec", "epoch-0/worker-0-of-2.ids", "epoch-0/worker-1-of-2.rec", "epoch-0/worker-0-of-1.rec",
			"epoch-7/worker-0-of-2.rec", "epoch-0/from-0/worker-0-of-2.rec", "epoch-0/from-5/worker-0-of-2.rec",
		} {
			n := m.must(call{Op: "stat", Path: m.path(name)}).Ino
			require.Empty(t, seen[n], "%s has a number of its own", name)
			require.Less(t, n, uint64(1)<<63)
			numbers[name], seen[n] = n, name
		}
		return numbers
	}
	before := inos(m)
	forgetAll(m)
	require.Equal(t, before, inos(m), "the kernel has forgotten them")
	require.Equal(t, before, inos(mount(t, 3)), "another mount of the same")
	other := newFakeDataset(2)
	other.spec.Order.Seed++
	for name, n := range inos(mountFake(t, other)) {
		require.NotEqual(t, before[name], n, name)
	}
	require.Zero(t, m.write(`{"epoch": 3}`))
	require.Equal(t, before, inos(m))
}

// forgetAll makes the kernel forget the nodes below epoch-N.
func forgetAll(m *mounted) {
	for name, child := range m.tree.root.Children() {
		if strings.HasPrefix(name, prefixEpoch) {
			for below := range child.Children() {
				child.NotifyEntry(below)
			}
			m.tree.root.NotifyEntry(name)
		}
	}
}

// twins is a directory of two files with the same inode number, but different generations.
type twins struct{ fusefs.Inode }

func (n *twins) OnAdd(ctx context.Context) {
	for generation, name := range []string{"a", "b"} {
		file := &fusefs.MemRegularFile{Data: []byte(name), Attr: fuse.Attr{Mode: 0o444}}
		n.AddChild(name, n.NewPersistentInode(ctx, file, fusefs.StableAttr{Ino: namedIno + 1, Gen: uint64(generation)}), false)
	}
}

// One pair of names in 2⁶² has the same number. They are still two files.
func TestNamesWithSameInodeNumberAreTwoFiles(t *testing.T) {
	needFUSE(t)
	dir := newPoint(t)
	server, err := fusefs.Mount(dir, &twins{}, &fusefs.Options{MountOptions: fuse.MountOptions{DirectMount: true}})
	require.NoError(t, err)
	a := newAgent(t)
	fd := a.open(dir+"/a", unix.O_RDONLY)
	require.Equal(t, "b", a.read(dir+"/b"))
	require.Equal(t, "a", a.read(dir+"/a"))
	require.Equal(t, a.must(call{Op: "stat", Path: dir + "/a"}).Ino, a.must(call{Op: "stat", Path: dir + "/b"}).Ino)
	require.Equal(t, "a", string(a.must(call{Op: "pread", FD: fd, N: 9}).Data))
	a.must(call{Op: "close", FD: fd})
	require.NoError(t, server.Unmount())

	m := mount(t, 1)
	one, other := m.tree.named(syscall.S_IFREG, "epoch-0/worker-0-of-1.rec"), m.tree.named(syscall.S_IFREG, "epoch-1/worker-0-of-1.rec")
	require.NotEqual(t, one.Gen, other.Gen)
	require.Equal(t, one.Ino, m.must(call{Op: "stat", Path: m.path("epoch-0/worker-0-of-1.rec")}).Ino)
}

func TestLookedUpNamesDoNotAccumulate(t *testing.T) {
	m := mount(t, 1)
	m.tree.lookups.mu.Lock()
	m.tree.lookups.kept = 100
	m.tree.lookups.mu.Unlock()
	root := m.tree.root
	open := m.open(m.path("epoch-3/worker-0-of-1.rec"), unix.O_RDONLY)
	before := m.must(call{Op: "fstat", FD: open}).Ino
	for n := range 3000 {
		m.must(call{Op: "stat", Path: m.path(fmt.Sprintf("epoch-%d", n+10))})
	}
	epochs := func() int {
		n := 0
		for name := range root.Children() {
			if strings.HasPrefix(name, prefixEpoch) {
				n++
			}
		}
		return n
	}
	require.Eventually(t, func() bool { return epochs() <= 200 }, callTimeout, hiddenFor/100)
	want := m.expect(checkpoint.Position{Epoch: 3}, 0, 1)[0]
	require.Equal(t, string(want[:50]), string(m.must(call{Op: "pread", FD: open, N: 50}).Data), "what is open stays")
	require.Equal(t, string(want), m.read(m.path("epoch-3/worker-0-of-1.rec")), "and is found again")
	require.Equal(t, before, m.must(call{Op: "stat", Path: m.path("epoch-3/worker-0-of-1.rec")}).Ino)
	require.Equal(t, syscall.Errno(0), m.do(call{Op: "close", FD: open}).Errno)
}

func TestLookupsDropOldestFirst(t *testing.T) {
	dropped := make(chan string, 100)
	l := newLookups(8, func(n lookedUp) { dropped <- n.name })
	for i := range 9 {
		l.add(nil, fmt.Sprint(i))
	}
	for i := range 3 { // one too many, and a quarter of those kept
		require.Equal(t, fmt.Sprint(i), <-dropped)
	}
	l.close()
	l.add(nil, "after the end")
	require.Empty(t, dropped)
}
