package s3

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/servers"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// gateway starts a real S3 server, and returns its endpoint and the directory of its bucket.
func gateway(t *testing.T) (endpoint, dir string) {
	alone(t)
	t.Setenv("AWS_ACCESS_KEY_ID", servers.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", servers.SecretKey)
	root := t.TempDir()
	dir = filepath.Join(root, "bucket")
	require.NoError(t, os.Mkdir(dir, 0o755))
	return servers.Versitygw(t, root), dir
}

func put(t *testing.T, dir, name, content string) {
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
}

func openAt(t *testing.T, name string, o Options) *Source {
	o.Transport = transport(t)
	src, _, err := Open(t.Context(), bucket(t, name), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, src.Close()) })
	return src
}

func TestRealServerServesRangesOfVersion(t *testing.T) {
	endpoint, dir := gateway(t)
	servers.WriteObject(t, dir, "t/x.tar", []byte("0123456789"))
	t.Setenv("AWS_ENDPOINT_URL_S3", endpoint)
	src := openAt(t, "s3://bucket/t/x.tar", Options{})
	require.Equal(t, "s3+"+endpoint+"/bucket/t", src.Name())
	l, err := src.Head(t.Context(), "x.tar")
	require.NoError(t, err)
	require.EqualValues(t, 10, l.SizeBytes)
	require.EqualValues(t, `"781e5e245d69b566979b86e28d23f2c7"`, l.Validator)
	require.WithinDuration(t, time.Now(), l.Modified, time.Hour)
	require.NoError(t, remote.Walk(t.Context(), src, func(other remote.Listed) error {
		require.Equal(t, l.Validator, other.Validator, "a listing says the same as HEAD")
		require.Equal(t, l.SizeBytes, other.SizeBytes)
		return nil
	}))

	for _, c := range []struct {
		off, n int64
		want   string
		status int
	}{{0, 4, "0123", 206}, {3, 4, "3456", 206}, {9, 1, "9", 206}, {7, -1, "789", 206}, {0, -1, "0123456789", 200}, {0, 10, "0123456789", 206}} {
		a, err := src.Open(t.Context(), "x.tar", l.Validator, c.off, c.n)
		require.NoError(t, err)
		require.Equal(t, c.want, body(t, a))
		require.Equal(t, c.status, a.Status)
		require.Equal(t, l.Validator, a.Validator)
		require.EqualValues(t, len(c.want), a.LengthBytes)
		if c.status == 206 {
			require.Equal(t, [3]int64{c.off, c.off + int64(len(c.want)), 10}, [3]int64{a.Begin, a.End, a.Total})
		}
	}
	for _, c := range []struct {
		path   string
		v      remote.Validator
		off    int64
		status int
		code   string
	}{{"x.tar", `"another"`, 0, 412, "PreconditionFailed"}, {"x.tar", l.Validator, 10, 416, "InvalidRange"}, {"y.tar", l.Validator, 0, 404, "NoSuchKey"}} {
		a, err := src.Open(t.Context(), c.path, c.v, c.off, 4)
		require.NoError(t, err)
		body(t, a)
		require.Equal(t, c.status, a.Status)
		require.Equal(t, c.code, a.Code)
	}
	_, err = src.Head(t.Context(), "y.tar")
	require.ErrorIs(t, err, fs.ErrNotExist)

	servers.WriteObject(t, dir, "t/x.tar", []byte("9876543210"))
	a, err := src.Open(t.Context(), "x.tar", l.Validator, 0, 4)
	require.NoError(t, err)
	body(t, a)
	require.Equal(t, 412, a.Status, "another version is not mixed in")
}

