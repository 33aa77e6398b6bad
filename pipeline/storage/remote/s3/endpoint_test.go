package s3

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// node is a service, or one of its nodes, and records the requests.
type node struct {
	*httptest.Server
	mu    sync.Mutex
	asked []*http.Request
}

func newNode(t *testing.T, answer http.HandlerFunc) *node {
	n := &node{}
	n.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.mu.Lock()
		n.asked = append(n.asked, r)
		n.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(n.Close)
	return n
}

func (n *node) signed() (list []bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.asked {
		list = append(list, r.Header.Get("Authorization") != "" || r.Header.Get("X-Amz-Security-Token") != "")
	}
	return list
}

// stores serves one object of 9 bytes, and a listing of it.
func stores(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Has("list-type") {
		shelf{"x.tar"}.ServeHTTP(w, r)
		return
	}
	w.Header().Set("ETag", `"v1"`)
	http.ServeContent(w, r, "", time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC), strings.NewReader("012345678"))
}

// Redirects to another node of the service are followed for objects and listings alike. The node
// gets a signature only if it is the service's own host, and always the range and the version.
func TestRedirectsToOtherNodesAreFollowed(t *testing.T) {
	alone(t)
	t.Setenv("AWS_SESSION_TOKEN", "hunter3")
	for _, status := range []int{301, 302, 303, 307, 308} {
		other := newNode(t, stores)
		first := newNode(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", other.URL+r.URL.RequestURI())
			w.WriteHeader(status)
		})
		src := openAt(t, "s3://bucket/", Options{Endpoint: first.URL})
		l, err := src.Head(t.Context(), "x.tar")
		require.NoError(t, err, status)
		require.EqualValues(t, 9, l.SizeBytes)
		a, err := src.Open(t.Context(), "x.tar", l.Validator, 3, 4)
		require.NoError(t, err)
		require.Equal(t, "3456", body(t, a))
		require.Equal(t, 206, a.Status)
		require.Equal(t, []string{"x.tar"}, listed(t, src))
		require.Equal(t, []bool{false, false, false}, other.signed(), "neither signature nor token")
		require.Equal(t, []bool{true, true, true}, first.signed())
		require.Equal(t, `"v1"`, other.asked[1].Header.Get("If-Match"))
	}
}

func TestRedirectsWithinServiceAreSignedAgain(t *testing.T) {
	alone(t)
	n := newNode(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/node-1/") {
			w.Header().Set("Location", "/node-1"+r.URL.EscapedPath()+"?a=b")
			w.WriteHeader(307)
			return
		}
		stores(w, r)
	})
	src := openAt(t, "s3://bucket/", Options{Endpoint: n.URL})
	a, err := src.Open(t.Context(), "a+b.tar", "", 0, 4)
	require.NoError(t, err)
	require.Equal(t, "0123", body(t, a))
	require.Equal(t, []bool{true, true}, n.signed())
	require.Equal(t, "/node-1/bucket/a%2Bb.tar", n.asked[1].URL.EscapedPath())
	require.NotEqual(t, n.asked[0].Header.Get("Authorization"), n.asked[1].Header.Get("Authorization"))
}

func TestRedirectsAreBounded(t *testing.T) {
	alone(t)
	hops := 0
	for name, c := range map[string]struct {
		to    func(r *http.Request) string
		words string
	}{
		"a circle":       {func(r *http.Request) string { return r.URL.RequestURI() }, "in a circle"},
		"a long way":     {func(*http.Request) string { hops++; return "/bucket/x?n=" + strings.Repeat("n", hops) }, "more than 10 times"},
		"another scheme": {func(*http.Request) string { return "ftp://host/x" }, "neither https:// nor http://"},
		"what is no URL": {func(*http.Request) string { return "http://a b/" }, "no URL"},
		"no host at all": {func(*http.Request) string { return "http:///x" }, "neither https:// nor http://"},
	} {
		n := newNode(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", c.to(r))
			w.WriteHeader(302)
		})
		_, err := openAt(t, "s3://bucket/", Options{Endpoint: n.URL}).Head(t.Context(), "x.tar")
		require.ErrorContains(t, err, c.words, name)
		require.ErrorAs(t, err, new(*remote.Refusal), name)
		require.LessOrEqual(t, len(n.signed()), maxRedirects+1, name)
	}
}

