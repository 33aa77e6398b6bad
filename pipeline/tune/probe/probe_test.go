package probe

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// serve starts a web server with files of these sizes, named 000.tar and so on.
func serve(t *testing.T, handle func(w http.ResponseWriter, r *http.Request, content []byte), sizes ...int) (name string) {
	modified := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var i int
		if _, err := fmt.Sscanf(r.URL.Path, "/%03d.tar", &i); err != nil || i >= len(sizes) {
			http.NotFound(w, r)
			return
		}
		content := bytes.Repeat([]byte{byte(i)}, sizes[i])
		if handle != nil {
			handle(w, r, content)
			return
		}
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "x", modified, bytes.NewReader(content))
	}))
	t.Cleanup(server.Close)
	return fmt.Sprintf("%s/{000..%03d}.tar", server.URL, len(sizes)-1)
}

func opened(t *testing.T, name string) *Service {
	s, err := Open(t.Context(), name, Options{Unversioned: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestServiceIsProbed(t *testing.T) {
	s := opened(t, serve(t, nil, 1000, 20<<20, 0, 3000))
	require.Equal(t, storage.KindWeb, s.Kind())
	f := s.Look(t.Context(), nil)
	require.NoError(t, f.ObjectErr)
	require.Equal(t, "001.tar", f.Object.Path, "the largest")
	require.Len(t, f.Heads, heads)
	require.Len(t, f.Gets, gets)
	for _, g := range f.Gets {
		require.EqualValues(t, getBytes, g.Bytes)
		require.LessOrEqual(t, g.FirstByte, g.Whole)
	}
	require.True(t, f.Ranges.Right)
	require.Equal(t, Condition{Header: "If-Match", Status: http.StatusPreconditionFailed}, f.Version)
	require.True(t, f.Skewed)
	require.Zero(t, f.Skew)
	require.Equal(t, "127.0.0.1", f.Host)
	require.False(t, f.Bucket)
}

func TestServerDefectsAreDetected(t *testing.T) {
	whole := func(w http.ResponseWriter, r *http.Request, content []byte) {
		w.Header().Set("ETag", `"v1"`)
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = w.Write(content) // the client may have left
	}
	f := opened(t, serve(t, whole, 20<<20)).Look(t.Context(), nil)
	require.Equal(t, Answered{Status: http.StatusOK}, f.Ranges)
	require.ErrorContains(t, f.GetErr, "200 OK")
	require.Equal(t, http.StatusOK, f.Version.Status)

	deaf := func(w http.ResponseWriter, r *http.Request, content []byte) {
		r.Header.Del("If-Match")
		r.Header.Del("If-Unmodified-Since")
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "x", time.Time{}, bytes.NewReader(content))
	}
	f = opened(t, serve(t, deaf, 1000)).Look(t.Context(), nil)
	require.True(t, f.Ranges.Right)
	require.Equal(t, Condition{Header: "If-Match", Status: http.StatusPartialContent}, f.Version)

	dated := func(w http.ResponseWriter, r *http.Request, content []byte) {
		http.ServeContent(w, r, "x", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), bytes.NewReader(content))
	}
	f = opened(t, serve(t, dated, 1000)).Look(t.Context(), nil)
	require.Equal(t, Condition{Header: "If-Unmodified-Since", Status: http.StatusPreconditionFailed}, f.Version)

	unversioned := func(w http.ResponseWriter, r *http.Request, content []byte) {
		http.ServeContent(w, r, "x", time.Time{}, bytes.NewReader(content))
	}
	f = opened(t, serve(t, unversioned, 1000)).Look(t.Context(), nil)
	require.Equal(t, Condition{}, f.Version)

	late := func(w http.ResponseWriter, r *http.Request, content []byte) {
		w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		http.ServeContent(w, r, "x", time.Time{}, bytes.NewReader(content))
	}
	f = opened(t, serve(t, late, 1000)).Look(t.Context(), nil)
	require.InDelta(t, -3600, f.Skew.Seconds(), 60)
}

func TestEmptyDatasetIsReported(t *testing.T) {
	_, err := opened(t, serve(t, nil, 0, 0)).Objects(t.Context())
	require.ErrorIs(t, err, ErrNothing)
	f := opened(t, strings.Replace(serve(t, nil, 10), "{000..000}", "555", 1)).Look(t.Context(), nil)
	require.Error(t, f.ObjectErr)
	require.Empty(t, f.Heads)
}

// A date in whole seconds may be a second old when it is sent.
func TestPlausibleClocksAreAccepted(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 500e6, time.UTC)
	second := at.Truncate(time.Second)
	require.Zero(t, skewOf(second, at, at.Add(time.Millisecond)))
	require.Zero(t, skewOf(second, at.Add(400*time.Millisecond), at.Add(time.Second)))
	require.Equal(t, 9500*time.Millisecond, skewOf(second.Add(10*time.Second), at, at))
	require.Equal(t, -9500*time.Millisecond, skewOf(second.Add(-10*time.Second), at, at))
}
