// Package hosts makes machines for tests out of namespaces: each has its own network, host name,
// processes and mounts, and ends with the test, however that ends. Only root can make them.
//
//	h := hosts.Start(t, "n1", "mount -t tmpfs tmpfs /tmp")
//	hosts.Cable(t, h, "eth0", switch, "n1")
//	h.Begin("slurmd", nil, "slurmd", "-D")     // runs until the test ends
//	out, err := h.Try(nil, "sinfo")
package hosts

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// Host is a machine.
type Host struct {
	Name string
	// PID is the process ID of its first process, as seen outside.
	PID  string
	t    testing.TB
	logs string
}

// unmount is a script that removes mounts that were copied with the namespace: otherwise they would
// stay when the tests that own them unmount them. It does not access any of them, because one may
// not answer. If the directory of one is removed meanwhile, the mount goes by itself: what matters
// is that none is left. The table has a space as \040, which is \0040 for printf.
const unmount = `awk '$3 ~ /^fuse/ {print $2}' /proc/self/mounts | sed 's/\\/\\0/g' | while read -r point; do
	umount --lazy --internal-only --no-canonicalize "$(printf %b "$point")" || true
done
awk '$3 ~ /^fuse/ {print "still mounted: " $2; left = 1} END {exit left}' /proc/self/mounts >&2
`

// adopt is a script that makes the first process reap orphaned processes.
const adopt = `; echo ready >&3; exec 3>&-; trap exit TERM; while :; do sleep 1000 & wait $!; done`

// Start starts a machine. The shell script prepare runs in it first, as its first process, with
// mounts already private. The output of programs goes to files in the directory logs, whose ends
// are logged if the test fails.
func Start(t testing.TB, logs, name, prepare string) *Host {
	t.Helper()
	ready, told, err := os.Pipe()
	require.NoError(t, err)
	defer ready.Close()
	h := &Host{Name: name, t: t, logs: logs}
	script := "hostname " + name + "; ip link set lo up; " + unmount + prepare + adopt
	cmd := exec.Command("unshare", "--net", "--uts", "--ipc", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", script)
	cmd.ExtraFiles = []*os.File{told}
	Begin(t, logs, name, cmd)
	require.NoError(t, told.Close())
	line := make([]byte, 6)
	_, err = io.ReadFull(ready, line)
	require.NoError(t, err, "%s has not come up: %s", name, h.Log(name))
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid))
	require.NoError(t, err)
	h.PID = strings.TrimSpace(string(children))
	return h
}

// Cable connects two machines by a cable, whose ends are the given interfaces. Both are up.
func Cable(t testing.TB, a *Host, atA string, b *Host, atB string) {
	t.Helper()
	out, err := exec.Command("ip", "link", "add", "name", atA, "netns", a.PID, "type", "veth", "peer", "name", atB, "netns", b.PID).CombinedOutput()
	require.NoError(t, err, "%s", out)
	a.Run("ip", "link", "set", atA, "up")
	b.Run("ip", "link", "set", atB, "up")
}

// Address gives an interface an address, such as 10.0.0.1/24.
func (h *Host) Address(on, address string) {
	h.t.Helper()
	h.Run("ip", "addr", "add", address, "dev", on)
}

// Command returns a program to run in the machine, with environment variables in addition to those
// of this process.
func (h *Host) Command(env []string, args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"--target", h.PID, "--net", "--uts", "--ipc", "--mount", "--pid", "--root", "--wd=/", "--"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// Try runs a program and returns its standard output.
func (h *Host) Try(env []string, args ...string) (string, error) {
	cmd := h.Command(env, args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%s: %v: %w: %s%s", h.Name, args, err, said.String(), out.String())
	}
	return out.String(), err
}

// Run is Try for what has to succeed.
func (h *Host) Run(args ...string) string {
	h.t.Helper()
	out, err := h.Try(nil, args...)
	require.NoError(h.t, err)
	return out
}

// Begin starts a program that runs until the test ends.
func (h *Host) Begin(log string, env []string, args ...string) *exec.Cmd {
	h.t.Helper()
	cmd := h.Command(env, args...)
	Begin(h.t, h.logs, log, cmd)
	return cmd
}

// Log returns the end of a program's output.
func (h *Host) Log(name string) string { return ended(h.logs, name) }

func ended(logs, name string) string {
	b, _ := os.ReadFile(filepath.Join(logs, name+".log"))
	return string(b[max(0, len(b)-4000):])
}

// Begin starts a program on this machine, which also ends with the test. Its output goes to a file
// in logs.
func Begin(t testing.TB, logs, name string, cmd *exec.Cmd) {
	t.Helper()
	f, err := os.Create(filepath.Join(logs, name+".log"))
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = f, f
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	forks() <- func() { started <- cmd.Start() }
	require.NoError(t, <-started)
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(2*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		late.Stop()
		_ = f.Close()
		if t.Failed() {
			t.Logf("%s:\n%s", name, ended(logs, name))
		}
	})
}

// forks starts processes from one thread that never ends: the kernel kills children with Pdeathsig
// when the thread that started them ends.
var forks = sync.OnceValue(func() chan func() {
	jobs := make(chan func())
	go func() {
		runtime.LockOSThread()
		for job := range jobs {
			job()
		}
	}()
	return jobs
})

// Programs ends the test (Missing) if one of these programs is missing, or if it does not run as
// root.
func Programs(t testing.TB, names ...string) {
	t.Helper()
	why := ""
	if os.Geteuid() != 0 {
		why = "only root may make machines of namespaces"
	}
	for _, name := range append(names, "unshare", "nsenter", "ip") {
		if _, err := exec.LookPath(name); err != nil {
			why = name + " is not installed (integration/check does that)"
		}
	}
	if why != "" {
		Missing(t, why)
	}
}

// Missing ends the test if this machine lacks something: it fails in CI, and is skipped elsewhere.
func Missing(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// Eventually waits until a condition holds, for patience at most.
func Eventually(t testing.TB, patience time.Duration, what string, is func() bool) {
	t.Helper()
	if err := serve.Until(patience, nil, is); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
