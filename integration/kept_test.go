package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// decodedInCache is what cache show lists of decoded shards.
type decodedInCache struct {
	Decoded     bool
	Objects     int
	Bytes       int64
	CachedBytes int64 `json:"cached_bytes"`
	Damaged     int
}

func showDecoded(t *testing.T, cache string) (d decodedInCache) {
	t.Helper()
	shown := toolOK(t, "cache", "show", "--cache-dir", cache, "--json")
	require.NoError(t, json.Unmarshal(shown, &d), "%s", shown)
	return d
}

// What one mount has decoded, the next one reads, and the commands of the cache know it.
func TestDecodedShardsOutliveTheirMount(t *testing.T) {
	serve.Tier(t, serve.CI)
	d := makeBig(t)
	s := spoolSettings("full")
	want := newReference(t, d).data(s, 0)
	cache := filepath.Join(spoolDir(t), "cache")
	flags := []string{"--memory", "1MiB", "--cache-dir", cache, "--cache-size", "1GiB", "--cache-reserve", "1MiB", "--spool-dir", spoolDir(t)}
	for mount := range 2 {
		m := mountDataset(t, d, s, flags...)
		requireSameBytes(t, want, m.read("epoch-0/worker-0-of-1.jsonl"), "mount %d", mount)
		stats := m.fetchStats()
		if mount == 0 {
			require.NotNil(t, stats.Spool)
			require.EqualValues(t, bigShards, stats.Spool.Decoded)
		} else {
			require.Equal(t, "gather", stats.Strategy, "they are read as if they were not compressed")
			require.Zero(t, stats.DecodedBytes)
		}
		require.Contains(t, string(m.read("status")), cache)
		require.Contains(t, string(toolOK(t, "cache", "show", "--cache-dir", cache)), "by a mount")
		m.end()
	}
	shown := showDecoded(t, cache)
	require.True(t, shown.Decoded)
	require.Equal(t, bigShards, shown.Objects)
	require.Equal(t, shown.Bytes, shown.CachedBytes)
	require.Contains(t, string(toolOK(t, "cache", "show", "--cache-dir", cache)), "(decoded)")
	require.Contains(t, string(toolOK(t, "cache", "verify", "--cache-dir", cache)), "12 objects")
	require.Contains(t, string(toolOK(t, "cache", "clean", "--cache-dir", cache, "--all")), "removed 12 objects")

	m := mountDataset(t, d, s, flags...)
	requireSameBytes(t, want, m.read("epoch-0/worker-0-of-1.jsonl"), "after it was cleaned")
	require.EqualValues(t, bigShards, m.fetchStats().Spool.Decoded)
}

// A mount that is killed while it decodes leaves nothing that another would take for whole.
func TestAMountThatWasKilledWhileItDecodedLeavesNothingWrong(t *testing.T) {
	serve.Tier(t, serve.CI)
	d := makeBig(t)
	s := spoolSettings("full")
	want := newReference(t, d).data(s, 0)
	cache := filepath.Join(spoolDir(t), "cache")
	flags := []string{"--memory", "1MiB", "--cache-dir", cache, "--cache-size", "1GiB", "--cache-reserve", "1MiB", "--spool-dir", spoolDir(t)}
	for kill := range 4 {
		m := mountDataset(t, d, s, flags...)
		f, err := os.Open(m.path("epoch-0/worker-0-of-1.jsonl"))
		require.NoError(t, err)
		_, err = f.ReadAt(make([]byte, 1+kill*20_000), 0)
		require.NoError(t, err)
		m.kill()
		_ = f.Close() // of a server that is gone
	}
	m := mountDataset(t, d, s, flags...)
	requireSameBytes(t, want, m.read("epoch-0/worker-0-of-1.jsonl"), "after all that")
	if spool := m.fetchStats().Spool; spool != nil { // else all had been decoded
		require.EqualValues(t, bigShards, spool.Found+spool.Decoded)
	}
	m.end()
	toolOK(t, "cache", "verify", "--cache-dir", cache)
	require.Equal(t, bigShards, showDecoded(t, cache).Objects)
}
