package server

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/state"
)

// boot returns the ID of the machine's current boot.
var boot = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
})

// identify returns the identity of a process, and reports whether it is alive. A zombie is not.
func identify(pid int) (p state.Process, lives bool, err error) {
	id, err := boot()
	if err != nil {
		return p, false, err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, false, err
	}
	// The second field, the name, may contain anything. It ends with the last ")".
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const start = 22 - 3
	if len(fields) <= start {
		return p, false, fmt.Errorf("/proc/%d/stat has too few fields", pid)
	}
	s := fields[0][0]
	ticks, err := strconv.ParseUint(string(fields[start]), 10, 64)
	return state.Process{PID: pid, Ticks: ticks, Boot: id}, s != 'Z' && s != 'X', err
}

// open returns a pidfd of the stored process, and not of another one with the same number.
func open(p state.Process) (*os.File, error) {
	if p.PID <= 0 {
		return nil, unix.ESRCH
	}
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), fmt.Sprintf("process %d", p.PID))
	if now, lives, err := identify(p.PID); err != nil || !lives || now != p {
		return nil, errors.Join(unix.ESRCH, f.Close())
	}
	return f, nil
}

// waitFor waits until the process has ended, and returns true, or until the pidfd is closed, and
// returns false.
func waitFor(pidfd *os.File) bool {
	conn, err := pidfd.SyscallConn()
	if err != nil {
		return false
	}
	return conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return err == nil && n == 1
	}) == nil
}

// signal sends a signal to exactly the process of a pidfd.
func signal(pidfd *os.File, s unix.Signal) error {
	conn, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := conn.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), s, nil, 0) }); err != nil {
		return err
	}
	return sent
}

// Kill kills a process if it is alive, and waits for its end. A mount that it made stays behind,
// dead.
func Kill(p state.Process) error {
	f, err := open(p)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", p.PID, err)
	}
	defer f.Close()
	if err := signal(f, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: %w", p.PID, err)
	}
	waitFor(f)
	return nil
}
