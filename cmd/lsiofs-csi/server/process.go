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

// boot is this boot of the machine.
var boot = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
})

// identify names a process that lives; one that has ended and was not yet waited for does not.
func identify(pid int) (state.Process, error) {
	id, err := boot()
	if err != nil {
		return state.Process{}, err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return state.Process{}, err
	}
	// The second field, the name, may hold anything; it ends with the last ")".
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const start = 22 - 3
	if len(fields) <= start {
		return state.Process{}, fmt.Errorf("/proc/%d/stat has too few fields", pid)
	}
	if s := fields[0][0]; s == 'Z' || s == 'X' {
		return state.Process{}, unix.ESRCH
	}
	ticks, err := strconv.ParseUint(string(fields[start]), 10, 64)
	return state.Process{PID: pid, Ticks: ticks, Boot: id}, err
}

// open gives a pidfd of a process that still is the one that was stored, and not another of the
// same number.
func open(p state.Process) (*os.File, error) {
	if p.PID <= 0 {
		return nil, unix.ESRCH
	}
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), fmt.Sprintf("process %d", p.PID))
	if now, err := identify(p.PID); err != nil || now != p {
		return nil, errors.Join(unix.ESRCH, f.Close())
	}
	return f, nil
}

// waitFor waits until the process has ended, or until the pidfd is closed: then it gives false.
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

// signal sends a signal to the very process of a pidfd.
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

// Kill ends a process that may or may not live, at once, and waits for its end. What it has
// mounted stays behind, dead.
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
