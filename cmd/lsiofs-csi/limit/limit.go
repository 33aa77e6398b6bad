// Package limit bounds the memory of a server: by a separate cgroup if the driver may create one,
// otherwise by RLIMIT_DATA. In both cases a server that takes more dies, alone, and its readers get
// ENOTCONN.
//
//   - cgroup v2: below the driver's own group, if its memory controller is delegated. If the driver
//     is alone in its group, as in a container, it arranges that by moving itself one level down.
//   - cgroup v1: below the driver's own group of the controller memory.
//   - RLIMIT_DATA counts the writable mappings of a process, used or not. It is a coarser measure
//     but has no requirements; the limit is unusedBytes higher than requested.
//
// A cgroup also counts the page cache of what a server has read. The kernel drops that before it
// kills.
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

// Memory bounds the memory of servers. The zero value bounds nothing.
type Memory struct {
	bytes int64
	group string // the driver's own cgroup; "" means RLIMIT_DATA
	file  string // the file in a group with the limit
	kind  string
}

// unusedBytes allows for what a server maps and does not use: 200 MiB were measured for one with 8
// MiB in use on 2 processors, for Go's tables, threads' stacks and rings. Requests through io_uring
// take up to 256 MiB more.
const unusedBytes = 768 << 20

// LeastBytes is the smallest limit that a server can live with.
const LeastBytes = 128 << 20

// prefix begins the names of servers' groups.
const prefix = "lsiofs-"

// New determines how servers can be limited to that many bytes; 0 means no limit.
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

// String names the mechanism that limits servers.
func (m Memory) String() string { return m.kind }

// try creates a group and removes it.
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

// Apply limits the process of a server.
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
	if err != nil && !errors.Is(err, unix.ESRCH) { // a process that has ended needs no limit
		return fmt.Errorf("limit the server's memory by %s: %w", m, err)
	}
	return nil
}

// removeTries is the number of attempts to remove a group whose process has ended: the kernel may
// still count it for a while.
const (
	removeTries = 50
	removeEvery = 10 * time.Millisecond
)

// Remove removes the group of a server that has ended. It is not an error if there is none.
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

// own returns the mount point of a controller's hierarchy and this process's group in it.
// controller "" means version 2.
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

// v2 enables the memory controller for groups below the driver's own.
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
	if filepath.Base(dir) == ownGroup { // moved earlier
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

// ownGroup is the group that the driver moves itself to.
const ownGroup = "driver"
