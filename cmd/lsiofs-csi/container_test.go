package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestADriverInAContainerMountsForTheNodeAndIsMendedByTheNextContainer: it has a mount and a PID namespace of its own, and the node's directory
// with propagation both ways, as the DaemonSet says. The next container's processes may have the same numbers.
func TestADriverInAContainerMountsForTheNodeAndIsMendedByTheNextContainer(t *testing.T) {
	d, data := newNode(t), dataset(t)
	unshare := program(t, "unshare")
	require.NoError(t, unix.Mount(d.dir, d.dir, "", unix.MS_BIND, ""))
	t.Cleanup(func() { d.kill(); require.NoError(t, unix.Unmount(d.dir, unix.MNT_DETACH)) })
	require.NoError(t, unix.Mount("", d.dir, "", unix.MS_PRIVATE, ""))
	require.NoError(t, unix.Mount("", d.dir, "", unix.MS_SHARED, ""))
	d.in = []string{unshare, "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "unchanged"}
	d.start()
	a, b := pod{name: "a", attributes: map[string]string{"dataset": data}}, pod{name: "b", attributes: map[string]string{"dataset": data}}
	want := stream(t, data)
	require.NoError(t, d.publish(a))
	d.requireReads(a, "worker-0.jsonl", want)
	require.Len(t, d.servers(), 1)

	d.kill()
	require.Eventually(t, func() bool { return len(d.servers()) == 0 }, patience, 1e6)
	_, err := d.read(a, "worker-0.jsonl")
	require.ErrorIs(t, err, syscall.ENOTCONN, "not an empty directory")
	d.start()
	require.NoError(t, d.publish(b))
	d.requireReads(b, "worker-0.jsonl", want)
	require.Eventually(t, func() bool { _, err := d.read(a, "worker-0.jsonl"); return err == nil }, patience, 1e7)
	d.requireReads(a, "worker-0.jsonl", want)
	require.Len(t, d.servers(), 1)
	d.unpublish(a)
	d.unpublish(b)
	d.requireNothingLeft()
	_, err = os.Lstat(filepath.Dir(d.target(a)))
	require.NoError(t, err)
}
