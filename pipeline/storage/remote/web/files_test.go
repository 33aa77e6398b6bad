package web

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

func TestFilesOfDownloadedListAreRequested(t *testing.T) {
	const text = "x.tar\nsub/y.tar?sig=2\nz-{0..99}.tar"
	var most, now atomic.Int64
	url, asked := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/d/list.txt" {
			_, _ = io.WriteString(w, text)
			return
		}
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		file("ETag", `"`+r.URL.RawQuery+`"`)(w, r)
	})
	s := open(t, url+"/d/list.txt?sig=1")
	require.Equal(t, "sig=1", asked.last().URL.RawQuery)
	require.Len(t, s.Names(), 102)
	found := map[string]remote.Validator{}
	require.NoError(t, remote.Walk(t.Context(), s, func(l remote.Listed) error { found[l.Path] = l.Validator; return nil }))
	require.Len(t, found, 102)
	require.EqualValues(t, `"sig=1"`, found["x.tar"])
	require.EqualValues(t, `"sig=2"`, found["sub/y.tar"])
	require.EqualValues(t, `"sig=1"`, found["z-99.tar"])
	require.LessOrEqual(t, most.Load(), int64(32))

	halt := errors.New("enough")
	visits := 0
	require.ErrorIs(t, remote.Walk(t.Context(), s, func(remote.Listed) error { visits++; return halt }), halt)
	require.Equal(t, 1, visits, "List stops at the first error")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, remote.Walk(ended, s, func(remote.Listed) error { return nil }), context.Canceled)
}

func TestInvalidListsAreRefused(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter){
		"404 Not Found": func(w http.ResponseWriter) { w.WriteHeader(404) },
		"named twice":   func(w http.ResponseWriter) { _, _ = io.WriteString(w, "x.tar\nx.tar") },
		"user name":     func(w http.ResponseWriter) { _, _ = io.WriteString(w, "https://u:hunter2@other/x.tar?hunter2") },
		"a web page (text/html)": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "x.tar")
		},
		"how long it is": func(w http.ResponseWriter) { // as HTTP/1.0 answers, which end early
			conn, _, _ := http.NewResponseController(w).Hijack()
			_, _ = io.WriteString(conn, "HTTP/1.0 200 OK\r\n\r\nx.tar\ny.tar\n")
			_ = conn.Close()
		},
		"Content-Encoding": func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "br")
			_, _ = io.WriteString(w, "x.tar")
		},
	} {
		url, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) { answer(w) })
		_, err := Open(t.Context(), parse(t, url+"/list.txt?t=hunter2"), Options{Transport: transport(t, Settings{})})
		require.ErrorContains(t, err, name)
		require.ErrorContains(t, err, "list of files "+url+"/list.txt: ")
		require.NotContains(t, err.Error(), "hunter2")
	}
	// A list in wids format contains the sizes of its shards.
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".json") {
			_, _ = io.WriteString(w, `{"shardlist": [{"url": "a.tar", "filesize": 1600}, {"url": "b.tar", "filesize": 1601}]}`)
			return
		}
		file("ETag", `"v1"`)(w, r)
	})
	s := open(t, url+"/shards.json")
	require.Equal(t, []string{"a.tar", "b.tar"}, s.Names())
	require.ErrorContains(t, remote.Walk(t.Context(), s, func(remote.Listed) error { return nil }), "b.tar: it has 1600 bytes, and the list says 1601")
}

func TestListWithMissingFileIsAnError(t *testing.T) {
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "2.tar") {
			w.WriteHeader(404)
			return
		}
		file("ETag", `"v1"`)(w, r)
	})
	err := remote.Walk(t.Context(), open(t, url+"/{0..3}.tar?hunter2"), func(remote.Listed) error { return nil })
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "2.tar: the answer is 404 Not Found: it was named")
	require.NotContains(t, err.Error(), "hunter2")
	require.ErrorIs(t, remote.Walk(t.Context(), &Source{}, nil), remote.ErrNoListing)
}
