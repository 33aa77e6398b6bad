package killing

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// changing are the calls that the kernel asks about: the number of the argument that identifies
// what they change, and whether that is an open file; otherwise it is a directory, and a path
// follows.
var changing = map[uint32]struct {
	name     string
	argument int
	open     bool
}{
	unix.SYS_OPENAT:    {"openat", 0, false}, // if it creates or truncates a file
	unix.SYS_MKDIRAT:   {"mkdirat", 0, false},
	unix.SYS_UNLINKAT:  {"unlinkat", 0, false},
	unix.SYS_SYMLINKAT: {"symlinkat", 1, false},
	unix.SYS_LINKAT:    {"linkat", 2, false},
	unix.SYS_RENAMEAT:  {"renameat", 2, false},
	unix.SYS_RENAMEAT2: {"renameat2", 2, false},
	unix.SYS_FCHMODAT:  {"fchmodat", 0, false},
	unix.SYS_UTIMENSAT: {"utimensat", 0, false},
	unix.SYS_WRITE:     {"write", 0, true},
	unix.SYS_WRITEV:    {"writev", 0, true},
	unix.SYS_PWRITE64:  {"pwrite64", 0, true},
	unix.SYS_PWRITEV:   {"pwritev", 0, true},
	unix.SYS_FSYNC:     {"fsync", 0, true},
	unix.SYS_FDATASYNC: {"fdatasync", 0, true},
	unix.SYS_FTRUNCATE: {"ftruncate", 0, true},
	unix.SYS_FALLOCATE: {"fallocate", 0, true},
	unix.SYS_FCHMOD:    {"fchmod", 0, true},
}

// Offsets in the kernel's struct seccomp_data.
const (
	numberAt = 0
	flagsAt  = 16 + 2*8 // the third argument of openat
)

// filter asks about these calls, and allows all others.
func filter() []unix.SockFilter {
	const load, equal, set, answer = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	f := []unix.SockFilter{{Code: load, K: numberAt}}
	for number := range changing {
		if number == unix.SYS_OPENAT {
			continue
		}
		f = append(f, unix.SockFilter{Code: equal, K: number, Jf: 1}, unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_USER_NOTIF})
	}
	return append(f,
		unix.SockFilter{Code: equal, K: unix.SYS_OPENAT, Jf: 3},
		unix.SockFilter{Code: load, K: flagsAt},
		unix.SockFilter{Code: set, K: unix.O_CREAT | unix.O_TRUNC, Jf: 1},
		unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_USER_NOTIF},
		unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ALLOW},
	)
}

// become sends the test the file descriptor for the kernel's questions, and executes a program.
func become(args []string) error {
	runtime.LockOSThread() // the filter is this thread's, and exec replaces it by the program
	const socket = 3
	unix.CloseOnExec(socket)
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl: %w", err)
	}
	environment := slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, variable+"=") })
	f := filter()
	program := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	listener, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	if err := unix.Sendmsg(socket, []byte{0}, unix.UnixRights(int(listener)), nil, 0); err != nil {
		return fmt.Errorf("sendmsg: %w", err)
	}
	return fmt.Errorf("%s: %w", args[0], unix.Exec(args[0], args, environment))
}

// sockets returns a connected pair.
func sockets() (a, b *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs"), nil
}

// receive receives the descriptor that become sends.
func receive(from *os.File) (listener int, err error) {
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(int(from.Fd()), make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return 0, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return 0, err
	}
	if len(messages) == 0 {
		return 0, errors.New("it ended")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return 0, err
	}
	return fds[0], nil
}

// question is the kernel's struct seccomp_notif: may this call continue?
type question struct {
	id        uint64
	thread    uint32
	_         uint32
	number    int32
	_         uint32
	_         uint64
	arguments [6]uint64
}

// answer is the kernel's struct seccomp_notif_resp.
type answer struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// ask waits for the next question; io.EOF means that the program has ended.
func ask(listener int) (*question, error) {
	for {
		p := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(p, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return nil, err
		}
		if p[0].Revents&unix.POLLIN == 0 {
			return nil, io.EOF
		}
		q := &question{}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(q)))
		switch errno {
		case 0:
			return q, nil
		case unix.ENOENT, unix.EINTR: // the thread was killed, or asks again
		default:
			return nil, fmt.Errorf("seccomp: %w", errno)
		}
	}
}

// goOn lets a call continue.
func (q *question) goOn(listener int) error {
	a := answer{id: q.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&a)))
	if errno != 0 && errno != unix.ENOENT { // the thread was killed, or asks again
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}

// call describes the call. Its path is empty if the program has ended meanwhile.
func (q *question) call() Call {
	about := changing[uint32(q.number)]
	c := Call{Name: about.name}
	proc := func(name string) string { return fmt.Sprintf("/proc/%d/%s", q.thread, name) }
	if about.open {
		c.Path, _ = os.Readlink(proc(fmt.Sprintf("fd/%d", int32(q.arguments[about.argument]))))
		return c
	}
	c.Path = text(proc("mem"), int64(q.arguments[about.argument+1]))
	if filepath.IsAbs(c.Path) {
		return c
	}
	from := proc("cwd")
	if fd := int32(q.arguments[about.argument]); fd != unix.AT_FDCWD {
		from = proc(fmt.Sprintf("fd/%d", fd))
	}
	dir, _ := os.Readlink(from)
	c.Path = filepath.Join(dir, c.Path)
	return c
}

// text reads a C string from the memory of a process.
func text(memory string, at int64) string {
	f, err := os.Open(memory)
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, unix.PathMax)
	n, _ := f.ReadAt(b, at)
	s, _, _ := bytes.Cut(b[:n], []byte{0})
	return string(s)
}
