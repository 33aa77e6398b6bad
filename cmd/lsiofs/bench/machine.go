package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is what was measured on.
type Machine struct {
	CPU         string `json:"cpu"`
	Cores       int    `json:"cores"`
	MemoryBytes int64  `json:"memory_bytes"`
	Kernel      string `json:"kernel"`
	FileSystem  string `json:"file_system"` // that the dataset is on
	Device      string `json:"device"`
	Go          string `json:"go"`
	Version     string `json:"lsiofs"`
	Root        bool   `json:"root"`
}

// thisMachine describes the machine, and what path is on. What can't be found
// out is "unknown".
func thisMachine(path, version string) Machine {
	m := Machine{CPU: "unknown", Cores: runtime.GOMAXPROCS(0), Kernel: "unknown", FileSystem: "unknown", Device: "unknown",
		Go: runtime.Version(), Version: version, Root: os.Geteuid() == 0}
	if v := fieldOf("/proc/cpuinfo", "model name"); v != "" {
		m.CPU = v
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if n, err := memoryField("MemTotal"); err == nil {
		m.MemoryBytes = n
	}
	m.place(path)
	return m
}

// place finds the mount that path is on.
func (m *Machine) place(path string) {
	var st unix.Stat_t
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil || unix.Stat(path, &st) != nil {
		return
	}
	defer f.Close()
	device := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	for lines := bufio.NewScanner(f); lines.Scan(); {
		left, right, _ := strings.Cut(lines.Text(), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) > 2 && len(r) > 1 && l[2] == device {
			m.FileSystem, m.Device = r[0], r[1]
		}
	}
}

// fieldOf is the value of the first "name : value" line of a file of /proc.
func fieldOf(path, name string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// memoryField is a line of /proc/meminfo, in bytes.
func memoryField(name string) (int64, error) {
	text := fieldOf("/proc/meminfo", name)
	kib, err := strconv.ParseInt(strings.TrimSuffix(text, " kB"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("/proc/meminfo: %s is %q", name, text)
	}
	return kib << 10, nil
}

func availableMemory() (int64, error) { return memoryField("MemAvailable") }

// touchMemory has so much memory, at most a quarter of what is available, once
// in use: a virtual machine gets memory from its host at the first touch, which
// takes several times as long as later ones, and is no matter of what is measured.
// It ends early when ctx ends.
func touchMemory(ctx context.Context, bytes int64) error {
	free, err := availableMemory()
	if err != nil {
		return err
	}
	bytes = min(bytes, free/4)
	b, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return fmt.Errorf("memory for warming up: %w", err)
	}
	// In the pages that servers will ask for; a kernel without them has others.
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	// Signals wait for the system call, so it is one for each piece.
	for piece := range slices.Chunk(b, 64<<20) {
		err := ctx.Err()
		if err == nil {
			err = unix.Madvise(piece, unix.MADV_POPULATE_WRITE)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("memory for warming up: %w", err), unix.Munmap(b))
		}
	}
	return unix.Munmap(b)
}
