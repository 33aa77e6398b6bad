package integration

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/servers"
)

// place is the location of a dataset: a directory, a bucket, or a web server.
type place struct {
	dataset
	shown string // its name in documents
	// replace replaces the content of a file of the dataset.
	replace func(name string, content []byte)
}

// places copies a dataset to a bucket and to a web server. The web server accepts a query, which
// contains a secret.
func places(t *testing.T, d dataset) (here, bucket, web place) {
	t.Helper()
	root, site := t.TempDir(), t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "bucket"), 0o755))
	var list []string
	require.NoError(t, filepath.WalkDir(d.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		name, err := filepath.Rel(d.dir, path)
		require.NoError(t, err)
		servers.WriteObject(t, filepath.Join(root, "bucket"), "sets/train/"+name, b)
		if e.Name()[0] == '.' {
			return nil
		}
		list = append(list, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(site, name)), 0o755))
		return os.WriteFile(filepath.Join(site, name), b, 0o644)
	}))
	require.NoError(t, os.WriteFile(filepath.Join(site, "list.txt"), []byte(strings.Join(list, "\n")), 0o644))
	t.Setenv("AWS_ENDPOINT_URL", servers.Versitygw(t, root))
	t.Setenv("AWS_ACCESS_KEY_ID", servers.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", servers.SecretKey)
	for name, value := range map[string]string{
		"AWS_CONFIG_FILE": "/nowhere", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere", "AWS_PROFILE": "", "AWS_ENDPOINT_URL_S3": "", "AWS_REGION": "", "AWS_SESSION_TOKEN": "",
		"HTTP_PROXY": "", "http_proxy": "",
	} {
		t.Setenv(name, value)
	}
	url := servers.Nginx(t, site, "") + "/list.txt"
	here = place{d, d.dir, func(name string, content []byte) { replaceFile(t, filepath.Join(d.dir, name), content) }}
	bucket = place{d, "s3://bucket/sets/train", func(name string, content []byte) {
		servers.WriteObject(t, filepath.Join(root, "bucket"), "sets/train/"+name, content)
	}}
	web = place{d, url, func(name string, content []byte) { replaceFile(t, filepath.Join(site, name), content) }}
	bucket.dir, web.dir = bucket.shown, url+"?sig="+servers.SecretKey
	return here, bucket, web
}

// replaceFile replaces a file and sets its time an hour back. Web servers distinguish versions by
// whole seconds, so the time has to differ; and a mount waits for files that are younger than two
// seconds, or that are dated up to a minute ahead.
func replaceFile(t *testing.T, path string, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", content, 0o644))
	before := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(path+".new", before, before))
	require.NoError(t, os.Rename(path+".new", path))
}

// A directory, a bucket with a copy of it, and a web server that serves it give the same bytes,
// through cat and through a mount, and checkpoints can move between them. Secrets are in nothing
// that lsiofs writes.
func TestDatasetIsSameInDirectoryBucketAndWebServer(t *testing.T) {
	d := plain(t, "tar", 4)
	here, bucket, web := places(t, d)
	s := usual()
	s.Workers = 1
	want := sha256.Sum256(toolOK(t, append([]string{"cat", here.dir}, s.flags()...)...))
	const taken = 12
	dir := t.TempDir()
	resume := ""
	var got, whole []string
	for i, p := range []place{bucket, web, here, web, bucket} {
		r := tool(t, append([]string{"cat", p.dir}, s.flags()...)...)
		require.Zero(t, r.code, "%s: %s", p.shown, r.stderr)
		require.Equal(t, want, sha256.Sum256(r.stdout), p.shown)
		require.NotContains(t, r.stderr, servers.SecretKey)

		// Each resumes where the previous one stopped.
		flags := s.flags()
		if resume != "" {
			flags = append(flags, "--resume", resume)
		}
		m := mountAt(t, p.dataset, t.TempDir(), flags...)
		if i == 0 {
			whole = splitIDs(m.read("worker-%d.ids", 0))
		}
		got = append(got, m.take(d, 0, taken)...)
		resume = filepath.Join(dir, fmt.Sprintf("%d.json", i))
		shell(t, `cp "$1" "$2"`, m.path("checkpoint"), resume)
		for _, name := range []string{"status", "status.json", "dataset.json", "README", "metrics"} {
			b, err := os.ReadFile(m.path("%s", name))
			require.NoError(t, err)
			require.NotContains(t, string(b), servers.SecretKey, "%s of %s", name, p.shown)
			if name == "dataset.json" {
				require.Contains(t, string(b), p.shown)
			}
			if name == "status" && p.shown != here.shown {
				require.Contains(t, string(b), "\nservice ")
			}
		}
		m.end()
		require.NotContains(t, m.log.String(), servers.SecretKey)
	}
	require.Equal(t, whole[:5*taken], got)
}

