package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// comparison runs bench/peers.py.
func comparison(t *testing.T, dir string, args ...string) result {
	t.Helper()
	needFUSE(t)
	interpreter := python(t, "torch", "zarr")
	for _, program := range []string{"tar", "gzip", "zstd"} {
		need(t, program)
	}
	args = append([]string{"bench/peers.py", "--check", "--lsiofs", lsiofs, "--dir", dir}, args...)
	return command(t, []string{"LSIOFS_PYTHON=" + interpreter}, nil, interpreter, args...)
}

func TestComparisonReadsEveryRecordOncePerRow(t *testing.T) {
	serve.Tier(t, serve.Night) // 37 rows, most of which start Python
	r := comparison(t, t.TempDir())
	require.Zero(t, r.code, r.stderr)
	for _, row := range []string{
		"tar/tar", "tar/tarfile", "tar/reservoir-tarfile", "tar/reservoir-parser", "tar/cat", "tar/stream-tarfile", "tar/parser", "tar/samples", "tar/records",
		"fixed/blocks", "fixed/reservoir-blocks", "fixed/cat", "fixed/records",
		"tar-parallel/cat-2", "tar-parallel/parser-2", "tar-parallel/cat-4", "tar-parallel/parser-4", "tar-parallel/torch-reservoir", "tar-parallel/torch-lsiofs",
		"jsonl/decoder", "jsonl/reservoir-lines", "jsonl/cat", "jsonl/lines", "jsonl/cat-2", "jsonl/lines-2",
		"jsonl-zst/decoder", "jsonl-zst/reservoir-lines", "jsonl-zst/cat", "jsonl-zst/lines", "jsonl-zst/cat-2", "jsonl-zst/lines-2",
		"jsonl-gz/decoder", "jsonl-gz/reservoir-lines", "jsonl-gz/cat", "jsonl-gz/lines", "jsonl-gz/cat-2", "jsonl-gz/lines-2",
		"zarr/zarr-python", "zarr/streams-random", "zarr/streams-block",
	} {
		require.Contains(t, r.stderr, "\n"+row+" checked\n")
	}
}

func TestComparisonDetectsRowThatReadsOtherBytes(t *testing.T) {
	serve.Tier(t, serve.CI)
	dir := t.TempDir()
	output(t, need(t, "go"), "run", "./bench", "--make", "jsonl", "--records", "100", "--bytes", "500", filepath.Join(dir, "jsonl"))
	// The sums must detect a duplicate shard, which lsiofs does not list.
	shards, err := filepath.Glob(filepath.Join(dir, "jsonl", "*.jsonl"))
	require.NoError(t, err)
	require.NotEmpty(t, shards)
	b, err := os.ReadFile(shards[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "jsonl", ".hidden.jsonl"), b, 0o644))
	r := comparison(t, dir, "jsonl/cat")
	require.NotZero(t, r.code)
	require.True(t, strings.Contains(r.stderr, "jsonl: cat: samples"), r.stderr)
}

func TestComparisonPrintsTableOfMeasurements(t *testing.T) {
	dir := t.TempDir()
	results := `{"rounds": 3, "machine": ["2 × X", "8 GiB of memory"], "groups": {"jsonl": {
		"lines": {"text": "B", "shuffled": true, "samples": 100, "runs": [[1, 0.5], [2, 1], [4, 1]]},
		"decoder": {"text": "A", "shuffled": false, "samples": 100000, "missing": "there is none", "runs": []}}}}`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "results.json"), []byte(results), 0o644))
	out := output(t, python(t), "bench/peers.py", "--table", "--dir", dir)
	require.Equal(t, `| JSONL of 1.2 KB | shuffled | samples/s | CPU µs a sample |
|---|---|---|---|
| A | no | there is none |  |
| B | yes | 0.1 k (0.0 k–0.1 k) | 10000.0 (5000.0–10000.0) |

Measured on 2 × X, 8 GiB of memory: medians of 3 runs in turn, in brackets the least and the most.
`, string(out))
}
