package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// mount is a live mount, served by a child process.
type mount struct {
	t   testing.TB
	dir string
	// tmp is the server's temporary directory. It must be empty in the end.
	tmp    string
	server *serve.Server
	// The parts of the server that are used most.
	cmd    *exec.Cmd
	log    *serve.Log
	exited <-chan struct{} // closed when the server has ended
}

// mountAt mounts d at dir with `lsiofs mount` and waits until it is mounted. The test's cleanup
// unmounts it and fails the test if anything is left over.
func mountAt(t testing.TB, d dataset, dir string, flags ...string) *mount {
	t.Helper()
	m, err := tryMount(t, d, dir, flags...)
	require.NoError(t, err)
	return m
}

// mountDataset mounts d in a new directory.
func mountDataset(t testing.TB, d dataset, s settings, more ...string) *mount {
	t.Helper()
	flags := append(s.flags(), "--epoch", fmt.Sprint(s.Epoch))
	return mountAt(t, d, t.TempDir(), append(flags, more...)...)
}

func tryMount(t testing.TB, d dataset, dir string, flags ...string) (*mount, error) {
	t.Helper()
	m := startMount(t, d, dir, flags...)
	if err := m.waitUntilMounted(); err != nil {
		return nil, err
	}
	return m, nil
}

// startMount starts the server without waiting for the mount.
func startMount(t testing.TB, d dataset, dir string, flags ...string) *mount {
	t.Helper()
	return startMountBy(t, nil, d, dir, flags...)
}

// startMountBy makes a command (a program and its first arguments) start the server.
func startMountBy(t testing.TB, starter []string, d dataset, dir string, flags ...string) *mount {
	t.Helper()
	needFUSE(t)
	m := &mount{t: t, dir: dir, tmp: t.TempDir()}
	places := []string{d.dir, dir}
	if d.dir == "" { // a mixture, whose flags name its datasets
		places = places[1:]
	}
	line := slices.Concat(starter, []string{lsiofs, "mount"}, places, d.flags, flags)
	m.cmd = exec.Command(line[0], line[1:]...)
	m.cmd.Env = environment(m.tmp)
	var err error
	m.server, err = serve.Start(m.cmd, dir)
	require.NoError(t, err)
	m.log, m.exited = m.server.Log, m.server.Exited
	// Whatever hangs in the mount is woken when its server dies.
	watchdog := time.AfterFunc(mountLimit, func() {
		fmt.Fprintf(os.Stderr, "integration: %s: a mount took longer than %v; its server is killed\n", t.Name(), mountLimit)
		m.cmd.Process.Kill()
	})
	t.Cleanup(func() {
		m.end()
		watchdog.Stop()
		if t.Failed() && m.log.String() != "" {
			t.Logf("what the server of %s said:\n%s", dir, m.log.String())
		}
	})
	return m
}

// requireLog waits until the server's log matches a pattern. The log comes through a pipe, so it
// may be later than the server's next answer.
func (m *mount) requireLog(pattern string) {
	m.t.Helper()
	fits := regexp.MustCompile(pattern).MatchString
	m.until(func() bool { return fits(m.log.String()) }, "%q is not in the log: %s", pattern, m.log)
}

// until waits until a condition holds or the server has ended.
func (m *mount) until(holds func() bool, what ...any) {
	m.t.Helper()
	until(m.t, m.exited, holds, what...)
}

func (m *mount) waitUntilMounted() error { return m.server.WaitUntilMounted() }

// end unmounts, as the test's last step, and checks that nothing is left. It does nothing if the
// test has already unmounted.
func (m *mount) end() {
	select {
	case <-m.exited:
		if isMount(m.dir) { // the test has killed it
			detach(m.dir)
		}
		return
	default:
	}
	m.cmd.Process.Signal(syscall.SIGTERM)
	if !m.ended(clientLimit) {
		m.t.Errorf("the server of %s did not end within %v of SIGTERM", m.dir, clientLimit)
		m.cmd.Process.Kill()
		<-m.exited
		detach(m.dir)
		return
	}
	m.requireNothingLeft()
}

func (m *mount) requireNothingLeft() {
	m.t.Helper()
	if code := m.cmd.ProcessState.ExitCode(); code != 0 {
		m.t.Errorf("the server of %s ended with exit code %d", m.dir, code)
	}
	if isMount(m.dir) {
		m.t.Errorf("%s is still a mount when its server has ended", m.dir)
		detach(m.dir)
	}
	if names, _ := filepath.Glob(filepath.Join(m.tmp, "*")); len(names) > 0 {
		m.t.Errorf("the server of %s left temporary files: %q", m.dir, names)
	}
	if raceBuilt && strings.Contains(m.log.String(), "DATA RACE") {
		m.t.Errorf("data race in the server of %s:\n%s", m.dir, m.log.String())
	}
}

// ended waits for the server's end, and reports whether it ended within limit.
func (m *mount) ended(limit time.Duration) bool { return m.server.Ended(limit) }

// kill ends the server as a crash would, and leaves the mount behind.
func (m *mount) kill() {
	m.t.Helper()
	require.NoError(m.t, m.cmd.Process.Kill())
	<-m.exited
}

// path returns the path of a name in the mount.
func (m *mount) path(format string, args ...any) string {
	return filepath.Join(m.dir, fmt.Sprintf(format, args...))
}

// read reads a whole file of the mount.
func (m *mount) read(format string, args ...any) []byte {
	m.t.Helper()
	b, err := os.ReadFile(m.path(format, args...))
	require.NoError(m.t, err)
	return b
}

// requireAlive checks that the server still answers.
func (m *mount) requireAlive() {
	m.t.Helper()
	select {
	case <-m.exited:
		require.Failf(m.t, "the server died", "exit code %d: %s", m.cmd.ProcessState.ExitCode(), m.log.String())
	default:
	}
	require.NotEmpty(m.t, m.read("status"))
}
