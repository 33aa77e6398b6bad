package fs

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// deviceOf is the descriptor of /dev/fuse by which this process serves a mount. It keeps it from child processes, too.
// go-fuse has the descriptor and does not show it, so it is looked for in /proc/self.
func deviceOf(m MountEntry) (fd int, found bool) {
	fd, _, found = servingDescriptor("/proc/self", m)
	if found {
		// go-fuse lets children inherit it, and the connection would live as long as they.
		unix.CloseOnExec(fd)
	}
	return fd, found
}

// servingDescriptor is the descriptor of /dev/fuse by which a process, of which dir is the directory in /proc,
// serves a mount. It is sure where fdinfo has the number of the connection, which is that of the file system's device
// (Linux 6.16). Older kernels do not tell; a server of one mount has one such descriptor anyway.
func servingDescriptor(dir string, m MountEntry) (fd int, sure, found bool) {
	_, number, _ := strings.Cut(m.Device, ":")
	names, err := filepath.Glob(dir + "/fd/*")
	if err != nil {
		return 0, false, false
	}
	for _, name := range names {
		fd, err := strconv.Atoi(filepath.Base(name))
		if target, linkErr := os.Readlink(name); err != nil || linkErr != nil || target != "/dev/fuse" {
			continue
		}
		info, err := os.ReadFile(filepath.Join(dir, "fdinfo", filepath.Base(name)))
		if err != nil {
			continue
		}
		_, tail, told := bytes.Cut(info, []byte("fuse_connection:"))
		if own, _, _ := bytes.Cut(bytes.TrimSpace(tail), []byte("\n")); !told || string(own) == number {
			return fd, told, true
		}
	}
	return 0, false, false
}

// hasEnded says whether the kernel has ended the connection of a descriptor of /dev/fuse: then nobody waits for answers
// any more. It may be asked while the mount is served, no longer: then another file may have the descriptor.
func hasEnded(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1 && p[0].Revents&(unix.POLLERR|unix.POLLNVAL) != 0
}
