package demo

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTallyDetectsErrors(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	samples, err := MakeShards(dir)
	require.NoError(t, err)
	full := func() *tally {
		n := newTally(samples)
		for i := range Shards {
			require.NoError(t, n.addTar(shardPath(dir, i), wholeFile))
		}
		return n
	}
	require.NoError(t, full().check())

	twice := full()
	require.NoError(t, twice.addTar(shardPath(dir, 0), 1))
	require.ErrorContains(t, twice.check(), "1 are duplicated")

	missing := newTally(samples)
	require.NoError(t, missing.addTar(shardPath(dir, 0), 100))
	require.ErrorContains(t, missing.check(), "900 are missing")

	cut := filepath.Join(dir, "cut.tar")
	require.NoError(t, copyHead(shardPath(dir, 1), cut, 10_000))
	require.Error(t, newTally(samples).addTar(cut, wholeFile), "the end of a cut file is no end")
	require.NoError(t, newTally(samples).addTar(cut, 2))

	b, err := os.ReadFile(shardPath(dir, 2))
	require.NoError(t, err)
	b[513] ^= 1 // in the first member's data
	require.NoError(t, os.WriteFile(cut, b, 0o600))
	require.ErrorContains(t, newTally(samples).addTar(cut, wholeFile), "differ from the shard's")
}
