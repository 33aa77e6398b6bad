package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/top"
	"github.com/lsiofs/lsiofs/fs"
)

func TestTopOnce(t *testing.T) {
	dir := pointWith(t, 1)
	require.Contains(t, ok(t, "top", dir, "--once").stdout, "worker-0.jsonl")
	var l top.Line
	require.NoError(t, json.Unmarshal([]byte(ok(t, "top", dir, "--once", "--json").stdout), &l))
	var saved fs.Status
	require.NoError(t, json.Unmarshal([]byte(read(t, dir, "status.json")), &saved))
	require.Equal(t, saved.Explain.Verdict, l.Verdict)
	require.Len(t, l.Streams, 2)
}

// removing is a writer that removes a file at its first write.
type removing struct {
	strings.Builder
	path string
}

func (r *removing) Write(p []byte) (int, error) {
	_ = os.Remove(r.path)
	return r.Builder.Write(p)
}

func TestTopReportsThatMountIsGone(t *testing.T) {
	dir := pointWith(t, 1)
	out := removing{path: filepath.Join(dir, "status.json")}
	var stderr strings.Builder
	require.Equal(t, exit.Mount, run(t.Context(), &interrupts{force: context.Background()}, []string{"top", dir}, &out, &stderr))
	require.Equal(t, "lsiofs: "+dir+" was unmounted, or its server ended\n", stderr.String())
	require.Regexp(t, `^\d\d:\d\d:\d\d .*/s, epoch 0`, out.String(), "a line a second until then")

	r := lsiofs(t, "top", dir)
	require.Equal(t, exit.Mount, r.code)
	require.Contains(t, r.stderr, dir+" is not a mount of lsiofs: nothing is mounted there")
}

// pointWith returns a directory with a status.json, which resembles a mount as far as plain files
// can.
func pointWith(t *testing.T, n int) string {
	dir := t.TempDir()
	b, err := os.ReadFile(filepath.Join("top", "testdata", fmt.Sprintf("status-%d.json", n)))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "status.json"), b, 0o600))
	return dir
}
