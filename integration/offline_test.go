package integration

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
	"github.com/lsiofs/lsiofs/integration/servers"
)

// TestFullyCachedDatasetIsReadWithoutServer has nginx behind toxiproxy, which cuts it
// off. An answer such as 403 is not taken for an outage, and once the server is back no byte of
// another version is read.
func TestFullyCachedDatasetIsReadWithoutServer(t *testing.T) {
	d := withCodec(t, "jsonl", "")
	site := t.TempDir()
	require.NoError(t, os.Chmod(site, 0o755))
	for _, name := range []string{"shard-0000.jsonl", "shard-0002.jsonl"} {
		text, err := os.ReadFile(filepath.Join(d.dir, "part-0", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(site, name), text, 0o644))
	}
	want := toolOK(t, "cat", site)
	require.NoError(t, os.WriteFile(filepath.Join(site, "list.txt"), []byte("shard-0000.jsonl\nshard-0002.jsonl\n"), 0o644))
	p := servers.NewToxiproxy(t, serve.Seed(t))
	nginx := servers.Nginx(t, site, "if (-f $document_root/closed) { return 403; }")
	url := "http://" + p.Before("nginx", strings.TrimPrefix(nginx, "http://")) + "/list.txt"
	kept := t.TempDir()
	flags := []string{"--cache-reserve", "0", "--cache-dir", filepath.Join(kept, "cache"), "--index-dir", filepath.Join(kept, "index"), "--read-timeout", "10s"}
	cat := func() result { return tool(t, append([]string{"cat", url}, flags...)...) }

	toolOK(t, append([]string{"cache", "warm", url}, flags[:6]...)...)
	p.Enable("nginx", false)
	r := cat()
	require.Zero(t, r.code, r.stderr)
	requireSameBytes(t, want, r.stdout, "offline")
	require.Equal(t, 1, strings.Count(r.stderr, "the service can't be reached: the files that it had"), r.stderr)

	listed := d
	listed.dir, listed.ext = url, ".jsonl"
	m := mountAt(t, listed, t.TempDir(), flags...)
	require.Contains(t, string(m.read("status")), "the service was unreachable at mount time")
	p.Enable("nginx", true)
	require.NoError(t, os.WriteFile(filepath.Join(site, "closed"), nil, 0o644))
	r = cat()
	require.NotZero(t, r.code, "403 is an answer")
	require.Contains(t, r.stderr, "403")
	require.NoError(t, os.Remove(filepath.Join(site, "closed")))

	// The cache is lost under the mount, one shard has changed, and the server is back.
	replaced := filepath.Join(site, "shard-0002.jsonl")
	text, err := os.ReadFile(replaced)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(replaced, bytes.ToUpper(append(text, text...)), 0o644))
	require.NoError(t, filepath.WalkDir(filepath.Join(kept, "cache"), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			err = os.Truncate(path, 0)
		}
		return err
	}))
	_, err = os.ReadFile(m.path("worker-0.jsonl"))
	require.Error(t, err, "a record of the shard that was replaced")
	require.Contains(t, string(m.read("status")), "shard-0002.jsonl")

	p.Enable("nginx", false)
	require.NoError(t, os.RemoveAll(filepath.Join(kept, "cache")))
	flags[7] = "3s" // the wait is as long as if nothing had been listed before
	r = cat()
	require.NotZero(t, r.code)
	require.Contains(t, r.stderr, "the disk cache has 0 of its 2 files")
}
