package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/mounts"
)

// containerDir is the variable that makes the test's program act as a container. Its value is the
// directory that the container shares.
const containerDir = "LSIOFS_CSI_TEST_CONTAINER"

// contain makes the driver's process the first one in namespaces of its own.
func (d *driver) contain() {
	d.cmd.Args = append([]string{os.Args[0], d.cmd.Path}, d.cmd.Args[1:]...)
	d.cmd.Path = os.Args[0]
	d.cmd.Env = append(d.cmd.Env, containerDir+"="+d.dir)
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
}

// beContainer becomes the program in the arguments. Before that it unmounts everything except dir:
// a namespace that kept copies of other tests' mounts would keep those alive.
func beContainer(dir string) error {
	t, err := mounts.Read()
	if err != nil {
		return err
	}
	for _, private := range []bool{true, false} { // private first, so that none of it is visible outside
		for _, m := range t {
			if m.Point == dir || strings.HasPrefix(m.Point, dir+"/") {
				continue
			}
			if private {
				err = unix.Mount("", m.Point, "", unix.MS_PRIVATE, "")
			} else if strings.HasPrefix(m.Type, "fuse") {
				err = unix.Unmount(m.Point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			}
			if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // others may unmount at the same time
				return err
			}
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	if err := os.Unsetenv(containerDir); err != nil {
		return err
	}
	return syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
}

// The driver has its own mount and PID namespaces, and the node's directory with propagation both
// ways, as in the DaemonSet. Processes of the next container may have the same numbers.
func TestContainerMountsForNodeAndNextContainerRepairsMounts(t *testing.T) {
	d, data := newNode(t), dataset(t)
	require.NoError(t, unix.Mount(d.dir, d.dir, "", unix.MS_BIND, ""))
	t.Cleanup(func() { d.kill(); require.NoError(t, unix.Unmount(d.dir, unix.MNT_DETACH)) })
	require.NoError(t, unix.Mount("", d.dir, "", unix.MS_PRIVATE, ""))
	require.NoError(t, unix.Mount("", d.dir, "", unix.MS_SHARED, ""))
	d.alone = true
	d.start()
	a, b := pod{name: "a", attributes: map[string]string{"dataset": data}}, pod{name: "b", attributes: map[string]string{"dataset": data}}
	want := stream(t, data)
	require.NoError(t, d.publish(a))
	d.requireReads(a, "worker-0.jsonl", want)
	require.Len(t, d.servers(), 1)

	d.kill()
	require.Eventually(t, func() bool { return len(d.servers()) == 0 }, patience, 1e6)
	d.requireDead(a)
	d.start()
	require.NoError(t, d.publish(b))
	d.requireReads(b, "worker-0.jsonl", want)
	d.until(func() bool { _, err := d.read(a, "worker-0.jsonl"); return err == nil })
	d.requireReads(a, "worker-0.jsonl", want)
	require.Len(t, d.servers(), 1)
	d.unpublish(a)
	d.unpublish(b)
	d.requireNothingLeft()
	_, err := os.Lstat(filepath.Dir(d.target(a)))
	require.NoError(t, err)
}
