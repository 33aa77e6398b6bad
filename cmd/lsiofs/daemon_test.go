package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/fs"
)

// patience bounds waits in tests. On an idle machine, what they wait for happens at once.
const patience = 90 * time.Second

// A daemon keeps nothing of its caller's: the directory may be unmounted or removed, and a
// descriptor may hold a lock or a pipe. Relative paths still refer to that directory.
func TestADaemonLeavesItsCallersDirectoryAndDescriptors(t *testing.T) {
	needMount(t)
	data := dataset(t)
	dir := filepath.Dir(data)
	mnt := filepath.Join(dir, "mnt")
	require.NoError(t, os.Mkdir(mnt, 0o755))
	held, err := os.Create(filepath.Join(dir, "lock"))
	require.NoError(t, err)
	defer held.Close()
	c := program(t, "mount", filepath.Base(data), "mnt", "--daemon", "--log-file", "log", "--index-dir", "index", "--grow", "--run=run", "--settle", "1ms")
	c.Dir, c.ExtraFiles = dir, []*os.File{held}
	t.Cleanup(func() { endDaemon(t, mnt) })
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NotEmpty(t, read(t, mnt, "worker-0.tar"))
	for _, name := range []string{"log", "index", "run"} {
		_, err := os.Lstat(filepath.Join(dir, name))
		require.NoError(t, err)
	}

	proc := fmt.Sprintf("/proc/%d/", statusOf(t, mnt).Process.PID)
	cwd, err := os.Readlink(proc + "cwd")
	require.NoError(t, err)
	require.Equal(t, "/", cwd)
	require.NotContains(t, openFiles(t, proc), held.Name())
	require.Contains(t, openFiles(t, proc), filepath.Join(dir, "log"))
	require.NotEmpty(t, read(t, mnt, "epoch-1", "worker-0-of-1.tar"), "the dataset is found again")
}

func statusOf(t *testing.T, mnt string) (s fs.Status) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(read(t, mnt, "status.json")), &s))
	return s
}

func openFiles(t *testing.T, proc string) (files []string) {
	t.Helper()
	fds, err := os.ReadDir(proc + "fd")
	require.NoError(t, err)
	for _, fd := range fds {
		if file, err := os.Readlink(filepath.Join(proc, "fd", fd.Name())); err == nil {
			files = append(files, file)
		}
	}
	return files
}

// Log rotators rename a log and send SIGHUP.
func TestSIGHUPMakesDaemonReopenItsLog(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	mnt, info := daemon(t, dataset(t), "--log-file", log, "--log-level", "info")
	require.NoError(t, os.Rename(log, log+".1"))
	require.NoError(t, syscall.Kill(info.PID, syscall.SIGHUP))
	require.Eventually(t, func() bool {
		text, _ := os.ReadFile(log) // it does not exist at first
		return strings.Contains(string(text), "the log was reopened")
	}, patience, time.Millisecond)
	require.NotContains(t, openFiles(t, fmt.Sprintf("/proc/%d/", info.PID)), log+".1")
	require.NotEmpty(t, read(t, mnt, "worker-0.tar"), "the mount is as it was")
}

// Every flag that names a file or directory is among those that a daemon makes absolute.
func TestDaemonMakesEveryPathFlagAbsolute(t *testing.T) {
	here, err := os.Getwd()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.Chdir(here)) })
	t.Chdir(t.TempDir())
	dir, err := os.Getwd()
	require.NoError(t, err)
	g := &globals{interrupts: &interrupts{}, ui: terminal.New(os.Stdout, os.Stderr)}
	o := &mountOptions{dataset: "s3://bucket/train", point: "mnt"}
	c := newMountCommand(g)
	c.ResetFlags()
	o.addFlags(c)
	var paths []*pflag.Flag
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if name, _ := pflag.UnquoteUsage(f); slices.Contains([]string{"file", "directory"}, name) {
			paths = append(paths, f)
			require.NoError(t, f.Value.Set(f.Name))
		}
	})
	require.GreaterOrEqual(t, len(paths), 9)
	require.NoError(t, c.Flags().Set("mix", "a=1:data"))
	require.NoError(t, o.leaveDirectory())
	for _, f := range paths {
		require.Equal(t, filepath.Join(dir, f.Name), f.Value.String(), "add --%s to datasetFlags.paths", f.Name)
	}
	require.Equal(t, filepath.Join(dir, "mnt"), o.point)
	require.Equal(t, filepath.Join(dir, "data"), o.spec.Mix.Sources[0].Dataset)
	require.Equal(t, "s3://bucket/train", o.dataset)
	now, err := os.Getwd()
	require.NoError(t, err)
	require.Equal(t, "/", now)
}

// A refused mount leaves nothing that would get in the way of the next one.
func TestLogInsideMountPointIsRefusedAndNotCreated(t *testing.T) {
	needMount(t)
	mnt := t.TempDir()
	r := lsiofs(t, "mount", dataset(t), mnt, "--daemon", "--log-file", filepath.Join(mnt, "log"))
	require.Equal(t, exit.Mount, r.code)
	require.Contains(t, r.stderr, "--log-file")
	left, err := os.ReadDir(mnt)
	require.NoError(t, err)
	require.Empty(t, left)
}