// versitygw serves files that were put into its directory, and compares their times to the
// nanosecond.
func TestFileWithoutETagIsReadByItsDate(t *testing.T) {
	endpoint, dir := gateway(t)
	put(t, dir, "x.tar", "0123456789")
	written := time.Date(2026, 11, 21, 8, 0, 0, 999_999_999, time.UTC)
	require.NoError(t, os.Chtimes(filepath.Join(dir, "x.tar"), written, written))
	src := openAt(t, "s3://bucket", Options{Endpoint: endpoint})
	l, err := src.Head(t.Context(), "x.tar")
	require.NoError(t, err)
	require.EqualValues(t, "modified:Sat, 21 Nov 2026 08:00:00 GMT", l.Validator)
	read := func() remote.Answer {
		a, err := src.Open(t.Context(), "x.tar", l.Validator, 0, 4)
		require.NoError(t, err)
		body(t, a)
		return a
	}
	a := read()
	require.Equal(t, 206, a.Status)
	require.Equal(t, l.Validator, a.Validator)
	written = written.Add(2 * time.Second)
	require.NoError(t, os.Chtimes(filepath.Join(dir, "x.tar"), written, written))
	require.Equal(t, 412, read().Status)
	written = time.Date(2026, 11, 21, 8, 0, 1, 0, time.UTC)
	require.NoError(t, os.Chtimes(filepath.Join(dir, "x.tar"), written, written))
	require.NotEqual(t, l.Validator, read().Validator, "what is a second younger is seen in the answer")
}

func TestRealServerReportsDeniedReads(t *testing.T) {
	endpoint, dir := gateway(t)
	put(t, dir, "x.tar", "0123456789")
	a, err := openAt(t, "s3://bucket/", Options{Endpoint: endpoint, Anonymous: true}).Open(t.Context(), "x.tar", "", 0, 4)
	require.NoError(t, err)
	body(t, a)
	require.Equal(t, 403, a.Status)
	require.Equal(t, "AccessDenied", a.Code)

	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
	src := openAt(t, "s3://bucket/", Options{Endpoint: endpoint})
	a, err = src.Open(t.Context(), "x.tar", "", 0, 4)
	require.NoError(t, err)
	body(t, a)
	require.Equal(t, 403, a.Status)
	require.Equal(t, "SignatureDoesNotMatch", a.Code)
	err = remote.Walk(t.Context(), src, func(remote.Listed) error { return nil })
	require.ErrorContains(t, err, "403 Forbidden (SignatureDoesNotMatch)")
	require.NotContains(t, err.Error(), "hunter2")
	t.Setenv("AWS_SECRET_ACCESS_KEY", servers.SecretKey)
	err = remote.Walk(t.Context(), openAt(t, "s3://nothing/", Options{Endpoint: endpoint}), func(remote.Listed) error { return nil })
	require.ErrorContains(t, err, "404 Not Found (NoSuchBucket)")
}

// The listing has several pages.
func TestRealServerListsAndServesOddKeys(t *testing.T) {
	endpoint, dir := gateway(t)
	odd := []string{
		"a b.tar", "a+b.tar", "a%20b.tar", "a&b<c>'\".tar", "ünï cøde 数据.tar", "a=b;c,d:e@f!$~*().tar", "a#b?c.tar", "a\\b[c]{d}^`|.tar",
		"tab\tand\nline.tar", "a/b/c/d.tar", "a.b/c.tar", "x..y.tar",
	}
	var want []string
	for i := range 2500 {
		want = append(want, fmt.Sprintf("s/%04d.tar", i))
	}
	want = append(want, odd...)
	want = append(want, ".hidden", ".dir/x.tar") // the engine leaves these out, and counts them
	for _, name := range want {
		put(t, dir, "t/"+name, "content of "+name)
	}
	put(t, dir, "tx/x.tar", "another folder's")
	slices.Sort(want)
	src := openAt(t, "s3://bucket/t/", Options{Endpoint: endpoint})
	require.Equal(t, want, listed(t, src))
	for _, name := range odd {
		l, err := src.Head(t.Context(), name)
		require.NoError(t, err, name)
		a, err := src.Open(t.Context(), name, l.Validator, 8, -1)
		require.NoError(t, err)
		require.Equal(t, "of "+name, body(t, a))
		require.Equal(t, 206, a.Status, name)
	}
	// The bucket itself, and a folder without objects.
	all := listed(t, openAt(t, "s3://bucket", Options{Endpoint: endpoint}))
	require.Len(t, all, len(want)+1)
	require.True(t, slices.ContainsFunc(all, func(path string) bool { return strings.HasPrefix(path, "t/s/") }))
	require.Empty(t, listed(t, openAt(t, "s3://bucket/none/", Options{Endpoint: endpoint})))
}