// Amazon's hosts are Amazon's wherever a bucket is; others below amazonaws.com may be anyone's.
func TestOwnerOfRedirectTarget(t *testing.T) {
	for _, c := range []struct {
		endpoint, to string
		owned        bool
	}{
		{"", "https://bucket.s3.eu-west-1.amazonaws.com/x", true},
		{"", "https://bucket.s3-eu-west-1.amazonaws.com/x", true},
		{"", "http://bucket.s3.eu-west-1.amazonaws.com/x", false},
		{"", "https://ec2-1-2-3-4.eu-west-1.compute.amazonaws.com/x", false},
		{"https://store.local", "https://store.local/x", true},
		{"https://store.local", "https://Node-3.store.local/x", true},
		{"https://store.local:443", "https://store.local/x", true},
		{"https://store.local", "https://notstore.local/x", false},
		{"https://store.local", "https://store.local:9000/x", false},
		{"https://store.local", "http://store.local/x", false},
		{"http://127.0.0.1:9000", "http://127.0.0.2:9000/x", false},
	} {
		p := place{}
		if c.endpoint != "" {
			u, err := url.Parse(c.endpoint)
			require.NoError(t, err)
			p.endpoint = u
		}
		u, err := url.Parse(c.to)
		require.NoError(t, err)
		require.Equal(t, c.owned, p.owns(u), "%s → %s", c.endpoint, c.to)
	}
}

// If a bucket is in another region, requests go there, as the service advises, and the redirect is
// not followed.
func TestAmazonRedirectToOtherRegionIsNotFollowed(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Host, "eu-west-1") {
			w.Header().Set(regionHeader, "eu-west-1")
			w.Header().Set("Location", "https://bucket.s3.eu-west-1.amazonaws.com"+r.URL.RequestURI())
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(307)
			_, _ = io.WriteString(w, "<Error><Code>TemporaryRedirect</Code></Error>")
			return
		}
		stores(w, r)
	})
	t.Setenv("AWS_REGION", "us-east-1")
	src := s.open(t, "s3://bucket/", Options{})
	_, err := src.Head(t.Context(), "x.tar")
	require.True(t, elsewhere(err), err)
	src.Refresh(t.Context(), "x.tar")
	a, err := src.Open(t.Context(), "x.tar", "", 0, 4)
	require.NoError(t, err)
	require.Equal(t, "0123", body(t, a))
	require.Equal(t, []string{"HEAD bucket.s3.us-east-1.amazonaws.com/x.tar", "GET bucket.s3.eu-west-1.amazonaws.com/x.tar"}, s.requests())
}

// If a host that the service redirects to rejects a request, the error does not blame the
// credentials, which were not sent to it.
func TestRefusalByOtherHostNamesIt(t *testing.T) {
	alone(t)
	for query, want := range map[string]struct{ code, advice string }{
		"":                   {"AccessDenied", "name it with --endpoint"},
		"?X-Amz-Signature=x": {remote.CodeExpired, "with a signature of its own"},
	} {
		other := newNode(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(403)
			_, _ = io.WriteString(w, "<Error><Code>AccessDenied</Code></Error>")
		})
		first := newNode(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", other.URL+"/x"+query)
			w.WriteHeader(307)
		})
		a, err := openAt(t, "s3://bucket/", Options{Endpoint: first.URL}).Open(t.Context(), "x.tar", "", 0, 4)
		require.NoError(t, err)
		body(t, a)
		require.Equal(t, want.code, a.Code)
		require.Contains(t, a.Advice, want.advice)
		require.Contains(t, a.Advice, strings.TrimPrefix(other.URL, "http://"))
	}
}
