package web

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// The error names a proxy that blocks a request, and its answer. The proxy is asked once, unless
// the server beyond it may come up.
func TestBlockingProxyIsNamedAtOnce(t *testing.T) {
	status, asked := 0, 0
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		w.WriteHeader(status)
	}))
	t.Cleanup(proxy.Close)
	by, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	tr, err := newTransport(Settings{}, http.ProxyURL(by))
	require.NoError(t, err)
	t.Cleanup(tr.Close)
	for _, c := range []struct {
		status int
		scheme string
		words  string
		final  bool
	}{
		{407, "https", "proxy " + by.Host + ": the proxy wants a name and a password", true},
		{407, "http", "407 Proxy Authentication Required: the proxy wants a name and a password", true},
		{403, "https", "proxy " + by.Host + " does not let through to data.example:443: its answer is 403 Forbidden: look at HTTPS_PROXY", true},
		{502, "https", "proxy " + by.Host + ": its answer is 502 Bad Gateway", false},
	} {
		status, asked = c.status, 0
		source, err := Open(t.Context(), parse(t, c.scheme+"://data.example/x.tar"), Options{Transport: tr})
		require.NoError(t, err)
		config := remote.DefaultConfig()
		config.ReadTimeout = time.Second
		engine, err := remote.New(source, config)
		require.NoError(t, err)
		_, err = engine.Stat(t.Context(), "x.tar")
		require.ErrorContains(t, err, c.words)
		require.Equal(t, c.final, asked <= 2, "%d times", asked) // a HEAD, and a GET in its place
		require.NoError(t, engine.Close())
	}
}
