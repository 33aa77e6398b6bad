package web_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/web"
)

// Files that differ only in their query are different files, in the index and in a cache, if their
// validators are made from time and size. If the validator is a hash, the query does not matter: it
// may be a signature that changes.
func TestFilesDifferingOnlyInQueryAreDistinct(t *testing.T) {
	etag := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if etag != "" {
			w.Header().Set("ETag", etag)
		}
		http.ServeContent(w, r, "", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), bytes.NewReader(bytes.Repeat([]byte(r.URL.Query().Get("id")+"."), 100)))
	}))
	defer server.Close()
	listed := func(query string) (storage.Object, string) {
		parsed, err := target.Parse(server.URL + "/get.tar" + query)
		require.NoError(t, err)
		source, err := web.Open(t.Context(), *parsed.Web, web.Options{Transport: http.DefaultTransport})
		require.NoError(t, err)
		s, err := remote.New(source, remote.DefaultConfig())
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		o, err := s.Stat(t.Context(), "get.tar")
		require.NoError(t, err)
		p := make([]byte, 4)
		require.NoError(t, storage.ReadAt(t.Context(), s, o, p, 0))
		url, validator, ok := s.Identity(o)
		require.True(t, ok)
		require.NotContains(t, url+string(validator), "secret")
		return o, url + "\n" + string(validator)
	}
	for _, x := range []struct {
		etag string
		same bool
	}{{"", false}, {`"65a1b2c3-190"`, false}, {`"d41d8cd98f00b204e9800998ecf8427e"`, true}} {
		etag = x.etag
		a, idA := listed("?id=secretA")
		b, idB := listed("?id=secretB")
		again, idAgain := listed("?id=secretA")
		require.Equal(t, a, again)
		require.Equal(t, idA, idAgain)
		require.Equal(t, x.same, a == b, "%s", x.etag)
		require.Equal(t, x.same, idA == idB, "%s", x.etag)
	}
	_, bare := listed("")
	require.NotContains(t, bare, "variant")
}
