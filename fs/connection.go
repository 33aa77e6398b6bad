package fs

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// deviceOf returns the descriptor of /dev/fuse through which this process serves a mount, and makes
// it close on exec. go-fuse does not expose the descriptor, so it is looked up in /proc/self.
func deviceOf(m MountEntry) (fd int, found bool) {
	fd, _, found = servingDescriptor("/proc/self", m)
	if found {
		// go-fuse lets children inherit it, and then the connection would live as long as they do.
		unix.CloseOnExec(fd)
	}
	return fd, found
}

// servingDescriptor returns the descriptor of /dev/fuse through which a process, whose directory in
// /proc is dir, serves a mount. It is sure if fdinfo has the number of the connection, which equals
// that of the file system's device (Linux 6.16). Older kernels don't report it, but a server with
// one mount has only one such descriptor anyway.
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

// hasEnded reports whether the kernel has ended the connection of a descriptor of /dev/fuse: then
// no client waits for answers any more. It must be called only while the mount is served, because
// later the descriptor may be another file.
func hasEnded(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1 && p[0].Revents&(unix.POLLERR|unix.POLLNVAL) != 0
}
