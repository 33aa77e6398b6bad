package fs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Server is the process that serves a mount, seen from another process. Until Close, its number
// can't be reused by a new process.
type Server struct {
	PID int
	fd  int // from pidfd_open(2)
}

// FindServer finds the process that serves a mount of lsiofs. It returns nil if the process can't
// be seen from here: it runs in another container, belongs to another user, or has ended.
func FindServer(m MountEntry) *Server {
	pid, old := serverIn("/proc", m)
	if pid == 0 && old {
		pid = serverSays(m)
	}
	if pid == 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil
	}
	s := &Server{PID: pid, fd: fd}
	// It may have ended before the descriptor was opened, and the number may belong to another
	// process.
	if _, _, found := servingDescriptor(fmt.Sprintf("/proc/%d", pid), m); !found {
		s.Close()
		return nil
	}
	return s
}

// serverIn looks for the server through a proc file system; old reports whether this kernel does
// not show which connection a descriptor belongs to. It checks processes with this program's name
// first, since the others may be many.
func serverIn(proc string, m MountEntry) (pid int, old bool) {
	dirs, err := os.ReadDir(proc)
	if err != nil {
		return 0, false
	}
	name := commOf(filepath.Join(proc, "self"))
	for _, alike := range []bool{true, false} {
		for _, d := range dirs {
			pid, err := strconv.Atoi(d.Name())
			dir := filepath.Join(proc, d.Name())
			if err != nil || bytes.Equal(commOf(dir), name) != alike {
				continue
			}
			_, sure, found := servingDescriptor(dir, m)
			if sure {
				return pid, false
			}
			old = old || found
		}
	}
	return 0, old
}

func commOf(dir string) []byte {
	name, _ := os.ReadFile(filepath.Join(dir, "comm")) // empty if the process is gone
	return name
}

// serverSays asks the mount itself, which does not answer if its server is stopped.
func serverSays(m MountEntry) int {
	if s := m.Status(stoppedTime); s != nil {
		return s.Process.PID
	}
	return 0
}

// Status reads a mount's status.json. It returns nil if that does not come in time or is invalid.
func (m MountEntry) Status(limit time.Duration) *Status {
	read := make(chan *Status, 1)
	go func() { // ends with the process at the latest
		s := new(Status)
		if text, err := os.ReadFile(filepath.Join(m.Point, nameStatusJSON)); err != nil || json.Unmarshal(text, s) != nil {
			s = nil
		}
		read <- s
	}()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case s := <-read:
		return s
	case <-late.C:
		return nil
	}
}

// Stopped reports whether the process is stopped, by SIGSTOP, Ctrl-Z, or a debugger.
func (s *Server) Stopped() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID))
	if err != nil {
		return false
	}
	// The name before the state may contain spaces and parentheses.
	_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return bytes.HasPrefix(state, []byte("T")) || bytes.HasPrefix(state, []byte("t"))
}

// Ended waits until the process or ctx has ended, and reports whether the process has.
func (s *Server) Ended(ctx context.Context) bool {
	p := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}
	for {
		if n, err := unix.Poll(p, 50); n == 1 && err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
	}
}

// Close closes the descriptor.
func (s *Server) Close() { _ = unix.Close(s.fd) }

// Elsewhere finds a process that sees a mount's file system at another place, such as in a
// container or another mount namespace: it stays mounted there when it has been unmounted here. The
// result describes the place, and is "" if none can be seen.
func (m MountEntry) Elsewhere() (process string) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return ""
	}
	seen := map[string]bool{}
	for _, dir := range append([]string{"/proc/self"}, dirs...) {
		namespace, err := os.Readlink(dir + "/ns/mnt")
		if err != nil || seen[namespace] {
			continue
		}
		seen[namespace] = true
		f, err := os.Open(dir + "/mountinfo")
		if err != nil {
			continue
		}
		mounts, _ := parseMounts(f) // as far as it can be read
		_ = f.Close()
		for _, x := range mounts {
			if x.Device == m.Device && x.Type == m.Type {
				if dir == "/proc/self" {
					return "at " + x.Point
				}
				return fmt.Sprintf("in the mount namespace of process %s (%s)", filepath.Base(dir), bytes.TrimSpace(commOf(dir)))
			}
		}
	}
	return ""
}
