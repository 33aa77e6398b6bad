package web

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// The list's query and a token without a host are for the list's server; other tokens are for the
// servers that they name.
func TestListedServersReceiveOnlyTheirOwnSecrets(t *testing.T) {
	t.Setenv("NETRC", os.DevNull)
	second, askedSecond := serve(t, file("ETag", `"second"`))
	third, askedThird := serve(t, file("ETag", `"third"`))
	list := second + "/d/x.tar?own=2\n" + third + "/d/x.tar\nx.tar\n/e/x.tar\n"
	first, askedFirst := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/d/list.txt" {
			_, _ = io.WriteString(w, list)
			return
		}
		file("ETag", `"first"`)(w, r)
	})
	host := func(url string) string { return strings.TrimPrefix(url, "http://") }
	s, err := signedIn(t, first+"/d/list.txt?sig=hunter2", Options{AuthFile: secretFile(t, "for-first\n"+host(second)+" for-second\n")})
	require.NoError(t, err)
	path := func(url, file string) string { return "http:/" + host(url) + "/" + file }
	want := map[string]remote.Validator{
		path(second, "d/x.tar"): `"second"`, path(third, "d/x.tar"): `"third"`, "x.tar": `"first"`, path(first, "e/x.tar"): `"first"`,
	}
	found := map[string]remote.Validator{}
	require.NoError(t, remote.Walk(t.Context(), s, func(l remote.Listed) error { found[l.Path] = l.Validator; return nil }))
	require.Equal(t, want, found)
	for path, version := range want {
		a, err := s.Open(t.Context(), path, version, 0, 5)
		require.NoError(t, err)
		require.Equal(t, string(content[:5]), body(t, a))
	}
	require.Equal(t, third+"/d/x.tar", s.urlFor(path(third, "d/x.tar")))
	for _, x := range []struct {
		of         *requests
		token, url string
	}{
		{askedFirst, "Bearer for-first", "?sig=hunter2"},
		{askedSecond, "Bearer for-second", "/d/x.tar?own=2"},
		{askedThird, "", "/d/x.tar"},
	} {
		for _, r := range x.of.all {
			require.Equal(t, x.token, r.Header.Get("Authorization"))
			require.True(t, strings.HasSuffix(r.URL.RequestURI(), x.url), r.URL.RequestURI())
		}
	}
	_, err = s.Head(t.Context(), path(third, "d/y.tar"))
	require.ErrorContains(t, err, "only a list names files outside", "nothing that is read sends requests elsewhere")
	require.Len(t, askedThird.methods(), 2)
}
