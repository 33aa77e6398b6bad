package web

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// secretFile writes a file with secrets.
func secretFile(t *testing.T, text string) string {
	file := filepath.Join(t.TempDir(), "secrets")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// signedIn opens a URL with the credentials in the environment.
func signedIn(t *testing.T, url string, o Options) (*Source, error) {
	if os.Getenv("NETRC") == "" {
		t.Setenv("NETRC", os.DevNull)
	}
	o.Transport = transport(t, Settings{})
	return Open(t.Context(), parse(t, url), o)
}

func TestATokenIsSentToTheHostThatItIsFor(t *testing.T) {
	other, asked := serve(t, file("ETag", `"v1"`))
	url, own := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/away") {
			http.Redirect(w, r, other+r.URL.Path, http.StatusFound)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/signed") && r.URL.RawQuery == "" {
			http.Redirect(w, r, "/signed?X-Amz-Signature=x", http.StatusFound)
			return
		}
		file("ETag", `"v1"`)(w, r)
	})
	host, otherHost := strings.TrimPrefix(url, "http://"), strings.TrimPrefix(other, "http://")
	netrc := secretFile(t, "machine 127.0.0.1 login me password pass")
	for name, c := range map[string]struct {
		file, environment, netrc string
		named                    bool
		path                     string
		own, other               http.Header
	}{
		"a token alone":            {file: "abc\n", own: http.Header{"Authorization": {"Bearer abc"}}},
		"of the environment":       {environment: "abc", own: http.Header{"Authorization": {"Bearer abc"}}},
		"the file comes first":     {file: "abc", environment: "Bearer def\nX-A: 1", own: http.Header{"Authorization": {"Bearer abc"}, "X-A": {"1"}}},
		"of a host":                {file: "# hosts\n\n" + otherHost + " def\nHTTP://" + strings.ToUpper(host) + "/ abc", own: http.Header{"Authorization": {"Bearer abc"}}},
		"of another host":          {file: otherHost + " def"},
		"of the same at https":     {file: "https://" + host + " def"},
		"headers":                  {file: host + " private-token:  a b \nCookie: c=d", own: http.Header{"Private-Token": {"a b"}, "Cookie": {"c=d"}}},
		"basic":                    {file: host + " Authorization: Basic eDp5", own: http.Header{"Authorization": {"Basic eDp5"}}},
		"not for all datasets":     {file: "abc", named: true},
		"for all if it is named":   {file: host + " abc", named: true, own: http.Header{"Authorization": {"Bearer abc"}}},
		"a redirect to another":    {file: "abc", environment: host + " X-A: 1", netrc: netrc, path: "/away.tar", own: http.Header{"Authorization": {"Bearer abc"}, "X-A": {"1"}}},
		"that has its own":         {file: "abc\n" + otherHost + " def", path: "/away.tar", own: http.Header{"Authorization": {"Bearer abc"}}, other: http.Header{"Authorization": {"Bearer def"}}},
		"a signed one needs none":  {file: "abc", path: "/signed.tar", own: http.Header{}},
		".netrc":                   {netrc: netrc, own: http.Header{"Authorization": {"Basic bWU6cGFzcw=="}}},
		".netrc after a redirect":  {netrc: netrc, path: "/away.tar", own: http.Header{"Authorization": {"Basic bWU6cGFzcw=="}}},
		"the token before .netrc":  {file: "abc", netrc: netrc, own: http.Header{"Authorization": {"Bearer abc"}}},
		"the default of .netrc":    {netrc: secretFile(t, "machine else login a password b default login me password pass"), own: http.Header{"Authorization": {"Basic bWU6cGFzcw=="}}},
		"the default is one's own": {netrc: secretFile(t, "default login me password pass"), named: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{NamedOnly: c.named}
			if c.file != "" {
				o.AuthFile = secretFile(t, c.file)
			}
			t.Setenv(TokenVariable, c.environment)
			t.Setenv("NETRC", c.netrc)
			if c.path == "" {
				c.path = "/x.tar"
			}
			s, err := signedIn(t, url+c.path, o)
			require.NoError(t, err)
			before := len(asked.methods())
			_, err = s.Head(t.Context(), c.path[1:])
			require.NoError(t, err)
			sent := func(r *http.Request) http.Header {
				h := r.Header.Clone()
				h.Del("User-Agent")
				h.Del("Accept-Encoding")
				return h
			}
			if c.own == nil {
				c.own = http.Header{}
			}
			if c.other == nil {
				c.other = http.Header{}
			}
			require.Equal(t, c.own, sent(own.last()))
			require.Equal(t, c.path == "/away.tar", len(asked.methods()) > before)
			if c.path == "/away.tar" {
				require.Equal(t, c.other, sent(asked.last()))
			}
		})
	}
}

