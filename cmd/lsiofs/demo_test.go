package main

import (
	"bytes"
	"io"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/fs"
)

// nothingLeft checks that a demo has cleaned up its temporary directory.
func nothingLeft(t *testing.T, tmp string) {
	t.Helper()
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left)
	mounts, err := fs.Mounts()
	require.NoError(t, err)
	for _, m := range mounts {
		require.NotContains(t, m.Point, tmp)
	}
}

func TestDemo(t *testing.T) {
	needMount(t)
	tmp := t.TempDir()
	c := program(t, "demo")
	c.Env = append(c.Env, "TMPDIR="+tmp)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	require.NoError(t, c.Run(), "%s%s", &stdout, &stderr)
	require.Empty(t, stderr.String())
	for _, typed := range []string{"$ lsiofs mount ", "--workers 2", "$ head -c ", "/checkpoint ", "--workers 3 --resume ", "$ lsiofs umount ", "are all 1000, each once"} {
		require.Contains(t, stdout.String(), typed)
	}
	nothingLeft(t, tmp)
}

func TestDemoCleansUpWhenInterrupted(t *testing.T) {
	needMount(t)
	for _, at := range []string{"# mount it for two workers", "mounted: ", "# go on where that was", "# read what is left"} {
		t.Run(at, func(t *testing.T) {
			tmp := t.TempDir()
			c := program(t, "demo")
			c.Env = append(c.Env, "TMPDIR="+tmp)
			stdout, err := c.StdoutPipe()
			require.NoError(t, err)
			var stderr bytes.Buffer
			c.Stderr = &stderr
			require.NoError(t, c.Start())
			readUntil(t, stdout, at)
			require.NoError(t, c.Process.Signal(syscall.SIGINT))
			_, err = io.Copy(io.Discard, stdout)
			require.NoError(t, err)
			_ = c.Wait() // the exit code is looked at
			// It may have been done before the signal came.
			require.Contains(t, []int{int(exit.OK), int(exit.Interrupted)}, c.ProcessState.ExitCode(), stderr.String())
			nothingLeft(t, tmp)
		})
	}
}