// Errors about a bucket explain what is wrong and what to do, and contain no secrets.
func TestUnreadableBucketsAreRefusedWithExplanation(t *testing.T) {
	_, bucket, _ := places(t, plain(t, "tar", 2))
	for _, c := range []struct {
		args  []string
		env   []string
		words string
	}{
		{[]string{"cat", bucket.dir}, []string{"AWS_SECRET_ACCESS_KEY=hunter2"}, "403 Forbidden (SignatureDoesNotMatch)"},
		{[]string{"cat", bucket.dir}, []string{"AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=", "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null"}, "--anonymous"},
		{[]string{"cat", bucket.dir, "--anonymous"}, nil, "403 Forbidden"},
		{[]string{"cat", "s3://another/"}, nil, "there is no such bucket"},
		{[]string{"cat", "s3://bucket/nothing/"}, nil, "holds no files"},
		{[]string{"cat", bucket.dir + "/part-0/shard-{0000..0001}.tar"}, nil, "shard-0001.tar is missing"},
		{[]string{"cat", bucket.dir, "--format", "files"}, nil, "each file would take a request"},
		{[]string{"cat", bucket.dir, "--endpoint", "https://someone:hunter2@host"}, nil, "user name"},
		{[]string{"tune", "s3://another/"}, nil, "lsiofs doctor URL"},
		{[]string{"doctor", bucket.dir, "--anonymous"}, nil, "1 check failed"},
		{[]string{"doctor", "--report", bucket.dir}, nil, "does not support buckets and web servers yet"},
		{[]string{"bench", bucket.dir, "--anonymous"}, nil, "403 Forbidden"},
	} {
		r := command(t, c.env, nil, lsiofs, c.args...)
		require.NotZero(t, r.code, "%q", c.args)
		require.Contains(t, r.stderr, c.words, "%q", c.args)
		require.NotContains(t, r.stderr, "hunter2")
		require.NotContains(t, r.stderr, servers.SecretKey)
	}
}

// doctor, plan and tune show what is known about a bucket and a web server, without secrets.
func TestDoctorPlanAndTuneExamineBucketsAndWebServers(t *testing.T) {
	_, bucket, web := places(t, plain(t, "tar", 2))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, p := range []place{bucket, web} {
		for _, c := range []struct {
			args  []string
			words []string
		}{
			{[]string{"doctor", p.dir}, []string{" HEAD requests took ", "ok    transfer ", "ok    ranges ", "ok    versions         If-Match is honoured", "disk cache"}},
			{[]string{"plan", p.dir}, []string{"\nan epoch of ", " requests", "with a disk cache: up to ", "--groups 32"}},
		} {
			r := tool(t, c.args...)
			require.Zero(t, r.code, "%q: %s", c.args, r.stderr)
			for _, words := range c.words {
				require.Contains(t, string(r.stdout), words, "%q", c.args)
			}
			require.NotContains(t, string(r.stdout)+r.stderr, servers.SecretKey)
			require.NotContains(t, string(r.stdout), "list price", "nobody knows what requests cost here")
		}
	}
}