// No request leaves this machine: other names stand for other machines.
func TestNothingIsSentInTheClear(t *testing.T) {
	url, asked := serve(t, file("ETag", `"v1"`))
	// A proxy could read what is sent to another machine.
	proxied := strings.Replace(url, "127.0.0.1", "a.test", 1)
	host := strings.TrimPrefix(proxied, "http://")
	for text, want := range map[string]string{"abc": "", host + " abc": "", "http://" + host + " abc": "Bearer abc"} {
		t.Setenv("NETRC", secretFile(t, "machine a.test login me password pass default login x password y"))
		s, err := signedIn(t, proxied+"/x.tar", Options{AuthFile: secretFile(t, text)})
		require.NoError(t, err)
		s.options.Transport = elsewhere(url)
		_, err = s.Head(t.Context(), "x.tar")
		require.NoError(t, err)
		require.Equal(t, want, asked.last().Header.Get("Authorization"), text)
	}
}

// elsewhere sends all requests to one server.
type elsewhere string

func (e elsewhere) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = strings.TrimPrefix(string(e), "http://")
	return http.DefaultTransport.RoundTrip(r)
}

func TestInvalidTokenLinesAreRefusedWithoutShowingThem(t *testing.T) {
	for text, problem := range map[string]string{
		"host a hunter2":                    "blanks",
		"X-A:":                              "no value",
		"host X-A: ":                        "no value",
		"ftp://host hunter2":                "scheme",
		"https://host/hunter2 x":            "not a host",
		"https://hunter2@host x":            "not a host",
		"*.host hunter2":                    "not a host",
		"Range: bytes=0-1":                  "itself",
		"host if-match: hunter2":            "itself",
		"X(A: hunter2":                      "sign",
		"hunter2\x01":                       "sign",
		"hunter2ü":                          "sign",
		"hunter2\n\nhunter3":                "line 3",
		"host hunter2\nHOST:443 x\nhost: y": "same header",
		"":                                  "no token",
	} {
		_, err := signedIn(t, "https://h/x.tar", Options{AuthFile: secretFile(t, text)})
		var refusal *remote.Refusal
		require.ErrorAs(t, err, &refusal, "%q", text)
		require.ErrorContains(t, err, problem, "%q", text)
		require.NotContains(t, err.Error(), "hunter", "%q", text)
	}
	_, err := signedIn(t, "https://h/x.tar", Options{AuthFile: filepath.Join(t.TempDir(), "none")})
	require.ErrorIs(t, err, os.ErrNotExist)
	t.Setenv(TokenVariable, "a b c")
	_, err = signedIn(t, "https://h/x.tar", Options{})
	require.ErrorContains(t, err, TokenVariable)
}

func TestNetrcFiles(t *testing.T) {
	for text, want := range map[string][]machine{
		"": nil,
		"machine a login b password c\nmachine d\n\tlogin e\n\taccount x\n\tpassword f\n": {{"a", "b", "c"}, {"d", "e", "f"}},
		`machine a login "b c" password "\"x\\ y"`:                                        {{"a", "b c", `"x\ y`}},
		"# machine x login y\nmachine a # b\nlogin #l password #p":                        {{"a", "#l", "#p"}},
		"default login b password c\nmachine a login d password e":                        {{"a", "d", "e"}, {"", "b", "c"}},
		"macdef init\ncd /\nmachine z login z\n\nmachine a login b password c":            {{"a", "b", "c"}},
		"\ufeffmachine a password c\r\n":                                                  {{"a", "", "c"}},
		"machine a macdef x\nno end":                                                      {{"a", "", ""}},
		"macdef init\r\ncd /\r\n\r\nmachine a login b\r\n":                                {{"a", "b", ""}},
		"macdef init\n\nmachine a login b":                                                {{"a", "b", ""}},
		"macdef init\nmachine z\n \nlogin z\n\nmachine a login b":                         {{"a", "b", ""}},
		`machine a password "b\tc\nd\re"`:                                                 {{"a", "", "b\tc\nd\re"}},
	} {
		got, err := parseNetrc(text)
		require.NoError(t, err, "%q", text)
		require.Equal(t, want, got, "%q", text)
	}
	for _, text := range []string{"hunter2", "machine", "login x", "machine a login", `machine a password "hunter2`, "machine a password b hunter2"} {
		_, err := parseNetrc(text)
		require.Error(t, err, "%q", text)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

// Like curl does: a machine with another user name is not used.
func TestUserNameInURLTakesPasswordFromNetrc(t *testing.T) {
	netrc := secretFile(t, "machine host login a password b\nmachine host login me password pass\ndefault login x password y")
	t.Setenv("NETRC", netrc)
	for user, want := range map[string][2]string{"me@": {"me", "pass"}, "a:own@": {"a", "own"}, "token@": {"token", ""}, "": {"a", "b"}} {
		s, err := Open(t.Context(), parse(t, "https://"+user+"host/x.tar"), Options{})
		require.NoError(t, err)
		at, err := s.address("x.tar")
		require.NoError(t, err)
		r := &http.Request{URL: at, Header: http.Header{}}
		s.auth.authorize(r, s.web.User, at)
		name, password, _ := r.BasicAuth()
		require.Equal(t, want, [2]string{name, password}, user)
	}
}

// Opening it again might block forever.
func TestTokenPipeIsReadOnce(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	wrote := make(chan error, 1)
	go func() { wrote <- os.WriteFile(pipe, []byte("token\n"), 0o600) }()
	var refused atomic.Bool
	url, asked := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if refused.Load() {
			w.WriteHeader(401)
			return
		}
		file("ETag", `"v1"`)(w, r)
	})
	s, err := signedIn(t, url+"/x.tar", Options{AuthFile: pipe})
	require.NoError(t, err)
	require.NoError(t, <-wrote)
	_, err = s.Head(t.Context(), "x.tar")
	require.NoError(t, err)
	refused.Store(true)
	s.Refresh(t.Context(), "x.tar")
	_, err = s.Head(t.Context(), "x.tar")
	require.Error(t, err)
	for _, r := range asked.all {
		require.Equal(t, "Bearer token", r.Header.Get("Authorization"))
	}
}

