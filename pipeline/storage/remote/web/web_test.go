package web

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// content is what the servers in these tests serve.
var content = []byte(strings.Repeat("0123456789abcdef", 100))

var written = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// file serves content correctly, with the given headers.
func file(header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}
}

const lastModified = "Sat, 21 Nov 2026 08:00:00 GMT"

// serve starts a server, and returns its URL and the requests that it receives.
func serve(t *testing.T, handler http.HandlerFunc) (url string, asked *requests) {
	asked = &requests{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.add(r)
		handler(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

// requests are the requests that a server has received.
type requests struct {
	mu  sync.Mutex
	all []*http.Request
}

func (q *requests) add(r *http.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all = append(q.all, r)
}

// last is the newest request.
func (q *requests) last() *http.Request {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.all[len(q.all)-1]
}

func (q *requests) methods() (list []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.all {
		list = append(list, r.Method)
	}
	return list
}

func transport(t *testing.T, s Settings) *Transport {
	tr, err := NewTransport(s)
	require.NoError(t, err)
	t.Cleanup(tr.Close)
	return tr
}

func parse(t *testing.T, url string) target.Web {
	got, err := target.Parse(url)
	require.NoError(t, err)
	return *got.Web
}

func open(t *testing.T, url string) *Source {
	s, err := Open(t.Context(), parse(t, url), Options{Transport: transport(t, Settings{})})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func body(t *testing.T, a remote.Answer) string {
	defer func() { require.NoError(t, a.Body.Close()) }()
	b, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	return string(b)
}

func TestRangeRequestPinsItsVersion(t *testing.T) {
	url, asked := serve(t, file("ETag", `"v1"`, "Last-Modified", lastModified))
	s := open(t, url+"/a/x.tar")
	l, err := s.Head(t.Context(), "x.tar")
	require.NoError(t, err)
	require.Equal(t, remote.Listed{Path: "x.tar", SizeBytes: 1600, Validator: `"v1"`, Modified: written}, l)

	a, err := s.Open(t.Context(), "x.tar", l.Validator, 5, 20)
	require.NoError(t, err)
	require.Equal(t, string(content[5:25]), body(t, a))
	require.Equal(t, [5]int64{206, 5, 25, 1600, 20}, [5]int64{int64(a.Status), a.Begin, a.End, a.Total, a.LengthBytes})
	require.Equal(t, l.Validator, a.Validator)
	header := asked.last().Header
	require.Equal(t, http.Header{
		"Range": {"bytes=5-24"}, "If-Match": {`"v1"`}, "Accept-Encoding": {"identity"}, "User-Agent": {"lsiofs"},
	}, header)
	require.Equal(t, "/a/x.tar", asked.last().URL.Path)

	a, err = s.Open(t.Context(), "x.tar", l.Validator, 1590, -1)
	require.NoError(t, err)
	require.Equal(t, string(content[1590:]), body(t, a))
	a, err = s.Open(t.Context(), "x.tar", l.Validator, 0, -1)
	require.NoError(t, err)
	require.Equal(t, 200, a.Status)
	require.Empty(t, asked.last().Header.Get("Range"), "the whole is asked for without a range")
	require.Equal(t, string(content), body(t, a))

	a, err = s.Open(t.Context(), "x.tar", `"v0"`, 5, 20)
	require.NoError(t, err, "whatever is answered is an answer")
	require.Equal(t, 412, a.Status)
	body(t, a)
	_, err = s.Open(t.Context(), "x.tar", "", 0, 0)
	require.Error(t, err)
}

func TestDatePrecedesWeakETag(t *testing.T) {
	url, asked := serve(t, file("ETag", `W/"v1"`, "Last-Modified", lastModified))
	s := open(t, url+"/x.tar")
	l, err := s.Head(t.Context(), "x.tar")
	require.NoError(t, err)
	require.EqualValues(t, "modified:"+lastModified, l.Validator)
	a, err := s.Open(t.Context(), "x.tar", l.Validator, 5, 20)
	require.NoError(t, err)
	body(t, a)
	require.Equal(t, "Sat, 21 Nov 2026 08:00:01 GMT", asked.last().Header.Get("If-Unmodified-Since"))
	require.Empty(t, asked.last().Header.Get("If-Match"))
	require.Equal(t, l.Validator, a.Validator)
}

func TestUnreliableFilesAreRefused(t *testing.T) {
	for word, header := range map[string][]string{
		"--unversioned":            {},
		"neither ETag":             {"ETag", `W/"v1"`},
		"time of 1980 or before":   {"ETag", `"v1"`, "Last-Modified", "Tue, 01 Jan 1980 00:00:00 GMT"},
		"a time of 1980":           {"Last-Modified", "Thu, 01 Jan 1970 00:00:01 GMT"},
		"of 1980 or before":        {"ETag", `"1-640"`},
		"size alone counts":        {"ETag", `"640-0"`},
		"a web page (text/html)":   {"ETag", `"v1"`, "Content-Type", "text/html; charset=utf-8"},
		"neither ETag nor Last-Mo": {"ETag", "v1"},
	} {
		url, _ := serve(t, file(header...))
		_, err := open(t, url+"/x.tar").Head(t.Context(), "x.tar")
		var refusal *remote.Refusal
		require.ErrorAs(t, err, &refusal, word)
		require.ErrorContains(t, err, word)
	}
	for name, header := range map[string][]string{
		"stored .gz": {"ETag", `"v1"`, "Content-Encoding", "gzip"}, "a hash": {"ETag", `"0123456789abcdef0123456789abcdef"`, "Last-Modified", "Thu, 01 Jan 1970 00:00:01 GMT"},
		"of nginx": {"ETag", `"5b2c0000-640"`}, "of Apache": {"ETag", `"640-5f3c1e2d00000"`},
	} {
		url, _ := serve(t, file(header...))
		l, err := open(t, url+"/x.tar").Head(t.Context(), "x.tar")
		require.NoError(t, err, name)
		require.EqualValues(t, 1600, l.SizeBytes)
	}
	url, asked := serve(t, file())
	s, err := Open(t.Context(), parse(t, url+"/x.tar"), Options{Transport: transport(t, Settings{}), Unversioned: true})
	require.NoError(t, err)
	l, err := s.Head(t.Context(), "x.tar")
	require.NoError(t, err)
	require.Equal(t, remote.Listed{Path: "x.tar", SizeBytes: 1600}, l)
	a, err := s.Open(t.Context(), "x.tar", l.Validator, 0, 3)
	require.NoError(t, err)
	require.Equal(t, "012", body(t, a))
	require.Equal(t, "bytes=0-2", asked.last().Header.Get("Range"))
}

// The page that a redirect leads to is not the requested file, even if the redirect comes later, or
// if a page was requested.
func TestLoginPageIsNotAFile(t *testing.T) {
	signedIn := false
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/login.html":
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<!DOCTYPE html>Sign in")
		case !signedIn:
			http.Redirect(w, r, "/login.html?next=hunter2", http.StatusFound)
		default:
			file("ETag", `"v1"`, "Content-Type", "text/html")(w, r)
		}
	})
	for _, name := range []string{"x.jsonl", "x.txt.gz", "x.tar", "x", "page.html"} {
		signedIn = false
		s := open(t, url+"/"+name)
		_, err := s.Head(t.Context(), name)
		var refusal *remote.Refusal
		require.ErrorAs(t, err, &refusal, name)
		require.ErrorContains(t, err, "a web page (text/html) of 127.0.0.1")
		require.NotContains(t, err.Error(), "hunter2")
		a, err := s.Open(t.Context(), name, `"v1"`, 0, 5)
		require.NoError(t, err)
		body(t, a)
		require.NotEmpty(t, a.Page, name)

		signedIn = true
		_, err = s.Head(t.Context(), name)
		require.Equal(t, name == "page.html", err == nil, name)
	}
}

// 403 is the answer to HEAD for a URL that is signed for GET.
func TestServersRefusingHEADAreAskedForOneByte(t *testing.T) {
	for _, status := range []int{403, 405, 501, 400} {
		url, asked := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodHead {
				w.WriteHeader(status)
				return
			}
			file("ETag", `"v1"`)(w, r)
		})
		l, err := open(t, url+"/x.tar").Head(t.Context(), "x.tar")
		require.NoError(t, err)
		require.Equal(t, remote.Listed{Path: "x.tar", SizeBytes: 1600, Validator: `"v1"`}, l)
		require.Equal(t, []string{"HEAD", "GET"}, asked.methods())
		require.Equal(t, "bytes=0-0", asked.last().Header.Get("Range"))
	}
	// An empty file has no first byte; a server without ranges sends everything; one that streams
	// does not announce the size.
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		size   int64
	}{
		"empty": {func(w http.ResponseWriter) { w.Header().Set("Content-Range", "bytes */0"); w.WriteHeader(416) }, 0},
		"whole": {func(w http.ResponseWriter) { _, _ = w.Write(content[:9]) }, 9},
		"chunked": {func(w http.ResponseWriter) {
			_ = http.NewResponseController(w).Flush()
			_, _ = w.Write(content)
		}, -1},
		"no total": {func(w http.ResponseWriter) { w.Header().Set("Content-Range", "bytes 0-0/*"); w.WriteHeader(206) }, -1},
	} {
		url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"v1"`)
			if r.Method == http.MethodHead {
				w.WriteHeader(405)
				return
			}
			c.answer(w)
		})
		l, err := open(t, url+"/x.tar").Head(t.Context(), "x.tar")
		if c.size < 0 {
			require.ErrorContains(t, err, "how large", name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, c.size, l.SizeBytes, name)
	}
}

func TestHeadStatusesAreErrors(t *testing.T) {
	for status, methods := range map[int]int{404: 1, 410: 1, 401: 1, 429: 1, 500: 1, 503: 1, 403: 2, 405: 2} {
		url, asked := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(status)
		})
		_, err := open(t, url+"/x.tar").Head(t.Context(), "x.tar")
		var answered *remote.StatusError
		require.ErrorAs(t, err, &answered)
		require.Equal(t, status == 401 || status == 403, answered.Advice != "")
		require.Equal(t, remote.StatusError{Status: status, RetryAfter: 3 * time.Second, Advice: answered.Advice}, *answered)
		require.Equal(t, status == 404 || status == 410, errors.Is(err, fs.ErrNotExist))
		require.Len(t, asked.methods(), methods, "%d", status)
	}
}

func TestQueriesAndPathsAreSentUnchanged(t *testing.T) {
	url, asked := serve(t, file("ETag", `"v1"`))
	s := open(t, url+"/a%2Db/x+y%2Bz%20{0..1}.tar?sig=hunter2&p=%2F")
	require.Equal(t, url+"/a-b", s.Name())
	require.Equal(t, []string{"x+y+z 0.tar", "x+y+z 1.tar"}, s.Names())
	_, err := s.Head(t.Context(), "x+y+z 1.tar")
	require.NoError(t, err)
	require.Equal(t, "/a-b/x+y%2Bz%201.tar?sig=hunter2&p=%2F", asked.last().RequestURI)
	_, err = s.Head(t.Context(), ".lsiofs/ü?#%.lsix")
	require.NoError(t, err)
	require.Equal(t, "/a-b/.lsiofs/%C3%BC%3F%23%25.lsix?sig=hunter2&p=%2F", asked.last().RequestURI, "others are below the folder too")
}

func TestOddResponsesAreReturnedUnchanged(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		want   remote.Answer
	}{
		"the whole for a range": {func(w http.ResponseWriter) { _, _ = io.WriteString(w, "abcdefgh") }, remote.Answer{Status: 200, Begin: -1, End: -1, Total: -1, LengthBytes: 8}},
		"another range": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Range", "bytes 0-7/9")
			w.WriteHeader(206)
			_, _ = io.WriteString(w, "abcdefgh")
		}, remote.Answer{Status: 206, Begin: 0, End: 8, Total: 9, LengthBytes: 8}},
		"several ranges": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "multipart/byteranges; boundary=x")
			w.WriteHeader(206)
		}, remote.Answer{Status: 206, Begin: -1, End: -1, Total: -1, Several: true}},
		"compressed": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Range", "bytes 1-8/9")
			w.WriteHeader(206)
		}, remote.Answer{Status: 206, Begin: 1, End: 9, Total: 9, Encoding: "gzip"}},
		"a code": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/xml")
			w.Header().Set("Retry-After", "9")
			w.WriteHeader(503)
			_, _ = io.WriteString(w, "<Error><Code>SlowDown</Code></Error>")
		}, remote.Answer{Status: 503, Begin: -1, End: -1, Total: -1, LengthBytes: 36, Code: "SlowDown", RetryAfter: 9 * time.Second}},
		"a redirect to nowhere": {func(w http.ResponseWriter) { w.WriteHeader(302) }, remote.Answer{Status: 302, Begin: -1, End: -1, Total: -1}},
		"not modified":          {func(w http.ResponseWriter) { w.WriteHeader(304) }, remote.Answer{Status: 304, Begin: -1, End: -1, Total: -1}},
	} {
		url, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) { c.answer(w) })
		a, err := open(t, url+"/x.tar").Open(t.Context(), "x.tar", `"v1"`, 1, 8)
		require.NoError(t, err, name)
		body(t, a)
		a.Body = nil
		if a.LengthBytes < 0 {
			a.LengthBytes = 0
		}
		require.Equal(t, c.want, a, name)
	}
}
