package web

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Secrets are user names, queries, and the targets of redirects.
func TestErrorsNeverContainSecrets(t *testing.T) {
	dead := httptest.NewServer(nil)
	dead.Close()
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch kind := r.URL.Path[1:]; kind {
		case "dead":
			http.Redirect(w, r, dead.URL+"/x?X-Amz-Signature=hunter2", http.StatusFound)
		case "user":
			http.Redirect(w, r, strings.Replace(dead.URL, "://", "://hunter2:hunter2@", 1), http.StatusFound)
		case "none":
			w.Header().Set("Location", "http://[hunter2")
			w.WriteHeader(302)
		case "scheme":
			w.Header().Set("Location", "hunter2:hunter2")
			w.WriteHeader(302)
		case "loop":
			http.Redirect(w, r, "/loop?hunter2", http.StatusFound)
		case "cut":
			conn, _, _ := http.NewResponseController(w).Hijack()
			_, _ = io.WriteString(conn, "HTTP/1.1 302 Found\r\nX-Amz-Signature=hunter2\r\n\r\n")
			_ = conn.Close()
		case "reset":
			conn, _, _ := http.NewResponseController(w).Hijack()
			_ = conn.Close()
		}
	})
	for _, kind := range []string{"dead", "user", "none", "scheme", "loop", "cut", "reset"} {
		s := open(t, url+"/"+kind+"?sig=hunter2")
		_, err := s.Open(t.Context(), kind, "", 0, 9)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "hunter2", kind)
		_, err = s.Head(t.Context(), kind)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "hunter2", kind)
		require.NotContains(t, fmt.Sprint(s.Name(), s.Names()), "hunter2")
	}
}

func TestRedirectsAreFollowedTenTimes(t *testing.T) {
	url, asked := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n := len(r.URL.Path)
		if strings.Count(r.URL.Path, "r") > 0 {
			w.Header().Set("Location", r.URL.Path[:n-1])
			w.WriteHeader([]int{301, 302, 303, 307, 308}[n%5])
			return
		}
		file("ETag", `"v1"`)(w, r)
	})
	s := open(t, url+"/x"+strings.Repeat("r", 10))
	a, err := s.Open(t.Context(), "xrrrrrrrrrr", `"v1"`, 3, 4)
	require.NoError(t, err)
	require.Equal(t, string(content[3:7]), body(t, a))
	require.Equal(t, "/x", asked.last().URL.Path)
	require.Equal(t, "bytes=3-6", asked.last().Header.Get("Range"))
	require.Len(t, asked.methods(), 11)

	_, err = open(t, url+"/x"+strings.Repeat("r", 11)).Open(t.Context(), "xrrrrrrrrrrr", "", 3, 4)
	require.ErrorContains(t, err, "more than 10 times")
	require.False(t, slices.Contains(asked.methods(), "POST"))
}

// However the redirect spells the host and the port; other servers are not mistaken for it.
func TestRedirectToSameServerIsRecognized(t *testing.T) {
	t.Setenv("NETRC", secretFile(t, "machine host login a password b"))
	s, err := Open(t.Context(), parse(t, "https://host/x.tar"), Options{AuthFile: secretFile(t, "X-Token: c")})
	require.NoError(t, err)
	named, err := s.address("x.tar")
	require.NoError(t, err)
	for location, same := range map[string]bool{
		"https://HOST:443/y": true, "//host/y": true, "https://user@Host/y": true, "https://host:/y": false,
		"https://host:8443/y": false, "https://host.:443/y": false, "https://host@other/y": false, "https://host.other/y": false,
		"https://host:443@other/y": false, "https://other/?https://host/": false, "https://h\u043est/y": false,
	} {
		at, err := Follow(named, location)
		require.NoError(t, err, location)
		r := &http.Request{URL: at, Header: http.Header{}}
		s.auth.authorize(r, s.web.User, named)
		want := http.Header{}
		if same {
			want = http.Header{"Authorization": {"Basic YTpi"}, "X-Token": {"c"}}
		}
		require.Equal(t, want, r.Header, location)
	}
	_, err = Follow(named, "http://host/y")
	require.ErrorContains(t, err, "from https:// to http://")
}
