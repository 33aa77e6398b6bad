package fs

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// process is a process that reads. In another container its number is 0, and its command empty.
type process struct {
	pid     uint32
	command string // from /proc/PID/comm: without arguments, which may contain secrets
}

// processNamed returns the process that a thread belongs to, with its command.
func processNamed(thread uint32) process {
	p := process{pid: processOf(thread)}
	if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.pid)); err == nil && ownProc() {
		p.command = string(bytes.TrimSpace(comm))
	}
	return p
}

// processOf returns the process that a thread belongs to, because FUSE reports the thread that made
// a request. If /proc does not show it, it returns the thread's number.
func processOf(thread uint32) uint32 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", thread))
	if err != nil || !ownProc() {
		return thread
	}
	for line := range bytes.Lines(status) {
		if number, ok := bytes.CutPrefix(line, []byte("Tgid:")); ok {
			if n, err := strconv.ParseUint(string(bytes.TrimSpace(number)), 10, 32); err == nil {
				return uint32(n)
			}
		}
	}
	return thread
}
