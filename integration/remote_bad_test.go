package integration

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"

	"github.com/lsiofs/lsiofs/integration/servers"
)

// Small files of a web server without ranges are read; large ones are refused with an explanation.
// A server that compresses is asked not to.
func TestWebServersWithoutRangesOrWithCompression(t *testing.T) {
	d := withCodec(t, "jsonl", "")
	site := filepath.Join(d.dir, "part-0")
	want := toolOK(t, "cat", site)
	for _, settings := range []string{"max_ranges 0;", "gzip on; gzip_types *; gzip_min_length 1;", "etag off;"} {
		url := servers.Nginx(t, site, settings)
		r := tool(t, "cat", url+"/shard-{0000,0002}.jsonl")
		require.NotZero(t, r.code, "only numbers are ranges")
		require.Contains(t, r.stderr, "braces stand for ranges of numbers here")
		got := toolOK(t, "cat", url+"/shard-0000.jsonl")
		require.NotEmpty(t, got)
		requireSameBytes(t, toolOK(t, "cat", filepath.Join(site, "shard-0000.jsonl")), got, "with %s", settings)
		require.NoError(t, os.WriteFile(filepath.Join(site, "list.txt"), []byte("shard-0000.jsonl\nshard-0002.jsonl\n"), 0o644))
		requireSameBytes(t, want, toolOK(t, "cat", url+"/list.txt"), "with %s", settings)
		require.NoError(t, os.Remove(filepath.Join(site, "list.txt")))
	}

	large := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(large, "x.bin"), bytes.Repeat([]byte("0123456789abcdef"), 9<<16), 0o644))
	r := tool(t, "cat", servers.Nginx(t, large, "max_ranges 0;")+"/x.bin", "--format", "fixed", "--record-bytes", "4096")
	require.NotZero(t, r.code)
	require.Contains(t, r.stderr, "x.bin")
	require.Contains(t, r.stderr, "does not serve ranges")
	require.Contains(t, r.stderr, "nginx or a bucket", "what to do")
}

// If an object is replaced while a mount reads it, its records are EIO, and the log and status say
// why. No byte of the new object is ever delivered, and the other objects can still be read.
func TestObjectChangedDuringEpochIsAnErrorAndNeverMixed(t *testing.T) {
	const shards, records, recordBytes = 4, 256, 4096
	content := func(c byte) []byte { return bytes.Repeat([]byte{c}, records*recordBytes) }
	d := dataset{name: "letters", dir: t.TempDir(), ext: ".bin", flags: []string{"--format", "fixed", "--record-bytes", fmt.Sprint(recordBytes)}}
	for i := range shards {
		require.NoError(t, os.WriteFile(filepath.Join(d.dir, fmt.Sprintf("%d.bin", i)), content('a'), 0o644))
	}
	_, bucket, web := places(t, d)
	for _, p := range []place{bucket, web} {
		m := mountAt(t, p.dataset, t.TempDir(), "--memory", "1MiB", "--cache-size", "off")
		f, err := os.Open(m.path("worker-0.bin"))
		require.NoError(t, err)
		record := make([]byte, recordBytes)
		for i := range 10 {
			_, err := f.ReadAt(record, int64(i)*recordBytes)
			require.NoError(t, err)
		}
		// Versitygw reads the ETag of a path, then opens the path: a request concurrent with the
		// replacement may get the new content with the old ETag, which no real bucket does.
		still := 0
		m.until(func() bool {
			if still++; !bytes.Contains(m.read("metrics"), []byte("\nlsiofs_engine_in_flight 0\n")) {
				still = 0
			}
			return still == 20
		}, "requests go on although nobody reads")
		p.replace("2.bin", content('b'))
		failed := 0
		for i := range shards * records {
			_, err := f.ReadAt(record, int64(i)*recordBytes)
			if err != nil {
				require.ErrorIs(t, err, syscall.EIO)
				failed++
				continue
			}
			require.Equal(t, recordBytes, bytes.Count(record, []byte("a")), "record %d of %s", i, p.shown)
		}
		require.NotZero(t, failed)
		require.LessOrEqual(t, failed, records, "all that failed is of one object")
		require.NoError(t, f.Close())
		m.requireLog(`2\.bin.*changed since it was indexed: mount or run again`)
		require.Regexp(t, `2\.bin.*changed since it was indexed`, string(m.read("status")))
		m.end()

		// Mounted again, it is the new dataset.
		require.Equal(t, records*recordBytes, bytes.Count(toolOK(t, append([]string{"cat", p.dir}, d.flags...)...), []byte("b")))
	}
}