func TestUnauthorizedErrorSuggestsFix(t *testing.T) {
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/forbidden.tar" {
			w.WriteHeader(403)
			return
		}
		w.WriteHeader(401)
	})
	open := secretFile(t, "machine 127.0.0.1 login a password hunter2")
	require.NoError(t, os.Chmod(open, 0o644))
	for _, c := range []struct{ name, token, netrc, path, words string }{
		{"nothing", "", "", "/x.tar", "LSIOFS_HTTP_TOKEN in the environment"},
		{"nothing", "", "", "/x.tar", "~/.netrc, or USER:PASSWORD@"},
		{"nothing", "", "", "/forbidden.tar", "--auth-file"},
		{"token", "hunter2", "", "/x.tar", "does not accept the token or password that was sent"},
		{"token", "hunter2", "", "/forbidden.tar", "may not read it"},
		{"netrc", "", open, "/x.tar", "others may read it: chmod 600 " + open},
		{"netrc", "", secretFile(t, "machine 127.0.0.1 hunter2"), "/x.tar", "a word that a .netrc has not"},
	} {
		t.Setenv(TokenVariable, c.token)
		t.Setenv("NETRC", c.netrc)
		s, err := signedIn(t, url+c.path, Options{})
		require.NoError(t, err)
		config := remote.DefaultConfig()
		config.ReadTimeout = 10 * time.Second
		engine, err := remote.New(s, config)
		require.NoError(t, err)
		_, err = engine.Stat(t.Context(), c.path[1:])
		require.ErrorContains(t, err, c.words, c.name)
		require.NotContains(t, err.Error(), "hunter2")
		require.NotContains(t, err.Error(), "--anonymous")
		require.NoError(t, engine.Close())
	}
}

// All requests use the new token, whichever was rejected first. A token that is late in its file is
// waited for.
func TestRenewedTokenIsUsedAtOnce(t *testing.T) {
	var valid, refusals atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != fmt.Sprintf("Bearer token%d", valid.Load()) {
			refusals.Add(1)
			w.WriteHeader(401)
			return
		}
		file("ETag", `"v1"`)(w, r)
	}))
	t.Cleanup(server.Close)
	tokens := secretFile(t, "token0")
	s, err := signedIn(t, server.URL+"/x.tar", Options{AuthFile: tokens})
	require.NoError(t, err)
	for i := range int64(3) {
		valid.Store(i)
		require.NoError(t, os.WriteFile(tokens, fmt.Appendf(nil, "token%d\n", i), 0o600))
		_, err = s.Head(t.Context(), "x.tar")
		require.NoError(t, err)
		a, err := s.Open(t.Context(), "x.tar", `"v1"`, 0, 4)
		require.NoError(t, err)
		require.Equal(t, 206, a.Status)
		body(t, a)
	}
	engine, err := remote.New(s, remote.DefaultConfig())
	require.NoError(t, err)
	valid.Store(5)
	refusals.Store(0)
	done := make(chan error)
	go func() { _, err := engine.Stat(t.Context(), "x.tar"); done <- err }()
	require.Eventually(t, func() bool { return refusals.Load() > 5 }, time.Minute, time.Millisecond, "it is asked again while the file is late")
	require.NoError(t, os.WriteFile(tokens, []byte("token5\n"), 0o600))
	require.NoError(t, <-done)

	valid.Store(9)
	require.NoError(t, os.Remove(tokens))
	_, err = s.Head(t.Context(), "x.tar")
	var status *remote.StatusError
	require.ErrorAs(t, err, &status)
	require.Equal(t, 401, status.Status)
}

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
