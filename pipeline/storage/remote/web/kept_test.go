package web

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// hub redirects each request for a file to a newly signed URL of another server.
type hub struct {
	url, target string
	asked       atomic.Int64 // GETs received by the hub
	signed      atomic.Int64
	oldest      atomic.Int64 // signatures below it are rejected
	answer      atomic.Pointer[http.HandlerFunc]
}

func newHub(t *testing.T) *hub {
	h := &hub{}
	h.serve(file("ETag", `"v1"`))
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int64
		_, err := fmt.Sscan(r.URL.Query().Get("sig"), &n)
		if err != nil || n < h.oldest.Load() {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		(*h.answer.Load())(w, r)
	}))
	t.Cleanup(target.Close)
	h.target = target.URL
	h.url, _ = serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			h.asked.Add(1)
		}
		http.Redirect(w, r, fmt.Sprintf("%s%s?sig=%d", h.target, r.URL.Path, h.signed.Add(1)), http.StatusFound)
	})
	return h
}

func (h *hub) serve(answer http.HandlerFunc) { h.answer.Store(&answer) }

func TestRedirectTargetIsRequestedOnce(t *testing.T) {
	h := newHub(t)
	s := open(t, h.url+"/x.tar")
	l, err := s.Head(t.Context(), "x.tar")
	require.NoError(t, err)
	read := func(off int64) {
		t.Helper()
		a, err := s.Open(t.Context(), "x.tar", l.Validator, off, 5)
		require.NoError(t, err)
		require.Equal(t, 206, a.Status)
		require.Equal(t, string(content[off:off+5]), body(t, a))
	}
	var all sync.WaitGroup
	for i := range int64(30) { // the first one asks for all of them, because HEAD has shown that there is a redirect
		all.Go(func() { read(i) })
	}
	all.Wait()
	require.EqualValues(t, 1, h.asked.Load())

	h.oldest.Store(h.signed.Load() + 1) // it has expired, without an announced time
	for i := range int64(30) {
		all.Go(func() { read(i) })
	}
	all.Wait()
	require.EqualValues(t, 2, h.asked.Load())

	// Another version is requested from the hub, and so is one whose target now has another
	// version.
	h.serve(file("ETag", `"v2"`))
	a, err := s.Open(t.Context(), "x.tar", l.Validator, 0, 5)
	require.NoError(t, err)
	require.Equal(t, 412, a.Status)
	body(t, a)
	require.EqualValues(t, 3, h.asked.Load())
	a, err = s.Open(t.Context(), "x.tar", `"v2"`, 0, 5)
	require.NoError(t, err)
	require.Equal(t, 206, a.Status)
	body(t, a)
	require.EqualValues(t, 4, h.asked.Load())
}

func TestFailedTargetIsRequestedAgainByNextAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		asked  int64 // GETs of the hub for one read that fails and one that does not
	}{
		"500":          {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, 1},
		"too much":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, 0},
		"a page":       {file("ETag", `"v1"`, "Content-Type", "text/html"), 2},
		"old versions": {file("ETag", `"v0"`), 2},
		"a reset": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, _ := http.NewResponseController(w).Hijack()
			_ = conn.Close()
		}, 1},
		"a body that breaks off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"v1"`)
			w.Header().Set("Content-Length", "9")
			_, _ = io.WriteString(w, "abc")
		}, 1},
	} {
		h := newHub(t)
		s := open(t, h.url+"/x.tar")
		right := func() {
			a, err := s.Open(t.Context(), "x.tar", `"v1"`, 0, 5)
			require.NoError(t, err, name)
			require.Equal(t, string(content[:5]), body(t, a), name)
		}
		right()
		before := h.asked.Load()
		h.serve(c.answer)
		if a, err := s.Open(t.Context(), "x.tar", `"v1"`, 0, 5); err == nil {
			_, _ = io.ReadAll(a.Body)
			_ = a.Body.Close()
		}
		h.serve(file("ETag", `"v1"`))
		right()
		require.Equal(t, c.asked, h.asked.Load()-before, name)
	}
}

func TestTargetIsUsedUntilItExpires(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	for query, want := range map[string]time.Time{
		"Expires=1795780800&Signature=x":                              time.Unix(1795780800, 0),
		"X-Amz-Date=20261126T120000Z&X-Amz-Expires=3600":              now.Add(time.Hour),
		"X-Goog-Date=20261126T120000Z&X-Goog-Expires=60":              now.Add(time.Minute),
		"sv=1&se=2026-11-26T13:00:00Z&sig=x":                          now.Add(time.Hour),
		"X-Amz-Date=x&X-Amz-Expires=3600":                             {},
		"X-Amz-Date=20261126T120000Z&X-Amz-Expires=99999999999999999": {},
		"": {},
		"Expires=Thu, 26 Nov 2026 12:00:00 GMT&X-Amz-Date=20261126T12Z": {},
	} {
		values, err := url.ParseQuery(query)
		require.NoError(t, err)
		end, ok := expiry(values)
		require.Equal(t, !want.IsZero(), ok, query)
		require.True(t, end.Equal(want), "%s: %v", query, end)
	}
	k := newKept()
	k.now = func() time.Time { return now }
	at, err := url.Parse("https://cdn/x?X-Amz-Date=20261126T120000Z&X-Amz-Expires=3600")
	require.NoError(t, err)
	found := func(path string) bool {
		got, leave := k.find(t.Context(), path, `"v1"`)
		leave()
		return got != nil
	}
	k.keep("x", at, `"v1"`)
	k.keep("y", &url.URL{Host: "cdn"}, `"v1"`)
	require.True(t, found("x"))
	now = now.Add(keptAge - time.Second)
	require.True(t, found("y"))
	now = now.Add(time.Second)
	require.False(t, found("y"))
	now = now.Add(time.Hour - keptAge - keptMargin)
	require.False(t, found("x"))
	for i := range 2 * maxKept {
		k.learn(strings.Repeat("x", i))
	}
	require.Len(t, k.of, maxKept)
}

// No request could use the target that another one gets.
func TestShortLivedTargetIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, began := newKept(), time.Now()
		for seconds, waits := range map[time.Duration]bool{5: false, 20: true} {
			at := &url.URL{Host: "cdn", RawQuery: fmt.Sprint("Expires=", time.Now().Add(seconds*time.Second).Unix())}
			k.keep("x", at, `"v1"`)
			_, leave := k.find(t.Context(), "x", `"v2"`)
			_, leaveToo := k.find(t.Context(), "x", `"v2"`)
			leave()
			leaveToo()
			require.Equal(t, waits, time.Since(began) > 0, seconds)
			began = time.Now()
		}
	})
}