// Keys and files may have any names: characters that are special in a URL, in a listing or in a
// shell are not special here.
func TestUnusualObjectNames(t *testing.T) {
	d := dataset{name: "odd", dir: t.TempDir(), ext: ".jsonl"}
	for i, name := range []string{"a b+c%20d/é#&=~!'().jsonl", "日本/ü%.jsonl", "-dash/quote\".jsonl", "q?x=1&y/;,:@$.jsonl", "%2F/..x/+.jsonl", "back\\slash/[1]{2}.jsonl", strings.Repeat("long/", 40) + "x.jsonl"} {
		path := filepath.Join(d.dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, "{\"shard\": %d}\n", i), 0o644))
	}
	here, bucket, _ := places(t, d)
	want := toolOK(t, "cat", here.dir)
	require.Equal(t, 6, bytes.Count(want, []byte("\n")), "that in the directory ..x is passed over")
	requireSameBytes(t, want, toolOK(t, "cat", bucket.dir), "the bucket")
	m := mountAt(t, bucket.dataset, t.TempDir())
	requireSameBytes(t, want, m.read("epoch-0/worker-0-of-1.jsonl"), "the bucket's mount")
	require.NoError(t, filepath.WalkDir(d.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.Contains(path, "..x") {
			return err
		}
		name, err := filepath.Rel(d.dir, path)
		require.NoError(t, err)
		one := "s3://bucket/sets/train/" + regexp.MustCompile(`[\\*?\[\]{}]`).ReplaceAllString(name, `\$0`) // otherwise it is a pattern
		r := tool(t, "cat", one)
		require.Zero(t, r.code, "%s: %s", one, r.stderr)
		requireSameBytes(t, toolOK(t, "cat", path), r.stdout, "%s", one)
		return nil
	}))
}

// A bucket of another region is refused with advice.
func TestBucketInOtherRegion(t *testing.T) {
	t.Setenv("VGW_REGION", "eu-west-1")
	here, bucket, _ := places(t, plain(t, "jsonl", 2))
	for _, flags := range [][]string{nil, {"--region", "us-west-2"}} {
		r := tool(t, append([]string{"cat", bucket.dir}, flags...)...)
		require.NotZero(t, r.code)
		require.Contains(t, r.stderr, "/bucket/sets/train", "which one")
		require.Contains(t, r.stderr, "another region: name that with --region")
	}
	requireSameBytes(t, toolOK(t, "cat", here.dir), toolOK(t, "cat", bucket.dir, "--region", "eu-west-1"), "in its region")
	t.Setenv("AWS_REGION", "eu-west-1")
	requireSameBytes(t, toolOK(t, "cat", here.dir), toolOK(t, "cat", bucket.dir), "in that of the environment")
}

// Secrets are in nothing that lsiofs prints, writes or shows about itself, not even if something is
// wrong.
func TestSecretsNeverAppear(t *testing.T) {
	requireServersEnd(t) // those of earlier tests
	_, bucket, web := places(t, plain(t, "tar", 4))
	clean := func(text []byte, format string, args ...any) {
		t.Helper()
		require.NotContains(t, string(text), servers.SecretKey, fmt.Sprintf(format, args...))
	}
	for _, p := range []place{bucket, web} {
		page := filepath.Join(t.TempDir(), "page.html")
		for _, args := range [][]string{
			{"index", p.dir, "--json"}, {"plan", p.dir, "--records", "10", "--json"}, {"verify", p.dir}, {"inspect", p.dir}, {"inspect", p.dir, "--html", page},
			{"cat", p.dir, "--ids", "--log-level", "debug"}, {"cat", p.dir, "--workers", "0"}, {"cat", p.dir, "--resume", "/nothing"},
			{"cat", strings.Replace(p.dir, "train", "nothing", 1), "--json"}, {"cat", strings.Replace(p.dir, "list", "nothing", 1), "--json"},
		} {
			r := tool(t, args...)
			clean(append(r.stdout, r.stderr...), "%q", args)
		}
		b, err := os.ReadFile(page)
		require.NoError(t, err)
		clean(b, "the page of %s", p.shown)

		log := filepath.Join(t.TempDir(), "log")
		point := t.TempDir()
		clean(toolOK(t, "mount", p.dir, point, "--daemon", "--json", "--log-file", log, "--log-level", "debug", "--memory", "1MiB", "--cache-size", "off"), "mount --json")
		t.Cleanup(func() { detach(point) })
		pids := serverProcesses()
		require.Len(t, pids, 1)
		for _, file := range []string{fmt.Sprintf("/proc/%d/cmdline", pids[0]), "/proc/self/mountinfo"} {
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			clean(b, "%s", file)
		}
		p.replace("part-0/shard-0000.tar", []byte("another"))
		_, err = os.ReadFile(filepath.Join(point, "epoch-1/worker-0-of-1.tar"))
		require.ErrorIs(t, err, syscall.EIO)
		require.NoError(t, syscall.Kill(pids[0], syscall.SIGUSR1))
		for _, name := range []string{"status", "status.json", "dataset.json", "README", "metrics", "checkpoint"} {
			b, err := os.ReadFile(filepath.Join(point, name))
			require.NoError(t, err)
			clean(b, "%s of %s", name, p.shown)
		}
		toolOK(t, "umount", point)
		requireServersEnd(t)
		b, err = os.ReadFile(log)
		require.NoError(t, err)
		require.Regexp(t, regexp.MustCompile("changed since it was indexed"), string(b))
		clean(b, "the log of %s", p.shown)
	}
	require.NoError(t, filepath.WalkDir(filepath.Join(scratch, "cache"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		clean(b, "%s", path)
		return err
	}))
}

