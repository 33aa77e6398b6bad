package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestInvalidCommandLines(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing")
	for _, c := range []struct {
		name string
		args []string
		code exit.Code
		says string
	}{
		{"an unknown command", []string{"mont"}, exit.Usage, "did you mean mount"},
		{"an unknown command of checkpoint", []string{"checkpoint", "frob"}, exit.Usage, `unknown command "frob"`},
		{"an unknown shell", []string{"completion", "frob"}, exit.Usage, "frob"},
		{"an unknown flag", []string{"cat", "--frob", "x"}, exit.Usage, "--frob"},
		{"an unknown log level", []string{"version", "--log-level", "loud"}, exit.Usage, "loud"},
		{"too few arguments", []string{"mount", "x"}, exit.Usage, "takes DATASET and MNT"},
		{"too many arguments", []string{"version", "x"}, exit.Usage, "takes no arguments"},
		{"a size that is none", []string{"cat", "x", "--memory", "1GiBB"}, exit.Usage, "is not a size"},
		{"a worker that is none", []string{"cat", "x", "--worker", "1/"}, exit.Usage, "is not a worker"},
		{"a worker beyond the last", []string{"cat", "x", "--worker", "4/4"}, exit.Usage, "--worker (4) must be below the number of workers (4)"},
		{"workers said twice", []string{"cat", "x", "--worker", "1/4", "--workers", "3"}, exit.Usage, "differ"},
		{"two files at once", []string{"cat", "x", "--ids", "--offsets"}, exit.Usage, "choose one of them"},
		{"two places to begin", []string{"cat", "x", "--from", "3", "--resume", "f"}, exit.Usage, "--from and --resume"},
		{"a mount point that is missing", []string{"mount", dir, missing}, exit.Mount, "mkdir -p " + missing},
		{"a mount point that is the dataset", []string{"mount", dir, dir}, exit.Mount, "is the dataset itself"},
		{"the same with --daemon", []string{"mount", dir, dir, "--daemon"}, exit.Mount, "is the dataset itself"},
		{"a checkpoint that is missing", []string{"mount", dir, dir, "--resume", missing}, exit.Checkpoint, missing},
		{"nothing to unmount", []string{"umount", dir}, exit.Mount, "is not a mount point"},
		{"a mount of another kind", []string{"umount", "/proc"}, exit.Mount, "not one of lsiofs"},
		{"no mount to save", []string{"checkpoint", "save", missing, "f"}, exit.Checkpoint, "is not a mount of lsiofs"},
		{"nothing said to clean", []string{"cache", "clean"}, exit.Usage, "--unused 30d, or --all"},
		{"cleaning all, and some", []string{"cache", "clean", "--all", "s3://b"}, exit.Usage, "--all removes everything"},
		{"a time that is none", []string{"cache", "clean", "--unused", "d"}, exit.Usage, "is not a time"},
		{"no cache there", []string{"cache", "show", "--cache-dir", missing}, exit.Failure, missing},
		{"a directory that is no cache", []string{"cache", "verify", "--cache-dir", "/proc"}, exit.Failure, "cache directory /proc"},
		{"a cache size that is none", []string{"cat", "x", "--cache-size", "much"}, exit.Usage, "use auto, off"},
		{"a reserve that is none", []string{"cat", "x", "--cache-reserve", "much"}, exit.Usage, "neither auto nor a size"},
		{"filling no cache", []string{"mount", dir, dir, "--warm", "--cache-size", "off"}, exit.Usage, "--warm and --cache-size off"},
		{"no files to merge", []string{"checkpoint", "merge"}, exit.Usage, "at least one FILE"},
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
				Error string    `json:"error"`
				Code  exit.Code `json:"exit_code"`
				Name  string    `json:"exit_name"`
			}
			require.NoError(t, json.Unmarshal([]byte(j.stderr), &e), j.stderr)
			require.Equal(t, c.code, j.code)
			require.Equal(t, c.code, e.Code)
			require.Equal(t, c.code.Name(), e.Name)
			require.Contains(t, e.Error, c.says)
			require.Empty(t, j.stdout)
		})
	}
}

func TestAllSpecProblemsAreReported(t *testing.T) {
	r := lsiofs(t, "cat", "x", "--lanes", "33", "--groups", "2", "--workers", "0", "--format", "x", "--tail", "wag", "--memory", "10KiB", "--read-timeout", "0s")
	require.Equal(t, exit.Usage, r.code)
	for _, part := range []string{"--format", "--groups (2) must divide --lanes (33)", "--workers (0)", `--tail ("wag")`, "--memory", "--read-timeout"} {
		require.Contains(t, r.stderr, part)
	}
	for line := range strings.Lines(r.stderr) {
		require.True(t, strings.HasPrefix(line, "lsiofs: "), line)
	}
}

func TestInterruptedExitsWith130(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	data := dataset(t)
	for _, args := range [][]string{{"index", data}, {"inspect", data}, {"cat", data}, {"mount", data, t.TempDir()}} {
		t.Run(args[0], func(t *testing.T) {
			r := lsiofsContext(ctx, args...)
			require.Equal(t, exit.Interrupted, r.code, r.stderr)
			require.Equal(t, "lsiofs: interrupted\n", r.stderr)
			require.Empty(t, r.stdout)
		})
	}
}

// Commands other than mount do not advise to mount again when a shard has changed.
func TestAdviceOnChangedShardDependsOnCommand(t *testing.T) {
	err := exit.With(exit.Dataset, &storage.Error{Object: "a.tar", SizeBytes: 10, Err: fmt.Errorf("size is 9 bytes, was 10: %w", storage.ErrChanged)})
	for _, asJSON := range []bool{false, true} {
		var stdout, stderr bytes.Buffer
		u := terminal.New(&stdout, &stderr)
		u.JSON = asJSON
		require.Equal(t, exit.Dataset, reportError(u, err))
		said := stdout.String() + stderr.String()
		require.Contains(t, said, "a.tar")
		require.Contains(t, said, "changed since it was indexed: run the command again")
		require.NotContains(t, said, "mount")
	}
}

func TestClosedReaderIsNotReported(t *testing.T) {
	var out bytes.Buffer
	require.Equal(t, exit.Pipe, reportError(terminal.New(&out, &out), exit.With(exit.Pipe, exit.ErrSilent)))
	require.Empty(t, out.String())
}
