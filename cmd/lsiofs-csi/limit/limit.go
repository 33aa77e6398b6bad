// Package limit bounds the memory of a server: by a cgroup of its own where the driver may make one,
// else by RLIMIT_DATA. Either way a server that takes more dies, alone: its readers get ENOTCONN.
//
//   - cgroup v2: below the driver's own group, if its memory controller is handed down. The driver
//     sees to that where it is alone in its group, as in a container: it moves itself one down.
//   - cgroup v1: below the driver's own group of the controller memory.
//   - RLIMIT_DATA counts what a process has mapped to write to, used or not. It is the coarser
//     measure, and needs nothing; the limit is unusedBytes higher than what was asked for.
//
// A cgroup counts page cache, too, of what a server has read; the kernel drops that before it kills.
package limit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Memory bounds servers. The zero value bounds nothing.
type Memory struct {
	bytes int64
	group string // the driver's own cgroup; "": RLIMIT_DATA
	file  string // of a group, that has the limit
	kind  string
}

// unusedBytes is what a server maps and does not use: 200 MiB were measured of one with 8 MiB in use, on 2 processors, for Go's
// tables, stacks of threads and rings. Requests that come by io_uring take up to 256 more.
const unusedBytes = 768 << 20

// LeastBytes is the smallest limit that a server can live with.
const LeastBytes = 128 << 20

// prefix begins the names of servers' groups.
const prefix = "lsiofs-"

// New finds out how servers can be limited to so many bytes; 0: they are not.
func New(bytes int64) Memory {
	m := Memory{bytes: bytes, kind: "nothing"}
	if bytes <= 0 {
		return m
	}
	for _, v := range []struct {
		kind, file string
		find       func() (string, error)
	}{{"cgroup v2", "memory.max", v2}, {"cgroup v1", "memory.limit_in_bytes", v1}} {
		dir, err := v.find()
		if err != nil {
			continue
		}
		m.group, m.file = dir, v.file
		if m.try() == nil {
			m.kind = v.kind
			return m
		}
	}
	m.group, m.kind = "", "RLIMIT_DATA"
	return m
}

// String says what limits servers.
func (m Memory) String() string { return m.kind }

// try makes a group and removes it.
func (m Memory) try() error {
	name := "try-" + strconv.Itoa(os.Getpid())
	err := m.make(name)
	return errors.Join(err, m.Remove(name))
}

func (m Memory) dir(server string) string { return filepath.Join(m.group, prefix+server) }

func (m Memory) make(server string) error {
	if err := os.Mkdir(m.dir(server), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.WriteFile(filepath.Join(m.dir(server), m.file), []byte(strconv.FormatInt(m.bytes, 10)), 0)
}

// Apply bounds the process of a server.
func (m Memory) Apply(server string, pid int) error {
	var err error
	switch {
	case m.bytes <= 0:
	case m.group == "":
		n := uint64(m.bytes) + unusedBytes
		err = unix.Prlimit(pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: n, Max: n}, nil)
	default:
		if err = m.make(server); err == nil {
			err = os.WriteFile(filepath.Join(m.dir(server), "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		}
	}
	if err != nil && !errors.Is(err, unix.ESRCH) { // one that has ended takes nothing
		return fmt.Errorf("limit the server's memory by %s: %w", m, err)
	}
	return nil
}

// removeTries is how often a group is tried to be removed, whose process is gone but not yet
// forgotten.
const (
	removeTries = 50
	removeEvery = 10 * time.Millisecond
)

// Remove removes the group of a server that has ended; there need be none.
func (m Memory) Remove(server string) error {
	if m.group == "" {
		return nil
	}
	var err error
	for range removeTries {
		if err = os.Remove(m.dir(server)); err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		time.Sleep(removeEvery)
	}
	return fmt.Errorf("remove the server's cgroup: %w", err)
}

// own is where a controller's hierarchy is mounted, and this process' group in it. controller
// "" is the one of version 2.
func own(controller string) (mount, dir string, err error) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", "", err
	}
	path := ""
	for line := range strings.Lines(string(groups)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && (f[1] == controller || controller != "" && strings.Contains(","+f[1]+",", ","+controller+",")) {
			path = f[2]
		}
	}
	if path == "" {
		return "", "", fs.ErrNotExist
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", "", err
	}
	for line := range strings.Lines(string(table)) {
		left, right, _ := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) < 5 || len(r) < 3 {
			continue
		}
		if controller == "" && r[0] != "cgroup2" || controller != "" && (r[0] != "cgroup" || !strings.Contains(","+r[2]+",", ","+controller+",")) {
			continue
		}
		// In a container the mount's root may be the group itself.
		rel, err := filepath.Rel(l[3], path)
		if err != nil || strings.HasPrefix(rel, "..") {
			rel = ""
		}
		return l[4], filepath.Join(l[4], rel), nil
	}
	return "", "", fs.ErrNotExist
}

func v1() (string, error) {
	_, dir, err := own("memory")
	return dir, err
}

// v2 sees to it that groups below the driver's own have the controller memory.
func v2() (string, error) {
	_, dir, err := own("")
	if err != nil {
		return "", err
	}
	down := filepath.Join(dir, "cgroup.subtree_control")
	has := func(file string) bool {
		b, err := os.ReadFile(file)
		return err == nil && strings.Contains(" "+strings.TrimSpace(string(b))+" ", " memory ")
	}
	if filepath.Base(dir) == ownGroup { // moved before
		dir = filepath.Dir(dir)
		down = filepath.Join(dir, "cgroup.subtree_control")
	}
	if has(down) {
		return dir, nil
	}
	if !has(filepath.Join(dir, "cgroup.controllers")) {
		return "", errors.New("this control group has no memory controller")
	}
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil || strings.TrimSpace(string(procs)) != strconv.Itoa(os.Getpid()) {
		return "", errors.New("this process shares its control group with others")
	}
	sub := filepath.Join(dir, ownGroup)
	if err := os.Mkdir(sub, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(sub, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return "", err
	}
	return dir, os.WriteFile(down, []byte("+memory"), 0)
}

// ownGroup is where the driver moves itself to.
const ownGroup = "driver"
