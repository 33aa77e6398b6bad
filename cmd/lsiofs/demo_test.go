package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/goldentest"
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
	c.Env = append(c.Env, "TMPDIR="+tmp, "PATH="+pathWithoutCommand())
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	require.NoError(t, c.Run(), "%s%s", &stdout, &stderr)
	require.Empty(t, stderr.String())
	shown := regexp.MustCompile(`(?m)^\$ D=`+regexp.QuoteMeta(tmp)+`/lsiofs-demo-\d+$`).ReplaceAllString(stdout.String(), "$$ D=/tmp/lsiofs-demo-1")
	shown = regexp.MustCompile(`\([0-9.]+m?s\)\.`).ReplaceAllString(shown, "(1.2s).")
	for line := range strings.Lines(shown) {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 80+len("\n"), "wider than a terminal: %s", line)
	}
	goldentest.Equal(t, "demo.txt", shown)
	nothingLeft(t, tmp)
}

// pathWithoutCommand returns PATH without the directories in which lsiofs is installed.
func pathWithoutCommand() string {
	dirs := slices.DeleteFunc(filepath.SplitList(os.Getenv("PATH")), func(dir string) bool {
		_, err := exec.LookPath(filepath.Join(dir, "lsiofs"))
		return err == nil
	})
	return strings.Join(dirs, string(filepath.ListSeparator))
}

func TestDemoCleansUpWhenInterrupted(t *testing.T) {
	needMount(t)
	for _, at := range []string{"# Mount it for two workers", "mounted: ", "# Resume from the checkpoint", "# Read all of it"} {
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
			_ = c.Wait() // the exit code is checked below
			// It may have finished before the signal arrived.
			require.Contains(t, []int{int(exit.OK), int(exit.Interrupted)}, c.ProcessState.ExitCode(), stderr.String())
			nothingLeft(t, tmp)
		})
	}
}
