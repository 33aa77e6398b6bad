package integration

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/signer"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/servers"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// putObject uploads an object as programs do, so that the service stores its ETag.
func putObject(t *testing.T, key string, content []byte, headers ...string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPut, os.Getenv("AWS_ENDPOINT_URL")+"/"+key, bytes.NewReader(content))
	require.NoError(t, err)
	r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(signer.SignV4(*r, servers.AccessKey, servers.SecretKey, "", "us-east-1"))
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
}

// forge flips a byte of an object in a cache and corrects the page's checksum, as if a memory error
// had occurred before the page was written.
func forge(t *testing.T, cache string, size int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(cache, "v1", "*", "*.data"))
	require.NoError(t, err)
	for _, data := range files {
		sums := data[:len(data)-len("data")] + "sums"
		head, err := os.ReadFile(sums)
		require.NoError(t, err)
		if binary.LittleEndian.Uint64(head[16:]) != uint64(size) {
			continue
		}
		b, err := os.ReadFile(data)
		require.NoError(t, err)
		b[10] ^= 1
		require.NoError(t, os.WriteFile(data, b, 0o600))
		key, err := hex.DecodeString(filepath.Base(data)[:32])
		require.NoError(t, err)
		text := append(binary.LittleEndian.AppendUint64(key, 0), b[:4096]...)
		binary.LittleEndian.PutUint32(head[4096:], crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)))
		require.NoError(t, os.WriteFile(sums, head, 0o600))
		return
	}
	require.Fail(t, "there is no such object in the cache")
}

// Objects that are complete in the cache are compared with the bucket's checksums. Objects that
// only look intact are found, and dropped if requested.
func TestCacheVerifyComparesWithBucket(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "bucket"), 0o755))
	endpoint := servers.Versitygw(t, root)
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": servers.AccessKey, "AWS_SECRET_ACCESS_KEY": servers.SecretKey,
		"AWS_CONFIG_FILE": "/nowhere", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere", "AWS_PROFILE": "", "AWS_ENDPOINT_URL_S3": "", "AWS_REGION": "", "AWS_SESSION_TOKEN": "",
		"HTTP_PROXY": "", "http_proxy": "",
	} {
		t.Setenv(name, value)
	}
	r := rand.New(rand.NewPCG(1, 2))
	lines := func(n int) []byte {
		var b bytes.Buffer
		for b.Len() < n {
			fmt.Fprintf(&b, "%d\n", r.Uint64())
		}
		return b.Bytes()[: n-1 : n-1]
	}
	sizes := map[string]int{"a": 300_000, "b": 200_000, "more/c": 100_000}
	for name, size := range sizes {
		content := append(lines(size), '\n')
		var headers []string
		if name == "a" {
			sum := binary.BigEndian.AppendUint32(nil, crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli)))
			headers = []string{"X-Amz-Checksum-Crc32c", base64.StdEncoding.EncodeToString(sum)}
		}
		if name == "b" { // it has an ETag but no checksum
			servers.WriteObject(t, filepath.Join(root, "bucket"), "train/b.txt", content)
			continue
		}
		putObject(t, "bucket/train/"+name+".txt", content, headers...)
	}
	cache := filepath.Join(t.TempDir(), "cache")
	toolOK(t, "cache", "warm", "s3://bucket/train", "--format", "lines", "--cache-dir", cache, "--cache-reserve", "0", "--index-dir", t.TempDir())
	verify := func(more ...string) result {
		t.Helper()
		return tool(t, append([]string{"cache", "verify", "--cache-dir", cache}, more...)...)
	}
	// Objects from two folders, and credentials that are requested once.
	asked, profiles := filepath.Join(t.TempDir(), "asked"), filepath.Join(t.TempDir(), "profiles")
	require.NoError(t, os.WriteFile(profiles, fmt.Appendf(nil, `[default]
credential_process = /bin/sh -c 'echo once >> %s; echo "{\"Version\": 1, \"AccessKeyId\": \"%s\", \"SecretAccessKey\": \"%s\"}"'
`, asked, servers.AccessKey, servers.SecretKey), 0o600))
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("AWS_CONFIG_FILE", profiles)
	same := verify("--remote")
	require.Zero(t, same.code, same.stderr)
	require.Contains(t, string(same.stdout), "compared with the services: 3 same\n")
	text, err := os.ReadFile(asked)
	require.NoError(t, err)
	require.Equal(t, "once\n", string(text))
	t.Setenv("AWS_CONFIG_FILE", "/nowhere")
	t.Setenv("AWS_ACCESS_KEY_ID", servers.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", servers.SecretKey)

	forge(t, cache, sizes["a"])
	forge(t, cache, sizes["b"])
	require.Zero(t, verify().code, "the pages are as they were written")
	found := verify("--remote")
	require.Equal(t, 7, found.code)
	require.Contains(t, string(found.stdout), "/bucket/train/a.txt: differs: its crc32c differs from the one that the service reports (x-amz-checksum-crc32c)")
	require.Contains(t, string(found.stdout), "/bucket/train/b.txt: differs: its MD5 differs from its ETag")
	require.Contains(t, string(found.stdout), "1 same, 2 differs\n")
	require.Contains(t, found.stderr, "cache verify --remote --repair drops them")
	repaired := verify("--remote", "--repair", "--json")
	require.Zero(t, repaired.code, repaired.stderr)
	require.Contains(t, string(repaired.stdout), `"remote":"differs"`)
	require.Contains(t, string(repaired.stdout), `"dropped":true`)
	require.Contains(t, string(verify("--remote").stdout), "1 same, 2 not whole\n")

	// If the bucket has another version by now, that is not damage.
	putObject(t, "bucket/train/more/c.txt", append(lines(sizes["more/c"]), '\n'))
	changed := verify("--remote")
	require.Zero(t, changed.code, changed.stderr)
	require.Contains(t, string(changed.stdout), "/bucket/train/more/c.txt: changed: the service now has another version of it")
	require.NoError(t, os.Remove(filepath.Join(root, "bucket", "train", "more", "c.txt")))
	require.Contains(t, string(verify("--remote").stdout), "changed: the service no longer has it")

	// Credentials are sent where the user says, not where the cache does.
	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
	elsewhere := verify("--remote")
	require.Zero(t, elsewhere.code, elsewhere.stderr)
	require.Contains(t, string(elsewhere.stdout), "not asked: it belongs to another service than")
	t.Setenv("AWS_ENDPOINT_URL", endpoint)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
	refused := verify("--remote")
	require.Equal(t, 1, refused.code)
	require.Contains(t, string(refused.stdout), "no answer: ")
	require.NotContains(t, string(refused.stdout)+refused.stderr, servers.SecretKey)
}

