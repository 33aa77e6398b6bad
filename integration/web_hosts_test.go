package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/servers"
)

// TestListNamesFilesOnSeveralServers has two nginx with a file of the same path. Both are in the
// dataset and in the cache, which distinguishes them in all commands.
func TestListNamesFilesOnSeveralServers(t *testing.T) {
	t.Setenv("NETRC", os.DevNull)
	kept := t.TempDir()
	urls, texts := make([]string, 2), make([]string, 2)
	for i := range urls {
		site := t.TempDir()
		texts[i] = strings.Repeat("server "+string(rune('a'+i))+"\n", 1000)
		require.NoError(t, os.WriteFile(filepath.Join(site, "x.txt"), []byte(texts[i]), 0o644))
		list := "x.txt\n"
		if i > 0 {
			list = urls[0] + "/x.txt\n./x.txt\n"
		}
		require.NoError(t, os.WriteFile(filepath.Join(site, "list.txt"), []byte(list), 0o644))
		urls[i] = servers.Nginx(t, site, "")
	}
	flags := []string{"--cache-reserve", "0", "--cache-dir", filepath.Join(kept, "cache"), "--index-dir", filepath.Join(kept, "index")}
	cat := func(url string) []byte {
		return toolOK(t, append([]string{"cat", url + "/list.txt", "--shuffle", "none"}, flags...)...)
	}
	for range 2 { // the second time from the cache
		got := cat(urls[1])
		require.Equal(t, 1000, bytes.Count(got, []byte("server a\n")))
		require.Equal(t, 1000, bytes.Count(got, []byte("server b\n")))
		require.Len(t, got, 2*len(texts[0]))
	}
	require.Equal(t, texts[0], string(cat(urls[0])), "the same file by another list")
	shown := string(toolOK(t, "cache", "show", "--cache-dir", filepath.Join(kept, "cache"), "--json"))
	compared := tool(t, "cache", "verify", "--remote", "--json", "--cache-dir", filepath.Join(kept, "cache"))
	for _, url := range urls {
		require.Equal(t, 1, strings.Count(shown, `"url":"`+url+`","objects":1,`), "%s", shown)
		require.Contains(t, string(compared.stdout), url+"/x.txt", "%s", compared.stderr)
	}
	require.NotContains(t, string(compared.stdout), "http:/1", "%s", compared.stdout)
}
