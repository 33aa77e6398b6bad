package doctor

import (
	"bufio"
	"errors"
	"fmt"
	iofs "io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/cgroup"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
)

// machineFacts are the properties of a machine that matter to lsiofs, besides the checks.
type machineFacts struct {
	Kernel         string `json:"kernel"`
	Distribution   string `json:"distribution"`
	Container      bool   `json:"container"`
	Root           bool   `json:"root"`
	Processors     int    `json:"processors"` // available to this process
	Threads        int    `json:"gomaxprocs"`
	MemoryBytes    int64  `json:"memory_bytes"`
	AvailableBytes int64  `json:"memory_available_bytes"`
	// Limits are the limits of the process's control groups, the lowest of each kind that is set.
	Limits map[string]string `json:"cgroup_limits"`
}

func thisMachinesFacts(v *redactor) machineFacts {
	f := machineFacts{Distribution: "unknown", Root: os.Geteuid() == 0, Processors: runtime.NumCPU(), Threads: runtime.GOMAXPROCS(0), Limits: cgroup.Own().Limits()}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		f.Kernel = v.hide(unix.ByteSliceToString(name.Release[:]) + " " + unix.ByteSliceToString(name.Machine[:]))
	}
	if text, ok := fieldOf("/etc/os-release", "PRETTY_NAME="); ok {
		f.Distribution = v.hide(strings.Trim(text, `"`))
	}
	for _, mark := range []string{"/.dockerenv", "/run/.containerenv"} {
		_, err := os.Stat(mark)
		f.Container = f.Container || err == nil
	}
	meminfo, _ := os.ReadFile("/proc/meminfo")
	f.MemoryBytes, f.AvailableBytes = cgroup.Meminfo(meminfo, "MemTotal"), cgroup.Meminfo(meminfo, "MemAvailable")
	return f
}

// rows formats the facts for people.
func (f machineFacts) rows() [][2]string {
	where := ""
	if f.Container {
		where = ", in a container"
	}
	if f.Root {
		where += ", as root"
	}
	var limits []string
	for _, name := range slices.Sorted(maps.Keys(f.Limits)) {
		limits = append(limits, name+" "+f.Limits[name])
	}
	if limits == nil {
		limits = []string{"none"}
	}
	return [][2]string{
		{"kernel", f.Kernel},
		{"distribution", f.Distribution + where},
		{"processors", fmt.Sprintf("%d, GOMAXPROCS %d", f.Processors, f.Threads)},
		{"memory", fmt.Sprintf("%s, %s available", terminal.Bytes(f.MemoryBytes), terminal.Bytes(f.AvailableBytes))},
		{"control groups", strings.Join(limits, "; ")},
	}
}

// fieldOf returns the rest of the first line in a file that begins with prefix.
func fieldOf(file, prefix string) (string, bool) {
	f, err := os.Open(file)
	if err != nil {
		return "", false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, found := strings.CutPrefix(lines.Text(), prefix); found {
			return strings.TrimSpace(rest), true
		}
	}
	return "", false
}

// redacted returns a copy of the machine without private data, so that what examine reports of it
// may be published.
func (m machine) redacted(v *redactor) machine {
	m.release = v.hide(m.release)
	m.fuse, m.ring, m.fuseRings = v.fault(m.fuse), v.fault(m.ring), v.fault(m.fuseRings)
	m.indexDir, m.indexDirErr = v.standIn("INDEX-DIR", m.indexDir), v.fault(m.indexDirErr)
	if m.fusermount != "" && !slices.Contains([]string{"/bin", "/usr/bin", "/usr/local/bin"}, filepath.Dir(m.fusermount)) {
		m.fusermount = v.standIn("FUSERMOUNT3", m.fusermount)
	}
	m.mounts = slices.Clone(m.mounts)
	for i := range m.mounts {
		l := &m.mounts[i]
		l.point, l.err = v.standIn("MNT", l.point), v.fault(l.err)
	}
	m.profiles = slices.Clone(m.profiles)
	for i := range m.profiles {
		l := &m.profiles[i]
		l.File, l.Problem = v.standIn("PROFILE", l.File), v.fault(l.Problem)
		l.Stored.Place = v.place(l.Stored.Place)
	}
	return m
}

// place returns a storage without its identity. It replaces the device's name unless it is that of
// a kernel device: a network file system's contains a host and a path.
func (v *redactor) place(p filesystem.Place) filesystem.Place {
	p.Identity = ""
	if p.Device != "" && !kernelDevice.MatchString(p.Device) {
		p.Device = v.standIn("DEVICE", p.Device)
	}
	return p
}

// fault returns an error whose text has passed through the redactor. errors.Is still matches the
// original.
func (v *redactor) fault(err error) error {
	if err == nil {
		return nil
	}
	text := v.text(err.Error())
	var path *iofs.PathError
	if errors.As(err, &path) {
		text = path.Op + " " + told + ": " + v.text(path.Err.Error())
	}
	return &redactedError{text, err}
}

type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }
