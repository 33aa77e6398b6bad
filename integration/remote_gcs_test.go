package integration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/servers"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// A server that ignores If-Match, as a fake of Google's does, delivers the same bytes. An object
// that is replaced there under a mount is an error, because each answer is checked.
func TestServerThatIgnoresIfMatch(t *testing.T) {
	serve.Tier(t, serve.Night)
	const shards, recordBytes = 4, 4096
	content := func(c byte) []byte { return bytes.Repeat([]byte{c}, 256*recordBytes) }
	root, flags := t.TempDir(), []string{"--format", "fixed", "--record-bytes", fmt.Sprint(recordBytes)}
	bucket := filepath.Join(root, "bucket", "train")
	require.NoError(t, os.MkdirAll(bucket, 0o755))
	for i := range shards {
		require.NoError(t, os.WriteFile(filepath.Join(bucket, fmt.Sprintf("shard-%d.bin", i)), content(byte('a'+i)), 0o644))
	}
	s := servers.NewFakeGCS(t, root)
	target := s.URL + "/bucket/train/shard-{0..3}.bin"
	requireSameBytes(t, toolOK(t, append([]string{"cat", bucket}, flags...)...), toolOK(t, append([]string{"cat", target}, flags...)...), "cat")

	m := mountAt(t, dataset{dir: target, ext: ".bin", flags: flags}, t.TempDir(), "--memory", "1MiB", "--cache-size", "off")
	s.Put(t, "bucket", "train/shard-2.bin", content('z'))
	f, err := os.Open(m.path("worker-0.bin"))
	require.NoError(t, err)
	record, failed := make([]byte, recordBytes), 0
	for i := range shards * 256 {
		if _, err := f.ReadAt(record, int64(i)*recordBytes); err != nil {
			require.ErrorIs(t, err, syscall.EIO)
			failed++
			continue
		}
		require.NotEqual(t, byte('z'), record[0])
		require.Equal(t, recordBytes, bytes.Count(record, record[:1]))
	}
	require.NoError(t, f.Close())
	require.Equal(t, 256, failed, "all of shard 2")
	m.requireLog(`shard-2\.bin.*changed since it was indexed: mount or run again`)
}
