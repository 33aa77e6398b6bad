package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
)

// Each kind of error has its exit code and names what is wrong.
func TestFilterRefusals(t *testing.T) {
	src, empty := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(src, "a.jsonl"), []byte("{}\n"), 0o644))
	npy := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(npy, "a.npy"), []byte("\x93NUMPY\x01\x00v\x00{'descr': '<i2', 'fortran_order': False, 'shape': (3, 4), }"), 0o644))
	twice := t.TempDir()
	for _, name := range []string{"a.jsonl", "a.jsonl.zst"} {
		require.NoError(t, os.WriteFile(filepath.Join(twice, name), []byte("{}\n"), 0o644))
	}
	dst := filepath.Join(t.TempDir(), "dst")
	for _, tt := range []struct {
		args []string
		code exit.Code
		text string
	}{
		{[]string{src, dst}, exit.Usage, "the command comes after --"},
		{[]string{src, "--", "cat"}, exit.Usage, "takes SRC and DST before --, but there is one argument"},
		{[]string{src, dst, "--"}, exit.Usage, "no command after --"},
		{[]string{src, src, "--", "cat"}, exit.Usage, "neither of them inside the other"},
		{[]string{src, dst, "--", "no-such-program"}, exit.Usage, "not found"},
		{[]string{src, dst, "--by", "dirs", "--", "cat"}, exit.Usage, "needs {in} and {out}"},
		{[]string{src, dst, "--each", "unit", "--", "cat"}, exit.Usage, "would be slow"},
		{[]string{src, dst, "--format", "files", "--", "cat"}, exit.Usage, "of several files"},
		{[]string{empty, dst, "--", "cat"}, exit.Dataset, "no file"},
		{[]string{twice, dst, "--", "cat"}, exit.Dataset, "one shard in two codecs: a.jsonl and a.jsonl.zst"},
		{[]string{npy, dst, "--by", "process", "--", "cat"}, exit.Usage, "use --each shard"},
		{[]string{src, dst, "--", "false"}, exit.Failure, "a.jsonl: it ended: exit status 1"},
	} {
		r := lsiofs(t, append([]string{"filter"}, tt.args...)...)
		require.Equal(t, tt.code, r.code, "%q: %s", tt.args, r.stderr)
		require.Contains(t, r.stderr, tt.text, "%q", tt.args)
	}
}

func TestFilterPrintsSummary(t *testing.T) {
	src, dst := t.TempDir(), filepath.Join(t.TempDir(), "dst")
	require.NoError(t, os.WriteFile(filepath.Join(src, "a.bin"), []byte("12345678"), 0o644))
	args := []string{"filter", src, dst, "--format", "fixed", "--record-bytes", "4", "--settle", "1s", "--", "sh", "-c", "echo hello >&2; head -c 4"}
	r := ok(t, args...)
	require.Contains(t, r.stderr, "a.bin: hello\n")
	require.Contains(t, r.stdout, "filtered      1 shard (8 B to 4 B)\n")
	r = ok(t, append([]string{"--json"}, args...)...)
	var summary struct {
		Unchanged int      `json:"shards_unchanged"`
		Command   []string `json:"command"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &summary))
	require.Equal(t, 1, summary.Unchanged)
	require.Equal(t, []string{"sh", "-c", "echo hello >&2; head -c 4"}, summary.Command)
}
