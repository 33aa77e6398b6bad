package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExitCodesAreAPromise(t *testing.T) {
	// Scripts rely on these: a change here is a breaking change.
	want := map[string]exitCode{"ok": 0, "failure": 1, "usage": 2, "dataset": 3, "mount": 4, "checkpoint": 5, "check": 6, "verify": 7, "interrupted": 130, "pipe": 141}
	got := map[string]exitCode{}
	for _, e := range exitCodes {
		require.Equal(t, e.Name, e.Code.name())
		require.NotEmpty(t, e.Meaning)
		got[e.Name] = e.Code
	}
	require.Equal(t, want, got)
	require.Equal(t, "unknown", exitCode(77).name())
}

func TestErrorsKeepTheirFirstCode(t *testing.T) {
	base := errors.New("x")
	err := fmt.Errorf("y: %w", coded(exitMount, base))
	require.Equal(t, exitMount, errorCode(coded(exitDataset, err)))
	require.ErrorIs(t, err, base)
	require.Equal(t, exitFailure, errorCode(base))
	require.Equal(t, exitOK, errorCode(nil))
	require.NoError(t, coded(exitMount, nil))
}

func TestCommandLinesThatAreWrong(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing")
	for _, c := range []struct {
		name string
		args []string
		code exitCode
		says string
	}{
		{"an unknown command", []string{"mont"}, exitUsage, "did you mean mount"},
		{"an unknown command of checkpoint", []string{"checkpoint", "frob"}, exitUsage, `unknown command "frob"`},
		{"an unknown shell", []string{"completion", "frob"}, exitUsage, "frob"},
		{"an unknown flag", []string{"cat", "--frob", "x"}, exitUsage, "--frob"},
		{"an unknown log level", []string{"version", "--log-level", "loud"}, exitUsage, "loud"},
		{"too few arguments", []string{"mount", "x"}, exitUsage, "takes DATASET and MNT"},
		{"too many arguments", []string{"version", "x"}, exitUsage, "takes no arguments"},
		{"a size that is none", []string{"cat", "x", "--memory", "1GiBB"}, exitUsage, "is not a size"},
		{"a worker that is none", []string{"cat", "x", "--worker", "1/"}, exitUsage, "is not a worker"},
		{"a worker beyond the last", []string{"cat", "x", "--worker", "4/4"}, exitUsage, "--worker (4) must be below the number of workers (4)"},
		{"workers said twice", []string{"cat", "x", "--worker", "1/4", "--workers", "3"}, exitUsage, "differ"},
		{"two files at once", []string{"cat", "x", "--ids", "--offsets"}, exitUsage, "choose one"},
		{"two places to begin", []string{"cat", "x", "--from", "3", "--resume", "f"}, exitUsage, "--from and --resume"},
		{"a mount point that is missing", []string{"mount", dir, missing}, exitMount, "mkdir -p " + missing},
		{"a mount point inside the dataset", []string{"mount", dir, dir}, exitMount, "inside the dataset"},
		{"the same with --daemon", []string{"mount", dir, dir, "--daemon"}, exitMount, "inside the dataset"},
		{"a checkpoint that is missing", []string{"mount", dir, dir, "--resume", missing}, exitCheckpoint, missing},
		{"nothing to unmount", []string{"umount", dir}, exitMount, "is not a mount point"},
		{"a mount of another kind", []string{"umount", "/proc"}, exitMount, "not of lsiofs"},
		{"no mount to save", []string{"checkpoint", "save", missing, "f"}, exitCheckpoint, "is not a mount of lsiofs"},
		{"no files to merge", []string{"checkpoint", "merge"}, exitUsage, "at least one FILE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := lsiofs(t, c.args...)
			require.Equal(t, c.code, r.code, r.stderr)
			require.Contains(t, r.stderr, c.says)
			require.True(t, strings.HasPrefix(r.stderr, "lsiofs: "), r.stderr)
			require.Equal(t, 1, strings.Count(r.stderr, "\n"), "one line: %q", r.stderr)
			require.Empty(t, r.stdout)

			j := lsiofs(t, append([]string{"--json"}, c.args...)...)
			var e struct {
				Error string   `json:"error"`
				Code  exitCode `json:"exit_code"`
				Name  string   `json:"exit_name"`
			}
			require.NoError(t, json.Unmarshal([]byte(j.stderr), &e), j.stderr)
			require.Equal(t, c.code, j.code)
			require.Equal(t, c.code, e.Code)
			require.Equal(t, c.code.name(), e.Name)
			require.Contains(t, e.Error, c.says)
			require.Empty(t, j.stdout)
		})
	}
}

func TestAllProblemsOfASpecAreReported(t *testing.T) {
	r := lsiofs(t, "cat", "x", "--lanes", "33", "--groups", "2", "--workers", "0", "--format", "x", "--tail", "wag", "--memory", "10KiB", "--read-timeout", "0s")
	require.Equal(t, exitUsage, r.code)
	for _, part := range []string{"--format", "--groups (2) must divide --lanes (33)", "--workers (0)", `--tail ("wag")`, "--memory", "--read-timeout"} {
		require.Contains(t, r.stderr, part)
	}
	for line := range strings.Lines(r.stderr) {
		require.True(t, strings.HasPrefix(line, "lsiofs: "), line)
	}
}

func TestInterruptedIs130(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	data := dataset(t)
	for _, args := range [][]string{{"index", data}, {"inspect", data}, {"cat", data}, {"mount", data, t.TempDir()}} {
		t.Run(args[0], func(t *testing.T) {
			r := lsiofsContext(ctx, args...)
			require.Equal(t, exitInterrupted, r.code, r.stderr)
			require.Equal(t, "lsiofs: interrupted\n", r.stderr)
			require.Empty(t, r.stdout)
		})
	}
}