// A listing of 10⁵ keys takes a bounded number of requests, and memory only for the names. Only
// matching objects are read.
func TestListingOfManyKeys(t *testing.T) {
	const keys = 100_000
	b := newManyKeys(keys)
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	places(t, plain(t, "jsonl", 1)) // for the environment
	t.Setenv("AWS_ENDPOINT_URL", server.URL)
	cmd := exec.Command(lsiofs, "cat", "s3://many/set/*/*77.jsonl", "--shuffle", "none")
	cmd.Env = environment(t.TempDir())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Start())
	watchdog := time.AfterFunc(clientLimit, func() { _ = cmd.Process.Kill() })
	// The kernel's own maximum includes the parent's memory: that of this process and its tests.
	most, looking, ended := 0, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(looking)
		for {
			if n, err := serve.MemoryOf(cmd.Process.Pid); err == nil {
				most = max(most, n)
			}
			select {
			case <-ended:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	err := cmd.Wait()
	close(ended)
	<-looking
	require.NoError(t, err, "%s", &stderr)
	watchdog.Stop()
	t.Logf("%d listings, %d requests for objects, at most %d MiB", b.lists.Load(), b.gets.Load(), most>>20)
	require.Equal(t, keys/100, bytes.Count(stdout.Bytes(), []byte("\n")))
	require.Less(t, b.lists.Load(), int64(2*keys/1000+50), "1000 keys a page, and the folders' first pages")
	require.LessOrEqual(t, b.gets.Load(), int64(3*keys/100), "objects that were not meant are not asked for")
	require.Positive(t, most)
	if !raceBuilt {
		require.Less(t, most, 200<<20, "bytes")
	}
}

// manyKeys is a bucket of objects set/NNN/NNNNNN.jsonl, each with one short line.
type manyKeys struct {
	keys        []string
	lists, gets atomic.Int64
}

func newManyKeys(n int) *manyKeys {
	b := &manyKeys{}
	for i := range n {
		b.keys = append(b.keys, fmt.Sprintf("set/%03d/%06d.jsonl", i/1000, i))
	}
	return b
}

func (b *manyKeys) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, ok := strings.CutPrefix(r.URL.Path, "/many/")
	if !ok || !r.URL.Query().Has("list-type") {
		b.gets.Add(1)
		if _, found := slices.BinarySearch(b.keys, key); !found {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("ETag", `"same"`)
		http.ServeContent(w, r, "", time.Unix(1, 0), strings.NewReader("{\"key\": \""+key+"\"}\n"))
		return
	}
	b.lists.Add(1)
	q := r.URL.Query()
	after := max(q.Get("start-after"), q.Get("continuation-token"))
	at, found := slices.BinarySearch(b.keys, max(q.Get("prefix"), after))
	if found && after != "" {
		at++
	}
	fmt.Fprint(w, `<ListBucketResult>`)
	defer fmt.Fprint(w, `</ListBucketResult>`)
	last, folder := "", ""
	for n := 0; at < len(b.keys) && strings.HasPrefix(b.keys[at], q.Get("prefix")); at++ {
		rest := b.keys[at][len(q.Get("prefix")):]
		if below, _, is := strings.Cut(rest, "/"); is && q.Get("delimiter") != "" {
			below = q.Get("prefix") + below + "/"
			if below == folder {
				continue
			}
			folder = below
			fmt.Fprintf(w, "<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>", folder)
			continue
		}
		if n++; n > 1000 {
			fmt.Fprintf(w, "<IsTruncated>true</IsTruncated><NextContinuationToken>%s</NextContinuationToken>", last)
			return
		}
		last = b.keys[at]
		fmt.Fprintf(w, `<Contents><Key>%s</Key><LastModified>1970-01-01T00:00:01Z</LastModified><ETag>"same"</ETag><Size>%d</Size></Contents>`, last, len(last)+len("{\"key\": \"\"}\n"))
	}
}
