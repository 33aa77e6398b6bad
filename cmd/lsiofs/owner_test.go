package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/fs"
)

// owned mounts in a separate process, owned by a process that the test may kill.
func owned(t *testing.T, data, mnt string, flags ...string) (server, owner *exec.Cmd, stderr io.Reader) {
	t.Helper()
	needMount(t)
	owner = exec.CommandContext(t.Context(), "sleep", "600")
	require.NoError(t, owner.Start())
	server = program(t, append([]string{"mount", data, mnt, "--while-pid", strconv.Itoa(owner.Process.Pid)}, flags...)...)
	stderr, err := server.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, server.Start())
	readUntil(t, stderr, "Ctrl-C here")
	return server, owner, stderr
}

func requireUnmounted(t *testing.T, mnt string) {
	t.Helper()
	mounts, err := fs.Mounts()
	require.NoError(t, err)
	_, still := fs.TopMount(mounts, mnt)
	require.False(t, still)
}

func TestMountEndsWithItsOwnerProcess(t *testing.T) {
	mnt := filepath.Join(t.TempDir(), "mnt")
	require.NoError(t, os.Mkdir(mnt, 0o700))
	server, owner, stderr := owned(t, dataset(t), mnt, "--rmdir")
	require.NotEmpty(t, read(t, mnt, "worker-0.tar"))
	require.NoError(t, owner.Process.Kill())
	_ = owner.Wait() // killed
	rest, err := io.ReadAll(stderr)
	require.NoError(t, err)
	require.NoError(t, server.Wait(), "%s", rest)
	requireUnmounted(t, mnt)
	require.NoDirExists(t, mnt)
}

func TestMountOfEndedProcessDoesNotWaitForReaders(t *testing.T) {
	mnt := t.TempDir()
	server, owner, stderr := owned(t, dataset(t), mnt, "--log-level", "info")
	f, err := os.Open(filepath.Join(mnt, "worker-0.tar"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, owner.Process.Kill()) // and not waited for: a zombie has ended, too
	rest, err := io.ReadAll(stderr)
	require.NoError(t, err)
	require.NoError(t, server.Wait(), "%s", rest)
	require.Contains(t, string(rest), "programs are still reading it (1 open file): context canceled", "not the deadline's end")
	_, err = f.Read(make([]byte, 1))
	require.Error(t, err)
	_ = owner.Wait()
	requireUnmounted(t, mnt)
}

func TestMountForEndedProcessIsRefused(t *testing.T) {
	gone := exec.Command("true")
	require.NoError(t, gone.Run())
	r := lsiofs(t, "mount", dataset(t), t.TempDir(), "--while-pid", strconv.Itoa(gone.Process.Pid))
	require.Equal(t, exit.Mount, r.code)
	require.Contains(t, r.stderr, "has already ended")
	r = lsiofs(t, "mount", dataset(t), t.TempDir(), "--while-pid=-1")
	require.Equal(t, exit.Usage, r.code)
}

// A killed program leaves a pipe without a reader. Writing to it must not end the server, whose
// mount would be dead.
func TestMountOutlivesReaderOfItsLog(t *testing.T) {
	needMount(t)
	mnt := t.TempDir()
	c := program(t, "mount", dataset(t), mnt, "--log-level", "info")
	r, w, err := os.Pipe()
	require.NoError(t, err)
	c.Stderr = w
	require.NoError(t, c.Start())
	require.NoError(t, w.Close())
	readUntil(t, r, "Ctrl-C here")
	require.NoError(t, r.Close())
	require.NoError(t, c.Process.Signal(os.Interrupt)) // this is logged
	require.NoError(t, c.Wait())
	requireUnmounted(t, mnt)
}

// A parent that waits for the mount's report gets the text of any error. If it is also the owner,
// stderr does not repeat it.
func TestWaitingParentGetsErrorText(t *testing.T) {
	needMount(t)
	own := "--while-pid=" + strconv.Itoa(os.Getpid())
	for _, c := range []struct {
		name, words string
		code        exit.Code
		args        []string
	}{
		{"an unknown flag", "unknown flag: --bacth", exit.Usage, []string{t.TempDir(), t.TempDir(), own, "--bacth=3"}},
		{"a flag that is not possible", "--workers", exit.Usage, []string{t.TempDir(), t.TempDir(), own, "--workers=70000"}},
		{"no dataset", "holds no files", exit.Dataset, []string{t.TempDir(), t.TempDir(), own, "--index-dir", t.TempDir()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, w, err := os.Pipe()
			require.NoError(t, err)
			defer r.Close()
			p := program(t, append([]string{"mount", "--ready-fd=3"}, c.args...)...)
			var stderr bytes.Buffer
			p.Stderr, p.ExtraFiles = &stderr, []*os.File{w}
			require.NoError(t, p.Start())
			require.NoError(t, w.Close())
			var m struct {
				Error *struct {
					Text string
					Code exit.Code
				}
			}
			require.NoError(t, json.NewDecoder(r).Decode(&m))
			require.Error(t, p.Wait())
			require.NotNil(t, m.Error)
			require.Contains(t, m.Error.Text, c.words)
			require.Equal(t, c.code, m.Error.Code)
			require.Equal(t, int(c.code), p.ProcessState.ExitCode())
			require.Empty(t, stderr.String())
		})
	}
}

// A mount of an empty directory waits for its first epoch. If the parent that waits for the mount
// goes away, no stray process stays behind.
func TestMountEndsWhenWaitingParentExits(t *testing.T) {
	needMount(t)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	mnt := t.TempDir()
	p := program(t, "mount", "--ready-fd=3", t.TempDir(), mnt, "--grow", "--index-dir", t.TempDir())
	var stderr bytes.Buffer
	p.Stderr, p.ExtraFiles = &stderr, []*os.File{w}
	require.NoError(t, p.Start())
	require.NoError(t, w.Close())
	readUntil(t, r, `"waiting":`)
	require.NoError(t, r.Close())
	require.Error(t, p.Wait())
	require.Equal(t, int(exit.Interrupted), p.ProcessState.ExitCode(), stderr.String())
	require.Contains(t, stderr.String(), "ended before it was ready")
	requireUnmounted(t, mnt)
}
