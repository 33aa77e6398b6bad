package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/verification"
)

func TestVerifyFindsNothingWrongWithWhatIsSound(t *testing.T) {
	data := dataset(t)
	var v verification.Report
	r := ok(t, "verify", data, "--order", "--workers", "3", "--json")
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &v), r.stdout)
	require.Empty(t, v.Findings)
	require.NotNil(t, v.Findings, "a list, for scripts")
	require.Equal(t, "tar", v.Format)
	require.NotZero(t, v.Records)
	require.True(t, v.Order.Holds())
	require.Len(t, v.Order.Mixing, 3)
	require.Equal(t, v.Records, v.Order.Claims[1].Records)

	r = ok(t, "verify", data, "--order")
	require.Contains(t, r.stdout, "nothing is damaged")
	require.Contains(t, r.stdout, "every record comes once in the epoch: holds")
	require.Contains(t, r.stdout, "full permutation")
	require.Contains(t, r.stderr, "proving: ")
}

func TestVerifyListsDamageAndHasACodeOfItsOwn(t *testing.T) {
	data := dataset(t)
	ok(t, "index", data)
	shards, err := filepath.Glob(filepath.Join(data, "*.tar"))
	require.NoError(t, err)
	require.NotEmpty(t, shards)
	before, err := os.Stat(shards[1])
	require.NoError(t, err)
	b, err := os.ReadFile(shards[1])
	require.NoError(t, err)
	b[1] ^= 1 // in the first member's name, which its header's checksum is of
	require.NoError(t, os.WriteFile(shards[1], b, 0o644))
	require.NoError(t, os.Chtimes(shards[1], before.ModTime(), before.ModTime()))

	r := lsiofs(t, "verify", data)
	require.EqualValues(t, exit.Verify, r.code)
	require.Contains(t, r.stdout, filepath.Base(shards[1])+": record 0, offset 0: ")
	require.Contains(t, r.stderr, " damaged: repair or remove the files, or leave out what is damaged: lsiofs index --rebuild --on-corrupt skip")
	// What it says works, though size and time of the shard are what they were.
	require.Contains(t, ok(t, "index", data, "--rebuild", "--on-corrupt", "skip").stdout, "damaged       1 shard\n")
	ok(t, "cat", data, "--on-corrupt", "skip")

	r = lsiofs(t, "verify", data, "--json")
	require.EqualValues(t, exit.Verify, r.code)
	var v verification.Report
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &v), r.stdout)
	require.NotZero(t, v.Total)
	require.Equal(t, filepath.Base(shards[1]), v.Findings[0].Shard)
}

func TestVerifySaysThatChecksumsOfCompressionAreChecked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data", "gz") // what is above it is made, too
	ok(t, "bench", "--make", "jsonl", "--gz", "--records", "100", "--bytes", "100", dir)
	require.Contains(t, ok(t, "verify", dir).stdout, "where lines end; lines have no checksum; the checksums of gzip\n")
	require.NotContains(t, ok(t, "verify", dataset(t)).stdout, "the checksums of")
}
