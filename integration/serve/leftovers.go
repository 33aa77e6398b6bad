package serve

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// LeftOvers describes what must not exist when all tests are done: processes of the program, mounts
// below scratch, and files in tmp. It ends and unmounts them, so that one run does not spoil the
// next. It returns "" if there is nothing.
func LeftOvers(program, scratch, tmp string) string {
	var b strings.Builder
	for _, pid := range Processes(program) {
		fmt.Fprintf(&b, "  process %d: %s\n", pid, commandLine(pid))
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
	for _, point := range MountsBelow(scratch) {
		fmt.Fprintf(&b, "  mount %s\n", point)
		Detach(point)
	}
	if names, _ := filepath.Glob(filepath.Join(tmp, "*")); len(names) > 0 {
		fmt.Fprintf(&b, "  temporary files %q\n", names)
	}
	return b.String()
}

// Processes returns the processes that run a program, given by its path.
func Processes(program string) []int {
	var pids []int
	for _, pid := range processes() {
		if target, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && target == program && program != "" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// processes returns the IDs of all processes.
func processes() (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func commandLine(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.ReplaceAll(string(b), "\x00", " ")
}

// MountsBelow returns the mount points below dir, innermost last.
func MountsBelow(dir string) []string {
	b, _ := os.ReadFile("/proc/self/mountinfo")
	var points []string
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) <= 4 {
			continue
		}
		if point := unescaped.Replace(fields[4]); strings.HasPrefix(point, dir+"/") {
			points = append(points, point)
		}
	}
	return points
}

// unescaped replaces the characters that the mount table has in octal.
var unescaped = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// IsMount reports whether something is mounted at dir.
func IsMount(dir string) bool {
	for _, point := range MountsBelow(filepath.Dir(dir)) {
		if point == dir {
			return true
		}
	}
	return false
}

// Detach removes a mount whatever its state.
func Detach(point string) {
	if exec.Command("umount", "-l", point).Run() != nil {
		_ = exec.Command("fusermount3", "-u", "-z", point).Run()
	}
}

// SeenBy returns the processes that see something mounted at dir: a copy of a mount in another
// mount namespace keeps its server alive.
func SeenBy(dir string) []string {
	var seen []string
	tables, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
	for _, table := range tables {
		if b, err := os.ReadFile(table); err == nil && strings.Contains(string(b), " "+dir+" ") {
			pid, _ := strconv.Atoi(strings.Split(table, "/")[2])
			seen = append(seen, fmt.Sprintf("%d (%s)", pid, commandLine(pid)))
		}
	}
	return seen
}