// Google's storage reports a CRC32C and an MD5 of each object.
func TestCacheVerifyComparesWithGoogleStorage(t *testing.T) {
	serve.Tier(t, serve.Night)
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "bucket"), 0o755))
	s, cache := servers.NewFakeGCS(t, root), filepath.Join(t.TempDir(), "cache")
	content := bytes.Repeat([]byte("{}\n"), 3000)
	s.Put(t, "bucket", "a.jsonl", content)
	toolOK(t, "cache", "warm", s.URL+"/bucket/a.jsonl", "--cache-dir", cache, "--cache-reserve", "0", "--index-dir", t.TempDir())
	r := tool(t, "cache", "verify", "--remote", "--cache-dir", cache)
	require.Contains(t, string(r.stdout), "compared with the services: 1 same\n", r.stderr)
	forge(t, cache, len(content))
	r = tool(t, "cache", "verify", "--remote", "--cache-dir", cache)
	require.Equal(t, 7, r.code)
	require.Contains(t, string(r.stdout), "differs: its crc32c differs from the one that the service reports (x-goog-hash)")
}

// A web server's checksums are used. If it reports none, the output says so.
func TestCacheVerifyComparesWithWebServer(t *testing.T) {
	site := t.TempDir()
	content := []byte("123456789\n")
	require.NoError(t, os.WriteFile(filepath.Join(site, "a.jsonl"), content, 0o644))
	old := time.Now().Add(-time.Hour) // so that a change would be noticed
	require.NoError(t, os.Chtimes(filepath.Join(site, "a.jsonl"), old, old))
	for settings, says := range map[string]string{
		"": "no checksum: the service tells no checksum of it",
		`add_header Repr-Digest "sha-256=:` + base64.StdEncoding.EncodeToString(make([]byte, 32)) + `:";`: "differs: its sha-256 differs from the one that the service reports (Repr-Digest)",
		`add_header Content-MD5 "` + md5Of(content) + `";`:                                                "1 same",
	} {
		url, cache := servers.Nginx(t, site, settings), filepath.Join(t.TempDir(), "cache")
		toolOK(t, "cache", "warm", url+"/a.jsonl", "--cache-dir", cache, "--cache-reserve", "0", "--index-dir", t.TempDir())
		r := tool(t, "cache", "verify", "--remote", "--cache-dir", cache)
		require.Contains(t, string(r.stdout), says, r.stderr)
	}
}

func md5Of(b []byte) string {
	sum := md5.Sum(b)
	return base64.StdEncoding.EncodeToString(sum[:])
}
