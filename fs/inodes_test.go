package fs

import (
	"context"
	"strings"
	"syscall"
	"testing"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

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
