package gate

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
)

// hashes returns the hashes of a directory's files, by name.
func hashes(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	all := map[string][32]byte{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		all[e.Name()] = sha256.Sum256(b)
	}
	return all
}

func TestBenchMakesSameDatasetAgain(t *testing.T) {
	for _, c := range [][]string{{"tar"}, {"jsonl"}, {"jsonl", "--gz"}, {"jsonl", "--zst"}, {"jsonl", "--lz4"}, {"fixed"}, {"tfrecord", "--zst"}, {"npy"}, {"npy", "--gz"}, {"lc0"}, {"lc0", "--tar"}} {
		parent := t.TempDir()
		one, two := filepath.Join(parent, "one"), filepath.Join(parent, "two")
		args := append([]string{"--records", "200", "--bytes", "5000", "--shards", "3", "--seed", "9", "--make"}, c...)
		if c[0] == "lc0" { // the size of frames is fixed
			args = slices.Delete(args, 2, 4)
		}
		var made Made
		require.NoError(t, json.Unmarshal([]byte(ok(t, append(args, "--json", one)...)), &made))
		require.EqualValues(t, 3, made.Shards)
		require.NoError(t, os.Mkdir(two, 0o755), "an empty directory will do")
		ok(t, append(args, two)...)
		require.Len(t, hashes(t, one), 3)
		require.Equal(t, hashes(t, one), hashes(t, two), c)

		var flags []string
		if c[0] == "fixed" {
			flags = []string{"--format", "fixed", "--record-bytes", "5000"}
		}
		require.EqualValues(t, 200, records(t, one, flags...), c)
	}
}

func TestBenchMakesSameArrayAgain(t *testing.T) {
	for _, c := range [][]string{{"--shard", "16,32,32"}, {"--shard", "16,32,32", "--lz4"}, {"--shard", "16,32,32", "--zst"}, {"--shard", "16,32,32", "--zst", "--plain"}, {"--shard", "8,16,16"}} {
		parent := t.TempDir()
		one, two := filepath.Join(parent, "one"), filepath.Join(parent, "two")
		args := append([]string{"--make", "zarr", "--shape", "20,50,70", "--chunk", "8,16,16", "--seed", "9"}, c...)
		ok(t, append(args, one)...)
		ok(t, append(args, two)...)
		require.NoError(t, exec.Command("diff", "-r", one, two).Run())
		require.EqualValues(t, 5*3*4, records(t, one, "--format", "zarr", "--crop", "time=4,y=10,x=10", "--stride", "time=4,y=20,x=20"))
	}
}

func TestBenchMakesTarThatOtherProgramsCanRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	ok(t, "--make", "tar", "--records", "20", "--bytes", "5000", "--shards", "1", dir)
	out, err := exec.Command("tar", "-tf", filepath.Join(dir, "shard-00000.tar")).Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "000000019.jpg\n000000019.cls\n")
}

func TestBenchMakesNothingInNonEmptyDirectory(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600))
	code, _, stderr := try(t.Context(), nil, "--make", "tar", "--records", "10", dir)
	require.Equal(t, exit.Failure, code)
	require.Contains(t, stderr, "precious")
	require.Len(t, hashes(t, dir), 1)
}

func TestBenchLeavesNoIncompleteFiles(t *testing.T) {
	parent := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan exit.Code, 1)
	go func() {
		code, _, _ := try(ctx, nil, "--make", "jsonl", "--gz", "--records", "100000000", "--bytes", "1200", filepath.Join(parent, "d"))
		ended <- code
	}()
	require.Eventually(t, func() bool {
		left, err := filepath.Glob(filepath.Join(parent, ".lsiofs-make-*", "*"))
		return err == nil && len(left) > 0
	}, time.Minute, time.Millisecond, "it has not begun")
	cancel()
	require.Equal(t, exit.Interrupted, <-ended)
	left, err := os.ReadDir(parent)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestBenchMakeExplainsErrors(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	for says, args := range map[string][]string{
		"the directory": {"--make", "tar"},
		"choose one":    {"--make", "tar", "--gz", "--zst", dir},
		"what can be":   {"--make", "csv", dir},
		"shards (9)":    {"--make", "tar", "--records", "8", "--shards", "9", dir},
		"between 4096":  {"--make", "tar", "--bytes", "100", dir},
		"records (0)":   {"--make", "tar", "--records", "0", dir},
	} {
		code, _, stderr := try(t.Context(), nil, args...)
		require.Equal(t, exit.Usage, code, says)
		require.Contains(t, stderr, says)
	}
}
