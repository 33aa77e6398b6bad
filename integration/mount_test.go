package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// mount is a live mount, served by a child process.
type mount struct {
	t   testing.TB
	dir string
	// tmp is the server's temporary directory; nothing may be left in it.
	tmp    string
	cmd    *exec.Cmd
	log    lockedBuffer
	exited chan struct{} // closed when the server has ended
}

// lockedBuffer takes a child's stderr while a test looks at it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
	// written has a value when something was written since it was received last.
	written chan struct{}
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.written <- struct{}{}:
	default:
	}
	return l.b.Write(p)
}

// contains says whether text was written; a text that begins with a line break
// may stand at the very beginning too.
func (l *lockedBuffer) contains(text string) bool { return strings.Contains("\n"+l.String(), text) }

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// mountAt mounts d at dir with `lsiofs mount`, and waits until it is there. The
// test's cleanup unmounts it and fails the test when something is left over.
func mountAt(t testing.TB, d dataset, dir string, flags ...string) *mount {
	t.Helper()
	m, err := tryMount(t, d, dir, flags...)
	require.NoError(t, err)
	return m
}

// mountDataset mounts d in a directory of its own.
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

// startMount starts the server, and does not wait for the mount.
func startMount(t testing.TB, d dataset, dir string, flags ...string) *mount {
	t.Helper()
	return startMountBy(t, nil, d, dir, flags...)
}

// startMountBy has a command (a program and its first arguments) start the server.
func startMountBy(t testing.TB, starter []string, d dataset, dir string, flags ...string) *mount {
	t.Helper()
	needFUSE(t)
	m := &mount{t: t, dir: dir, tmp: t.TempDir(), exited: make(chan struct{}), log: lockedBuffer{written: make(chan struct{}, 1)}}
	line := slices.Concat(starter, []string{lsiofs, "mount", d.dir, dir}, d.flags, flags)
	m.cmd = exec.Command(line[0], line[1:]...)
	m.cmd.Env = environment(m.tmp)
	m.cmd.Stderr = &m.log
	require.NoError(t, m.cmd.Start())
	go func() {
		m.cmd.Wait()
		close(m.exited)
	}()
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

// waitUntilMounted waits for the server's word that its mount answers. The table
// of mounts shows it somewhat earlier, when it is still busy with its own look.
func (m *mount) waitUntilMounted() error {
	for !m.log.contains("\nmounted ") {
		select {
		case <-m.exited:
			return fmt.Errorf("mount of %s ended with exit code %d: %s", m.dir, m.cmd.ProcessState.ExitCode(), m.log.String())
		case <-m.log.written:
		}
	}
	if !isMount(m.dir) {
		return fmt.Errorf("the server of %s says that it is mounted, and it is not: %s", m.dir, m.log.String())
	}
	return nil
}

// isMount says whether a file system of ours is mounted at dir.
func isMount(dir string) bool {
	for _, point := range mountsBelow(filepath.Dir(dir)) {
		if point == dir {
			return true
		}
	}
	return false
}

// end unmounts, as the test's last act, and checks that nothing is left. It
// does nothing when the test has unmounted already.
func (m *mount) end() {
	select {
	case <-m.exited:
		if isMount(m.dir) { // killed by the test
			detach(m.dir)
		}
		return
	default:
	}
	m.cmd.Process.Signal(syscall.SIGTERM)
	if !m.ended(30 * time.Second) {
		m.t.Errorf("the server of %s did not end within 30 s of SIGTERM", m.dir)
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

// ended waits for the server's end.
func (m *mount) ended(limit time.Duration) bool {
	select {
	case <-m.exited:
		return true
	case <-time.After(limit):
		return false
	}
}

// kill ends the server as a crash would, and leaves the mount behind.
func (m *mount) kill() {
	m.t.Helper()
	require.NoError(m.t, m.cmd.Process.Kill())
	<-m.exited
}

// path is the path of a name in the mount.
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

// requireAlive shows that the server still answers.
func (m *mount) requireAlive() {
	m.t.Helper()
	select {
	case <-m.exited:
		require.Failf(m.t, "the server died", "exit code %d: %s", m.cmd.ProcessState.ExitCode(), m.log.String())
	default:
	}
	require.NotEmpty(m.t, m.read("status"))
}
