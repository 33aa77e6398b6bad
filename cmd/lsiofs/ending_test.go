package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/fs"
)

func TestUmountNamesProcessesUsingMount(t *testing.T) {
	mnt, info := daemon(t, dataset(t))
	require.Contains(t, read(t, mnt, "status.json"), `"mount_id": "`+info.MountID+`"`)
	f, err := os.Open(info.Files[0])
	require.NoError(t, err)
	r := umountInOwnProcess(t, mnt)
	require.Equal(t, exit.Mount, r.code)
	require.Contains(t, r.stderr, "(process "+strconv.Itoa(os.Getpid())+") uses "+info.Files[0])
	require.NoError(t, f.Close())

	r = umountInOwnProcess(t, mnt)
	require.Equal(t, exit.OK, r.code, r.stderr)
	require.Equal(t, "unmounted "+mnt+"\n", r.stderr)
	require.Equal(t, exit.Mount, umountInOwnProcess(t, mnt).code, "it is gone")
}

func umountInOwnProcess(t *testing.T, args ...string) result {
	c := program(t, append([]string{"umount"}, args...)...)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	_ = c.Run() // the exit code is the result
	return result{exit.Code(c.ProcessState.ExitCode()), stdout.String(), stderr.String()}
}

func TestLiveMountIsRefusedAndDeadMountIsHealed(t *testing.T) {
	data := dataset(t)
	mnt, info := daemon(t, data)
	r := lsiofs(t, "mount", data, mnt)
	require.Equal(t, exit.Mount, r.code)
	require.Contains(t, r.stderr, "lsiofs umount "+mnt)

	p, err := os.FindProcess(info.PID)
	require.NoError(t, err)
	require.NoError(t, p.Kill())
	for { // until the kernel has noticed
		if _, err := os.Stat(mnt); err != nil {
			break
		}
	}
	out, err := program(t, "mount", data, mnt, "--daemon").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "mounted "+data)
	require.NotEmpty(t, read(t, mnt, "worker-0.tar"))
	require.Equal(t, exit.OK, umountInOwnProcess(t, mnt).code)
}

func TestDeadMountIsUnmounted(t *testing.T) {
	mnt, info := daemon(t, dataset(t))
	require.NoError(t, syscall.Kill(info.PID, syscall.SIGKILL))
	for { // until the kernel has noticed
		if _, err := os.Stat(mnt); err != nil {
			break
		}
	}
	out, err := program(t, "cat", mnt).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "the server of the mount at "+mnt+" is gone: mount it again, or remove it with lsiofs umount "+mnt)
	r := umountInOwnProcess(t, mnt)
	require.Equal(t, exit.OK, r.code, r.stderr)
	_, err = os.Stat(mnt)
	require.NoError(t, err)
}

func TestLazyUmountLetsReadersFinish(t *testing.T) {
	mnt, info := daemon(t, dataset(t))
	want := read(t, mnt, "epoch-0", "worker-0-of-1.tar")
	f, err := os.Open(info.Files[0])
	require.NoError(t, err)
	defer f.Close()
	r := umountInOwnProcess(t, "--lazy", mnt)
	require.Equal(t, exit.OK, r.code, r.stderr)
	require.NoFileExists(t, info.Files[0])
	got, err := io.ReadAll(f)
	require.NoError(t, err)
	require.True(t, want == string(got))
}

func TestSecondSignalDoesNotWaitForReaders(t *testing.T) {
	needMount(t)
	mnt := t.TempDir()
	c := program(t, "mount", dataset(t), mnt)
	stderr, err := c.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	readUntil(t, stderr, "Ctrl-C here")
	f, err := os.Open(filepath.Join(mnt, "worker-0.tar"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, c.Process.Signal(syscall.SIGINT))
	for mounted := true; mounted; {
		mounts, err := fs.Mounts()
		require.NoError(t, err)
		_, mounted = fs.TopMount(mounts, mnt)
	}
	require.NoError(t, c.Process.Signal(syscall.SIGINT))
	rest, err := io.ReadAll(stderr)
	require.NoError(t, err)
	require.Error(t, c.Wait())
	require.Equal(t, int(exit.Mount), c.ProcessState.ExitCode())
	require.Contains(t, string(rest), "programs are still reading it (1 open file): context canceled", "not the deadline's end")
}

// readUntil reads until it has seen the text, and no further than needed.
func readUntil(t *testing.T, r io.Reader, text string) string {
	t.Helper()
	var got strings.Builder
	buf := make([]byte, 64)
	for !strings.Contains(got.String(), text) {
		n, err := r.Read(buf)
		require.NoError(t, err, got.String())
		got.Write(buf[:n])
	}
	return got.String()
}

func TestDaemonReportsWhyMountFailed(t *testing.T) {
	needMount(t)
	empty := t.TempDir()
	r := program(t, "mount", empty, t.TempDir(), "--daemon", "--index-dir", t.TempDir())
	var stderr bytes.Buffer
	r.Stderr = &stderr
	require.Error(t, r.Run())
	require.Equal(t, int(exit.Dataset), r.ProcessState.ExitCode(), stderr.String())
	require.NotContains(t, stderr.String(), "log", "the reason is here, the log has no more")
}

func TestASignalUnmounts(t *testing.T) {
	needMount(t)
	data := dataset(t)
	for _, s := range []syscall.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR2, syscall.SIGXCPU, syscall.SIGALRM,
	} {
		t.Run(s.String(), func(t *testing.T) {
			mnt := t.TempDir()
			c := program(t, "mount", data, mnt, "--workers", "2")
			stderr, err := c.StderrPipe()
			require.NoError(t, err)
			require.NoError(t, c.Start())
			readUntil(t, stderr, "Ctrl-C here")
			require.NotEmpty(t, read(t, mnt, "worker-1.tar"))
			require.NoError(t, c.Process.Signal(s))
			rest, err := io.ReadAll(stderr)
			require.NoError(t, err)
			require.NoError(t, c.Wait(), "%s", rest)
			mounts, err := fs.Mounts()
			require.NoError(t, err)
			_, still := fs.TopMount(mounts, mnt)
			require.False(t, still)
		})
	}
}

func TestSignalEndsCatWithoutReader(t *testing.T) {
	data := dataset(t)
	c := program(t, "cat", data)
	stdout, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	_, err = io.ReadFull(stdout, make([]byte, 1)) // it is writing; the rest fills the pipe
	require.NoError(t, err)
	require.NoError(t, c.Process.Signal(syscall.SIGINT))
	state, err := c.Process.Wait()
	require.NoError(t, err)
	require.Equal(t, int(exit.Interrupted), state.ExitCode())
}
