package servers

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// listens reports whether a process listens on a TCP port. It is not enough that something answers
// there: another process may have taken the port first.
func listens(pid int, port string) bool {
	sockets := listening(port)
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // none if it has ended
	return slices.ContainsFunc(fds, func(fd string) bool {
		target, err := os.Readlink(fd)
		return err == nil && slices.Contains(sockets, target)
	})
}

// listening returns the sockets that listen on a port, as /proc/PID/fd names them.
func listening(port string) (sockets []string) {
	const local, state, inode = 1, 3, 9 // the columns of proc_net_tcp
	const listen = "0A"
	number, _ := strconv.Atoi(port)
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, _ := os.ReadFile(table) // there is no tcp6 without IPv6
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > inode && strings.HasSuffix(f[local], fmt.Sprintf(":%04X", number)) && f[state] == listen {
				sockets = append(sockets, "socket:["+f[inode]+"]")
			}
		}
	}
	return sockets
}
