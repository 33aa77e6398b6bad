package integration

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// TestPrintedDatasetNamesAreAccepted checks for every kind of dataset that what `inspect` prints as
// the dataset and as its root is a name for the same records, with no other settings than the
// credentials.
func TestPrintedDatasetNamesAreAccepted(t *testing.T) {
	serve.Tier(t, serve.CI)
	d := withCodec(t, "jsonl", "")
	_, bucket, web := places(t, d)
	first, err := filepath.Glob(filepath.Join(d.dir, "*/shard-0000.jsonl"))
	require.NoError(t, err)
	require.Len(t, first, 1)
	one, err := filepath.Rel(d.dir, first[0])
	require.NoError(t, err)
	site := strings.TrimSuffix(web.shown, "/list.txt")
	inBucket := "s3+" + os.Getenv("AWS_ENDPOINT_URL") + strings.TrimPrefix(bucket.shown, "s3:/")
	for kind, name := range map[string]string{
		"a directory": d.dir, "a file": first[0], "a pattern": d.dir + "/**/*.jsonl",
		"a folder of a bucket": bucket.shown, "an object": bucket.shown + "/" + one, "a pattern in a bucket": bucket.shown + "/**/*.jsonl",
		"a folder of a service": inBucket + "/", "an object of a service": inBucket + "/" + one, "a pattern at a service": inBucket + "/*/*.jsonl",
		"a list": web.shown, "a file of a web server": site + "/" + one, "files by number": site + "/" + strings.Replace(one, "0000", "{0000..0000}", 1),
		"a mixture": "",
	} {
		args := []string{name}
		if kind == "a mixture" {
			args = []string{"--mix", "a=1:" + d.dir, "--mix", "b=2,region=us-east-1:" + inBucket}
		}
		want := toolOK(t, append([]string{"cat", "--cache-size", "off"}, args...)...)
		var printed struct{ Dataset, Root string }
		require.NoError(t, json.Unmarshal(toolOK(t, append([]string{"inspect", "--json"}, args...)...), &printed), kind)
		require.NotEmpty(t, printed.Root, kind)
		again := []string{printed.Dataset}
		if kind == "a mixture" {
			again = strings.Fields(printed.Dataset)
		}
		t.Run(kind, func(t *testing.T) {
			requireSameBytes(t, want, toolOK(t, append([]string{"cat", "--cache-size", "off"}, again...)...), "%s", printed.Dataset)
			if strings.HasPrefix(kind, "a folder") {
				t.Setenv("AWS_ENDPOINT_URL", "")
				require.Equal(t, inBucket, printed.Root)
				requireSameBytes(t, want, toolOK(t, "cat", "--cache-size", "off", printed.Root), "%s", printed.Root)
			}
		})
	}
}

// The public bucket is at another service, which refuses signatures as services do if they don't
// know the key. The mixture equals that of the directories: it has the same fingerprint, and their
// checkpoints are interchangeable.
func TestPublicBucketMixesWithPrivateOne(t *testing.T) {
	d := withCodec(t, "jsonl", "")
	_, bucket, _ := places(t, d)
	other := makeDataset(t, formatNamed("jsonl"), codecs[0], 3, 8)
	public := httptest.NewServer(publicBucket(other.dir))
	t.Cleanup(public.Close)
	flags := func(a, b string) []string {
		return []string{"--mix", "a=1:" + a, "--mix", "b=2" + b, "--mix-length", "200", "--index-dir", t.TempDir(), "--cache-size", "off"}
	}
	here := flags(d.dir, ":"+other.dir)
	away := flags(bucket.shown, ",anonymous:s3+"+public.URL+"/open/")
	requireSameBytes(t, toolOK(t, append([]string{"cat"}, here...)...), toolOK(t, append([]string{"cat"}, away...)...), "the mixture")
	prints := func(args []string) (p struct{ Fingerprint string }) {
		require.NoError(t, json.Unmarshal(toolOK(t, append([]string{"inspect", "--json"}, args...)...), &p))
		require.NotEmpty(t, p.Fingerprint)
		return p
	}
	require.Equal(t, prints(here), prints(away))
	r := tool(t, append([]string{"cat"}, flags(bucket.shown, ":s3+"+public.URL+"/open/")...)...)
	require.NotZero(t, r.code, "signed")
	require.Contains(t, r.stderr, "source b")
}

// publicBucket serves the files of a directory as the objects of a bucket `open`, to unsigned
// requests.
func publicBucket(dir string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprint(w, "<Error><Code>InvalidAccessKeyId</Code></Error>")
			return
		}
		key, _ := strings.CutPrefix(r.URL.Path, "/open/")
		if key != "" {
			w.Header().Set("ETag", fmt.Sprintf(`"%x"`, key))
			http.ServeFile(w, r, filepath.Join(dir, key))
			return
		}
		type object struct {
			Key, LastModified, ETag string
			Size                    int64
		}
		var list struct {
			XMLName      xml.Name `xml:"ListBucketResult"`
			EncodingType string
			Contents     []object
		}
		list.EncodingType = "url"
		_ = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			name, err := filepath.Rel(dir, path)
			list.Contents = append(list.Contents, object{url.PathEscape(name), info.ModTime().UTC().Format(time.RFC3339), fmt.Sprintf(`"%x"`, name), info.Size()})
			return err
		})
		w.Header().Set("Content-Type", "application/xml")
		_ = xml.NewEncoder(w).Encode(list)
	})
}
