package fs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// client is the thread that waits for the answer to a request. It is observed through the files
// stat and status in /proc, which, unlike others there, don't wait for a lock held during a stalled
// page fault. The zero value can't be observed.
type client struct {
	// thread is its number in the PID namespace of the mount, 0 if it has none there.
	thread uint32
	// seen is set if /proc shows the thread; started is its start time, in ticks since boot. A
	// later thread with the same number has a later start time.
	seen    bool
	started uint64
}

// fate is what happens to a client.
type fate int

const (
	unseen fate = iota
	lives
	dies
)

// meet looks at the thread for the first time, while it is certainly waiting: what /proc does not
// show now, it will not show later.
func (c *client) meet() {
	if c.thread != 0 && ownProc() {
		started, err := startOf(c.thread)
		c.started, c.seen = started, err == nil
	}
}

// look reports whether the thread is dying, and so will not see the answer.
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
	default: // out of descriptors or memory: look again later
		return lives
	}
}

// endsByDefault are the signals that kill a process without a handler for them. For most of them
// the kernel adds SIGKILL, but those that dump core stay pending as themselves until the thread
// leaves the kernel.
const endsByDefault = ^uint64(1<<(syscall.SIGCHLD-1) | 1<<(syscall.SIGCONT-1) | 1<<(syscall.SIGSTOP-1) | 1<<(syscall.SIGTSTP-1) |
	1<<(syscall.SIGTTIN-1) | 1<<(syscall.SIGTTOU-1) | 1<<(syscall.SIGURG-1) | 1<<(syscall.SIGWINCH-1))

// fateOf reads a thread's file status (proc_pid_status(5)). The kernel makes SIGKILL pending for
// each thread of a process that must end.
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

// startOf returns when a thread started, in ticks since boot: field 22 of its file stat
// (proc_pid_stat(5)).
func startOf(thread uint32) (ticks uint64, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", thread))
	if err != nil {
		return 0, err
	}
	// The second field, the name, may contain anything; it ends at the last ")".
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const start = 22 - 3
	if len(fields) <= start {
		return 0, fmt.Errorf("/proc/%d/stat has too few fields", thread)
	}
	return strconv.ParseUint(string(fields[start]), 10, 64)
}

// ownProc reports whether /proc shows the processes of this PID namespace, so that its numbers are
// those that FUSE reports.
func ownProc() bool {
	self, err := os.Readlink("/proc/self")
	return err == nil && self == strconv.Itoa(os.Getpid())
}
