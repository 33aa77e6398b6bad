package fs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// connectionOf gives a function that says whether the kernel has ended the FUSE
// connection of a mount that this process serves: then nobody waits for
// answers any more. It keeps the descriptor from child processes, too. go-fuse has the connection's descriptor and does not show it, so
// it is looked for in /proc/self. nil where it is not found.
//
// The function may be called while the mount is served, no longer: then another file
// may have the descriptor.
func connectionOf(m MountEntry) func() bool {
	_, number, _ := strings.Cut(m.Device, ":")
	names, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return nil
	}
	for _, name := range names {
		fd, err := strconv.Atoi(filepath.Base(name))
		if target, linkErr := os.Readlink(name); err != nil || linkErr != nil || target != "/dev/fuse" {
			continue
		}
		// In newer kernels fdinfo has the number of the connection, which is that of the
		// file system's device. A server of one mount has one such descriptor anyway.
		info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
		if err != nil {
			continue
		}
		_, tail, told := bytes.Cut(info, []byte("fuse_connection:"))
		if own, _, _ := bytes.Cut(bytes.TrimSpace(tail), []byte("\n")); !told || string(own) == number {
			// go-fuse lets children inherit it, and the connection would live as long as they.
			unix.CloseOnExec(fd)
			return func() bool { return hasEnded(fd) }
		}
	}
	return nil
}

// hasEnded says whether poll shows an error of the descriptor.
func hasEnded(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1 && p[0].Revents&(unix.POLLERR|unix.POLLNVAL) != 0
}
