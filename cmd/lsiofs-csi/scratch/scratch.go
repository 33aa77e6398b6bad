// Package scratch makes directories for the driver's tests, so that a killed test program leaves no
// server, mount or directory behind. The program integration/serve/sweep of lsiofs cleans up; this
// module can't import lsiofs's packages.
package scratch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Programs makes a directory below TMPDIR for the programs of a test program. root is the directory
// of lsiofs' module. Their processes end when the test program is killed. remove cleans up at a
// normal end.
func Programs(root string) (dir string, remove func(), err error) {
	dir, lock, err := claim(os.TempDir())
	if err != nil {
		return "", nil, err
	}
	sweep := exec.Command(filepath.Join(dir, "sweep"), "-after", dir)
	// So that it does not get signals for the process group of the tests.
	sweep.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := sweep.StdinPipe() // sweep waits until this is closed
	if err == nil {
		err = Build(sweep.Path, root, "./integration/serve/sweep", "CGO_ENABLED=0")
	}
	if err == nil {
		err = sweep.Start()
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir), lock.Close())
	}
	return dir, func() {
		_ = os.RemoveAll(dir)
		_ = sweep.Process.Kill()
		_ = sweep.Wait()
		_ = pipe.Close() // Wait has closed it
		_ = lock.Close() // it was only locked
	}, nil
}

// Build builds a package of the module in the directory root.
func Build(out, root, pkg, environment string, flags ...string) error {
	build := exec.Command("go", append(append([]string{"build", "-buildvcs=false"}, flags...), "-o", out, pkg)...)
	build.Dir, build.Env = root, append(os.Environ(), environment)
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", pkg, err, text)
	}
	return nil
}

// Dir makes a directory for a test. It is below /tmp because TMPDIR may be long and not accessible:
// a socket's path has at most 108 bytes, and other users must be able to enter. remove removes it.
func Dir(t testing.TB) (dir string, remove func()) {
	t.Helper()
	parent, lock, err := claim("/tmp")
	require.NoError(t, err)
	dir = filepath.Join(parent, "d")
	require.NoError(t, errors.Join(os.Chmod(parent, 0o711), os.Mkdir(dir, 0o755)))
	return dir, func() {
		require.NoError(t, os.RemoveAll(parent))
		_ = lock.Close() // it was only locked
	}
}

// claim makes a directory like package integration/serve of lsiofs: its name, and the lock of a
// file in it, identify directories of killed tests.
func claim(parent string) (dir string, lock *os.File, err error) {
	if dir, err = os.MkdirTemp(parent, "lsiofs-csi-"); err != nil {
		return "", nil, err
	}
	lock, err = os.Create(filepath.Join(dir, "lock"))
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}
	return dir, lock, err
}
