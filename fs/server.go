package fs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
)

// Server is the process that serves a mount, seen from another process. Until Close, its number
// can't be reused by a new process.
type Server struct {
	PID int
	fd  int // from pidfd_open(2)
}

// FindServer finds the process that serves a mount of lsiofs. It returns nil if the process can't
// be seen from here: it runs in another container, belongs to another user, or has ended. A kernel
// before 6.16 does not show which process it is: then FindServer asks the mount.
func FindServer(m MountEntry) *Server {
	pid, old := serverIn("/proc", m)
	if pid == 0 && old {
		pid = serverSays(m)
	}
	return serverOf(m, pid)
}

// FindServerUnasked is FindServer, but it does not ask the mount, so that a mount whose server is
// stopped does not become busy. On a kernel before 6.16 it finds only said, the process that the
// mount has named; 0 if it has named none.
func FindServerUnasked(m MountEntry, said int) *Server {
	pid, old := serverIn("/proc", m)
	if pid == 0 && old {
		pid = said
	}
	return serverOf(m, pid)
}

// serverOf returns the process with a number if it serves a mount, otherwise nil.
func serverOf(m MountEntry, pid int) *Server {
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

// StoppedError returns the error of a mount at point whose server this is if the process is stopped,
// otherwise nil. It does not ask the mount. The error wraps ErrSilent.
func (s *Server) StoppedError(point string) error {
	if !s.Stopped() {
		return nil
	}
	return fmt.Errorf("%s: %w (process %d, by SIGSTOP or Ctrl-Z): kill -CONT %d resumes it; lsiofs umount --lazy %s removes the mount", point, errStopped, s.PID, s.PID, point)
}

// HasEnded reports whether the process has ended.
func (s *Server) HasEnded() bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}, 0)
	return n == 1 && err == nil
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

// ErrSilent means that a file system does not answer.
var ErrSilent = errors.New("it does not answer")

// How long a mount has to answer: longer than a very busy machine takes, but less if its server is
// seen to be stopped.
const (
	answerTime  = 12 * time.Second
	stoppedTime = 2 * time.Second
)

// Answers waits until the file system that path is on responds, even with an error. If it does not,
// the returned error names the server that has stopped, and wraps ErrSilent: any other access to
// the path would hang until the server resumes.
func Answers(ctx context.Context, path string) error {
	return answers(ctx, path, stoppedTime, answerTime)
}

// answers is Answers. From soon on it gives up if the server is seen to be stopped, and after bound
// in any case.
func answers(ctx context.Context, path string, soon, bound time.Duration) error {
	return filesystem.AwaitAnswer(ctx, path, soon, soon, func(path string, waited time.Duration) error {
		if err := Silence(path, bound); waited >= bound || errors.Is(err, errStopped) {
			return err
		}
		return nil
	})
}

// errStopped is ErrSilent for a server that is stopped.
var errStopped = fmt.Errorf("%w: its server is stopped", ErrSilent)

// Silence returns what is known about why a path, which must be absolute, does not answer.
func Silence(path string, waited time.Duration) error {
	m, found := holding(path)
	if !found {
		return fmt.Errorf("%s: %w for %v: the server of its file system may be unreachable; try again when ls %s answers", path, ErrSilent, waited, path)
	}
	s := FindServer(m)
	if s == nil {
		return fmt.Errorf("%s: %w for %v: its server is not visible from here and may be stopped (docker pause, SIGSTOP); lsiofs umount --lazy %s removes the mount", m.Point, ErrSilent, waited, m.Point)
	}
	defer s.Close()
	if err := s.StoppedError(m.Point); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w for %v: its server is process %d, which may be paused or overloaded; lsiofs umount --lazy %s removes the mount", m.Point, ErrSilent, waited, s.PID, m.Point)
}

// holding returns the mount of lsiofs that contains path, which must be absolute. It goes by the
// name alone.
func holding(path string) (MountEntry, bool) {
	mounts, err := Mounts()
	if err != nil {
		return MountEntry{}, false
	}
	for dir := path; ; dir = filepath.Dir(dir) {
		if m, found := TopMount(mounts, dir); found {
			return m, m.Type == FileSystemType
		}
		if dir == "/" {
			return MountEntry{}, false
		}
	}
}
