package s3

import (
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// alone clears the environment of the process that runs the tests, and sets keys.
func alone(t *testing.T) {
	for _, name := range []string{
		"AWS_ACCESS_KEY", "AWS_SECRET_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CA_BUNDLE", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL",
		"AWS_ENDPOINT_URL_S3", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_EC2_METADATA_SERVICE_ENDPOINT",
	} {
		t.Setenv(name, "")
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(home, "config"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(home, "credentials"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
}

// service answers for all of Amazon's hosts, and records the requests.
type service struct {
	answer http.HandlerFunc
	server *httptest.Server

	mu    sync.Mutex
	asked []*http.Request
}

func serve(t *testing.T, answer http.HandlerFunc) *service {
	alone(t)
	s := &service{answer: answer}
	s.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, r)
		s.mu.Unlock()
		if r.Method == http.MethodHead {
			w.Header().Set("Content-Length", "9")
		}
		s.answer(w, r)
	}))
	t.Cleanup(s.server.Close)
	return s
}

// requests returns the requests received so far, as METHOD HOST/PATH.
func (s *service) requests() (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.asked {
		list = append(list, r.Method+" "+r.Host+r.URL.EscapedPath())
	}
	return list
}

func (s *service) last() *http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[len(s.asked)-1]
}

// amazon sends requests for any host to the service.
type amazon struct {
	*web.Transport
	to string
}

func (a amazon) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = "http", a.to
	return a.Transport.RoundTrip(r)
}

func transport(t *testing.T) *web.Transport {
	tr, err := web.NewTransport(web.Settings{})
	require.NoError(t, err)
	t.Cleanup(tr.Close)
	return tr
}

func bucket(t *testing.T, name string) target.Bucket {
	got, err := target.Parse(name)
	require.NoError(t, err)
	return *got.Bucket
}

// open opens a folder of a bucket at Amazon, which the service stands for.
func (s *service) open(t *testing.T, name string, o Options) *Source {
	o.Transport = amazon{transport(t), s.server.Listener.Addr().String()}
	src, object, err := Open(t.Context(), bucket(t, name), o)
	require.NoError(t, err)
	require.Empty(t, object)
	t.Cleanup(func() { require.NoError(t, src.Close()) })
	return src
}

func body(t *testing.T, a remote.Answer) string {
	defer func() { require.NoError(t, a.Body.Close()) }()
	b, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	return string(b)
}

// shelfPage is how many keys a shelf lists per page: services may return fewer than requested.
const shelfPage = 100

// shelf is a sorted list of keys, listed as S3 does.
type shelf []string

func (k shelf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	after := max(q.Get("start-after"), q.Get("continuation-token"))
	limit := shelfPage
	var b strings.Builder
	n, last, truncated := 0, "", false
	prefix := q.Get("prefix")
	for _, key := range k[sort.SearchStrings(k, max(after, prefix)):] {
		if !strings.HasPrefix(key, prefix) || key <= after || last != "" && strings.HasSuffix(last, "/") && q.Get("delimiter") == "/" && strings.HasPrefix(key, last) ||
			q.Get("delimiter") == "/" && strings.HasSuffix(after, "/") && strings.HasPrefix(key, after) {
			continue
		}
		if n == limit {
			truncated = true
			break
		}
		n++
		last = key
		if i := strings.IndexByte(key[len(prefix):], '/'); i >= 0 && q.Get("delimiter") == "/" {
			last = key[:len(prefix)+i+1]
			fmt.Fprintf(&b, "<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>", url.QueryEscape(last))
			continue
		}
		fmt.Fprintf(&b, `<Contents><Key>%s</Key><LastModified>2026-11-21T08:00:00.000Z</LastModified><ETag>&quot;%x&quot;</ETag><Size>%d</Size><StorageClass>STANDARD</StorageClass></Contents>`,
			url.QueryEscape(key), len(key), len(key))
	}
	token := ""
	if truncated {
		token = "<NextContinuationToken>" + text(last) + "</NextContinuationToken>"
	}
	w.Header().Set("Content-Type", "application/xml")
	fmt.Fprintf(w, `<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><EncodingType>url</EncodingType><IsTruncated>%v</IsTruncated>%s%s</ListBucketResult>`,
		truncated, token, &b)
}

func text(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}

// listed returns the paths that List visits, sorted, and checks that none is repeated.
func listed(t *testing.T, s *Source) []string {
	var paths []string
	require.NoError(t, remote.Walk(t.Context(), s, func(l remote.Listed) error {
		paths = append(paths, l.Path)
		return nil
	}))
	slices.Sort(paths)
	require.Equal(t, slices.Compact(slices.Clone(paths)), paths)
	return paths
}
