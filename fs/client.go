package fs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// client is the thread that waits for the answer to a request, looked at through
// /proc: its files stat and status, which, unlike others there, wait for no lock that
// a stalled page fault holds. The zero value is one that can't be looked at.
type client struct {
	// thread is its number in the PID namespace of the mount, 0 where it has none
	// there.
	thread uint32
	// seen says that /proc shows it. It began at started then, in ticks since the boot:
	// another thread that has its number later began later.
	seen    bool
	started uint64
}

// fate is what becomes of a client.
type fate int

const (
	unseen fate = iota
	lives
	dies
)

// meet looks at the thread for the first time, while it certainly waits: what /proc
// does not show now, it will not show later.
func (c *client) meet() {
	if c.thread != 0 && ownProc() {
		started, err := startOf(c.thread)
		c.started, c.seen = started, err == nil
	}
}

// look says whether the thread is dying, so that it does not see what it is
// answered.
func (c *client) look() fate {
	if !c.seen {
		return unseen
	}
	started, err := startOf(c.thread)
	if err == nil && started != c.started {
		return dies
	}
	var status []byte
	if err == nil {
		status, err = os.ReadFile(fmt.Sprintf("/proc/%d/status", c.thread))
	}
	switch {
	case err == nil:
		return fateOf(status)
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ESRCH):
		return dies
	default: // no descriptor left, no memory: it is looked at again
		return lives
	}
}

// endsByDefault are the signals that a process dies of which has no handler for
// them. The kernel adds SIGKILL for most of them; but those that leave a dump are
// pending as themselves until the thread leaves the kernel.
const endsByDefault = ^uint64(1<<(syscall.SIGCHLD-1) | 1<<(syscall.SIGCONT-1) | 1<<(syscall.SIGSTOP-1) | 1<<(syscall.SIGTSTP-1) |
	1<<(syscall.SIGTTIN-1) | 1<<(syscall.SIGTTOU-1) | 1<<(syscall.SIGURG-1) | 1<<(syscall.SIGWINCH-1))

// fateOf reads a thread's file status (proc_pid_status(5)). The kernel makes SIGKILL
// pending for each thread of a process that is to end.
func fateOf(status []byte) fate {
	const kill = 1 << (syscall.SIGKILL - 1)
	var pending, shared, blocked, ignored, caught, tracer uint64
	for line := range bytes.Lines(status) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		hex := func(to *uint64) { *to, _ = strconv.ParseUint(string(value), 16, 64) }
		switch string(name) {
		case "State":
			if len(value) > 0 && (value[0] == 'Z' || value[0] == 'X') {
				return dies
			}
		case "TracerPid":
			tracer, _ = strconv.ParseUint(string(value), 10, 64)
		case "SigPnd":
			hex(&pending)
		case "ShdPnd":
			hex(&shared)
		case "SigBlk":
			hex(&blocked)
		case "SigIgn":
			hex(&ignored)
		case "SigCgt":
			hex(&caught)
		}
	}
	pending |= shared
	if pending&kill != 0 {
		return dies
	}
	// A tracer may keep the signal from the process.
	if tracer == 0 && pending&endsByDefault&^(blocked|ignored|caught) != 0 {
		return dies
	}
	return lives
}

// startOf is when a thread began, in ticks since the boot: field 22 of its file stat
// (proc_pid_stat(5)).
func startOf(thread uint32) (ticks uint64, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", thread))
	if err != nil {
		return 0, err
	}
	// The second field, the name, may hold anything; it ends with the last ")".
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const start = 22 - 3
	if len(fields) <= start {
		return 0, fmt.Errorf("/proc/%d/stat has too few fields", thread)
	}
	return strconv.ParseUint(string(fields[start]), 10, 64)
}

// ownProc says whether /proc shows the processes of this PID namespace, so that
// numbers there mean those that FUSE tells.
func ownProc() bool {
	self, err := os.Readlink("/proc/self")
	return err == nil && self == strconv.Itoa(os.Getpid())
}
