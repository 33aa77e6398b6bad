package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Places that the whole run shares. They are set by TestMain before any test,
// and only read after that.
var (
	// lsiofs is the program under test.
	lsiofs string
	// scratch holds everything that the run makes: the program, its cache, and
	// the temporary directory of its processes.
	scratch string
)

// Time limits. They are there to end what hangs, not to measure: nothing that
// works comes near them.
const (
	clientLimit = 90 * time.Second
	mountLimit  = 5 * time.Minute
	// unlinkedFor is how long the name of an unlinked checkpoint may be gone.
	unlinkedFor = time.Second
)

func TestMain(m *testing.M) {
	if os.Getenv(backingVariable) != "" {
		os.Exit(backingMain())
	}
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	var err error
	if scratch, err = os.MkdirTemp("", "lsiofs-integration-"); err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	defer func() {
		// Mounts first: removing a tree must never walk into one.
		if leftOver := leftOvers(); leftOver != "" {
			fmt.Fprintf(os.Stderr, "integration: the tests left behind:\n%s", leftOver)
			code = 1
		}
		os.RemoveAll(scratch)
	}()
	for _, dir := range []string{"cache", "tmp", "tests"} {
		if err := os.Mkdir(filepath.Join(scratch, dir), 0o700); err != nil {
			fmt.Fprintln(os.Stderr, "integration:", err)
			return 1
		}
	}
	if lsiofs, err = buildProgram(scratch); err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	// t.TempDir makes its directories here, so that the mounts of this run, and
	// of no other, are found at its end.
	os.Setenv("TMPDIR", filepath.Join(scratch, "tests"))
	return m.Run()
}

// environment is that of every program that the tests start: a cache of its own,
// so that indexes are not found from another run, and a temporary directory, in
// which nothing may be left.
func environment(tmp string) []string {
	// A race-built program sleeps for a second at its end unless told not to.
	return append(os.Environ(), "GORACE=atexit_sleep_ms=1", "TMPDIR="+tmp, "XDG_CACHE_HOME="+filepath.Join(scratch, "cache"), "PYTHONDONTWRITEBYTECODE=1")
}

// buildProgram builds ../cmd/lsiofs, race-built where the tests are.
func buildProgram(dir string) (string, error) {
	out := filepath.Join(dir, "lsiofs")
	args := []string{"build", "-o", out}
	if raceBuilt {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "../cmd/lsiofs")...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, text)
	}
	return out, nil
}

// leftOvers describes what must not be there when all tests are done, and ends
// and unmounts it, so that one run does not spoil the next.
func leftOvers() string {
	var b strings.Builder
	for _, pid := range serverProcesses() {
		fmt.Fprintf(&b, "  process %d: %s\n", pid, commandLine(pid))
		if p, err := os.FindProcess(pid); err == nil {
			p.Kill()
		}
	}
	for _, point := range mountsBelow(scratch) {
		fmt.Fprintf(&b, "  mount %s\n", point)
		detach(point)
	}
	if names, _ := filepath.Glob(filepath.Join(scratch, "tmp", "*")); len(names) > 0 {
		fmt.Fprintf(&b, "  temporary files %q\n", names)
	}
	return b.String()
}

// serverProcesses are the processes that run the program under test.
func serverProcesses() []int {
	var pids []int
	exes, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, exe := range exes {
		if target, err := os.Readlink(exe); err == nil && target == lsiofs && lsiofs != "" {
			pid, _ := strconv.Atoi(strings.Split(exe, "/")[2])
			pids = append(pids, pid)
		}
	}
	return pids
}

func commandLine(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.ReplaceAll(string(b), "\x00", " ")
}

// mountsBelow lists the mount points below dir, innermost last.
func mountsBelow(dir string) []string {
	b, _ := os.ReadFile("/proc/self/mountinfo")
	var points []string
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			points = append(points, fields[4])
		}
	}
	return points
}

// detach removes a mount whatever its state.
func detach(point string) {
	if exec.Command("umount", "-l", point).Run() != nil {
		exec.Command("fusermount3", "-u", "-z", point).Run()
	}
}
