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

// Machine describes the machine that was measured.
type Machine struct {
	CPU         string `json:"cpu"`
	Cores       int    `json:"cores"`
	MemoryBytes int64  `json:"memory_bytes"`
	Kernel      string `json:"kernel"`
	FileSystem  string `json:"file_system"` // of the dataset
	Device      string `json:"device"`
	Go          string `json:"go"`
	Version     string `json:"lsiofs"`
	Root        bool   `json:"root"`
}

// ThisMachine describes the machine and the file system of path. What can't be determined is
// "unknown".
func ThisMachine(path, version string) Machine {
	m := Machine{CPU: "unknown", Cores: runtime.GOMAXPROCS(0), Kernel: "unknown", FileSystem: "unknown", Device: "unknown",
		Go: runtime.Version(), Version: version, Root: os.Geteuid() == 0}
	if v := FieldOf("/proc/cpuinfo", "model name"); v != "" {
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

// place finds the mount of path.
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

// FieldOf returns the value of the first "name : value" line in a file of /proc.
func FieldOf(path, name string) string {
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

// memoryField returns a value from /proc/meminfo, in bytes.
func memoryField(name string) (int64, error) {
	text := FieldOf("/proc/meminfo", name)
	kib, err := strconv.ParseInt(strings.TrimSuffix(text, " kB"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("/proc/meminfo: %s is %q", name, text)
	}
	return kib << 10, nil
}

func availableMemory() (int64, error) { return memoryField("MemAvailable") }

// TouchMemory uses that much memory once, at most a quarter of what is available. A virtual machine
// gets memory from its host at the first touch, which takes several times as long as later ones and
// must not be measured. It ends early when ctx ends.
func TouchMemory(ctx context.Context, bytes int64) error {
	free, err := availableMemory()
	if err != nil {
		return err
	}
	bytes = min(bytes, free/4)
	b, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return fmt.Errorf("memory for warming up: %w", err)
	}
	// Uses pages of the size that servers will request. A kernel without huge pages ignores this.
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	// Signals wait for the system call, so each piece is a separate call.
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
