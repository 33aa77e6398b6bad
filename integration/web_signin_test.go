package integration

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/servers"
)

// TestHubThatRequiresTokenAndRedirects has two nginx. The first requires a token or a password and
// redirects authorized requests to the second, which must get neither. The hub gets only a few
// requests per file, and no secret is left anywhere.
func TestHubThatRequiresTokenAndRedirects(t *testing.T) {
	const token, password = "token-hunter2", "password-hunter2"
	d := withCodec(t, "jsonl", "")
	site := filepath.Join(d.dir, "part-0")
	want := toolOK(t, "cat", site, "--chunk-bytes", "1KiB")
	log := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(filepath.Join(site, "list.txt"), []byte("shard-0000.jsonl\nshard-0002.jsonl\n"), 0o644))
	target := servers.Nginx(t, site, "if ($http_authorization) { return 400; }")
	hub := servers.Nginx(t, site, fmt.Sprintf(`access_log %s combined;
    set $in no;
    if ($http_authorization = "Bearer %s") { set $in yes; }
    if ($http_authorization = "Basic bWU6cGFzc3dvcmQtaHVudGVyMg==") { set $in yes; }
    if ($in = no) { return 401; }
    location /shard- { return 302 %s$request_uri?signature=x; }`, log, token, target))
	cat := func(flags ...string) result {
		return tool(t, append([]string{"cat", hub + "/list.txt", "--cache-size", "off", "--chunk-bytes", "1KiB"}, flags...)...)
	}

	t.Setenv("NETRC", os.DevNull)
	r := cat()
	require.NotZero(t, r.code)
	require.Contains(t, r.stderr, "LSIOFS_HTTP_TOKEN")
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "secrets")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	require.NoError(t, os.WriteFile(log, nil, 0o644))
	r = cat("--auth-file", file(strings.TrimPrefix(hub, "http://")+" "+token))
	require.Zero(t, r.code, r.stderr)
	requireSameBytes(t, want, r.stdout, "by a file")
	asked, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Less(t, bytes.Count(asked, []byte("GET /shard-")), 2*4, "each of two files is asked for about once by the index pass, and once by the reader")

	t.Setenv("NETRC", file("machine 127.0.0.1 login me password "+password))
	requireSameBytes(t, want, toolOK(t, "cat", hub+"/list.txt", "--chunk-bytes", "1KiB"), "by .netrc")
	t.Setenv("NETRC", os.DevNull)
	t.Setenv("LSIOFS_HTTP_TOKEN", token)
	kept := t.TempDir()
	listed := d
	listed.dir, listed.ext = hub+"/list.txt", ".jsonl"
	m := mountAt(t, listed, t.TempDir(), "--chunk-bytes", "1KiB", "--index-dir", filepath.Join(kept, "index"), "--cache-dir", filepath.Join(kept, "cache"))
	requireSameBytes(t, want, m.read("worker-0.jsonl"), "a mount by the environment")
	texts := []string{string(m.read("status")), string(m.read("status.json")), string(m.read("metrics")), r.stderr}
	require.NoError(t, filepath.WalkDir(kept, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		texts = append(texts, path, string(text))
		return err
	}))
	for _, text := range texts {
		require.NotContains(t, text, "hunter2")
		require.NotContains(t, text, "signature=")
	}
}
