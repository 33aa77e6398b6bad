package web

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// secured starts a server with its own certificate, and returns the file with the certificate.
func secured(t *testing.T, handler http.HandlerFunc) (s *httptest.Server, asked *requests, certificates string) {
	asked = &requests{}
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.add(r)
		handler(w, r)
	}))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that don't trust it
	s.StartTLS()
	t.Cleanup(s.Close)
	certificates = filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	require.NoError(t, os.WriteFile(certificates, block, 0o600))
	return s, asked, certificates
}

// They are not sent to the target of a redirect, even if it asks for them.
func TestPasswordsAreSentOnlyToTheirServer(t *testing.T) {
	other, othersAsked, certificates := secured(t, file("ETag", `"v1"`))
	s, asked, _ := secured(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/here":
			http.Redirect(w, r, "/x", http.StatusFound)
		case "/there":
			http.Redirect(w, r, other.URL+"/x", http.StatusFound)
		case "/clear":
			http.Redirect(w, r, "http://"+r.Host+"/x", http.StatusFound)
		default:
			file("ETag", `"v1"`)(w, r)
		}
	})
	// Both servers use httptest's certificate.
	at := strings.Replace(s.URL, "https://", "https://user:hunter2@", 1)
	src, err := Open(t.Context(), parse(t, at+"/x"), Options{Transport: transport(t, Settings{CAFile: certificates})})
	require.NoError(t, err)
	require.Equal(t, s.URL, src.Name())

	for _, path := range []string{"x", "here", "there"} {
		a, err := src.Open(t.Context(), path, `"v1"`, 0, 3)
		require.NoError(t, err, path)
		require.Equal(t, "012", body(t, a))
		_, password, ok := asked.last().BasicAuth()
		require.True(t, ok)
		require.Equal(t, "hunter2", password)
		require.Equal(t, 1, asked.last().ProtoMajor, "HTTP/1.1, where the server has HTTP/2 too")
	}
	require.Empty(t, othersAsked.last().Header.Get("Authorization"))
	_, err = src.Open(t.Context(), "clear", `"v1"`, 0, 3)
	require.ErrorContains(t, err, "from https:// to http://")
	require.NotContains(t, err.Error(), "hunter2")

	// Without the certificate the server is not trusted.
	_, err = open(t, at+"/x").Open(t.Context(), "x", "", 0, 3)
	require.ErrorContains(t, err, "certificate")
	require.NotContains(t, err.Error(), "hunter2")
}

func TestCertificateFilesAreValidated(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	_, err := NewTransport(Settings{CAFile: empty})
	require.ErrorContains(t, err, "--ca-file: "+empty+" has none")
	_, err = NewTransport(Settings{CAFile: empty + "x"})
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Counts the connections that are opened.
func TestConnectionsAreReusedAndRetired(t *testing.T) {
	var opened atomic.Int64
	server := httptest.NewUnstartedServer(file("ETag", `"v1"`))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	tr := transport(t, Settings{})
	now := time.Now()
	tr.now = func() time.Time { return now }
	ask := func() (closed bool) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		require.NoError(t, err)
		resp, err := tr.RoundTrip(request)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.False(t, request.Close, "the caller's request stays as it is")
		return resp.Close
	}
	for range 3 {
		require.False(t, ask())
	}
	require.EqualValues(t, 1, opened.Load())
	now = now.Add(retireAge)
	require.True(t, ask(), "which is its last request")
	require.EqualValues(t, 1, opened.Load())
	require.False(t, ask())
	require.EqualValues(t, 2, opened.Load())
}

// network is the environment of a dialer, with a clock that the test sets.
type network struct {
	addresses []string
	lookupErr error
	lookups   int
	dead      map[string]bool
	tried     []string
	now       time.Time
}

func (n *network) dialer() *dialer {
	d := newDialer(nil)
	d.now = func() time.Time { return n.now }
	d.lookup = func(context.Context, string) ([]string, error) {
		n.lookups++
		return n.addresses, n.lookupErr
	}
	d.connect = func(_ context.Context, _, _, address string) (net.Conn, error) {
		n.tried = append(n.tried, address)
		if n.dead[address] {
			return nil, errors.New(address + " does not answer")
		}
		conn, other := net.Pipe()
		_ = other.Close()
		return conn, nil
	}
	return d
}

// dial connects, and returns which addresses were tried.
func (n *network) dial(t *testing.T, d *dialer) ([]string, error) {
	n.tried = nil
	conn, err := d.DialContext(t.Context(), "tcp", "host:443")
	if err == nil {
		require.NoError(t, conn.Close())
	}
	return n.tried, err
}

func TestAllAddressesOfLookupAreUsedInTurn(t *testing.T) {
	n := &network{addresses: []string{"10.0.0.1", "10.0.0.2", "::3"}, now: written}
	d := n.dialer()
	var all []string
	for range 6 {
		tried, err := n.dial(t, d)
		require.NoError(t, err)
		all = append(all, tried...)
	}
	require.Equal(t, []string{"10.0.0.2:443", "[::3]:443", "10.0.0.1:443", "10.0.0.2:443", "[::3]:443", "10.0.0.1:443"}, all)
	require.Equal(t, 1, n.lookups)

	n.addresses, n.now = []string{"10.0.0.9"}, n.now.Add(lookupAge)
	tried, err := n.dial(t, d)
	require.NoError(t, err)
	require.Equal(t, []string{"10.0.0.9:443"}, tried)
	require.Equal(t, 2, n.lookups)

	_, err = d.DialContext(t.Context(), "tcp", "10.1.1.1:80")
	require.NoError(t, err)
	require.Equal(t, 2, n.lookups, "an address is its own")
}

func TestFailedLookupKeepsKnownAddresses(t *testing.T) {
	n := &network{lookupErr: &net.DNSError{Err: "no such host", IsNotFound: true}, now: written}
	d := n.dialer()
	_, err := n.dial(t, d)
	require.ErrorContains(t, err, "no such host")
	n.addresses, n.lookupErr = []string{"10.0.0.1"}, nil
	_, err = n.dial(t, d)
	require.NoError(t, err, "a failure is not remembered")

	for range 3 {
		n.addresses, n.lookupErr, n.now = nil, errors.New("no server"), n.now.Add(lookupAge)
		tried, err := n.dial(t, d)
		require.NoError(t, err)
		require.Equal(t, []string{"10.0.0.1:443"}, tried)
	}
	n.lookupErr, n.now = nil, n.now.Add(lookupAge)
	_, err = n.dial(t, d)
	require.NoError(t, err, "nor is a lookup that finds nothing")
	require.Equal(t, 6, n.lookups)
}

func TestUnresponsiveAddressIsTriedLastForAWhile(t *testing.T) {
	n := &network{addresses: []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, dead: map[string]bool{"10.0.0.2:443": true}, now: written}
	d := n.dialer()
	tried, err := n.dial(t, d)
	require.NoError(t, err)
	require.Equal(t, []string{"10.0.0.2:443", "10.0.0.3:443"}, tried)
	for range 6 {
		tried, err := n.dial(t, d)
		require.NoError(t, err)
		require.Len(t, tried, 1)
		require.NotEqual(t, "10.0.0.2:443", tried[0])
	}
	n.dead = map[string]bool{"10.0.0.1:443": true, "10.0.0.2:443": true, "10.0.0.3:443": true}
	tried, err = n.dial(t, d)
	require.ErrorContains(t, err, "10.0.0.1:443 does not answer")
	require.Len(t, tried, 3, "all are tried before it fails")

	n.dead, n.now = nil, n.now.Add(avoidAge)
	seen := map[string]bool{}
	for range 3 {
		tried, err := n.dial(t, d)
		require.NoError(t, err)
		seen[tried[0]] = true
	}
	require.Len(t, seen, 3)
}

// For example a version from a listing that contains a newline. net/http's error for it looks like
// a connection error.
func TestUnsendableHeaderIsFinal(t *testing.T) {
	url, asked := serve(t, func(http.ResponseWriter, *http.Request) {})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	request.Header.Set("If-Match", "\"a\nb\"")
	_, err = transport(t, Settings{}).RoundTrip(request)
	var refusal *remote.Refusal
	require.ErrorAs(t, err, &refusal)
	require.ErrorContains(t, err, "its header If-Match has a control character in it")
	require.Empty(t, asked.methods())
}

func TestInternalAddresses(t *testing.T) {
	for _, a := range []string{
		"127.0.0.1", "127.9.9.9", "0.0.0.0", "0.1.2.3", "169.254.169.254", "224.0.0.1", "100.100.100.200", "168.63.129.16", "::1", "::", "fe80::1", "fe80::1%eth0", "ff02::1",
		"::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::a9fe:a9fe", "fd00:ec2::254",
		"fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42", "64:ff9b:1:a9fe:a9:fe00::", "64:ff9b:1:0:a9:fea9:fe00:0", "64:ff9b:1::7f00:1",
	} {
		require.True(t, inner(netip.MustParseAddr(a)), a)
	}
	for _, a := range []string{"10.0.0.1", "192.168.1.1", "52.216.1.1", "100.64.0.1", "2600:1fa0::1", "fd12:3456::1", "64:ff9b::34d8:101", "64:ff9b:1::34d8:101", "64:ff9b:1:34d8:1:100::", "fd20:ce::255"} {
		require.False(t, inner(netip.MustParseAddr(a)), a)
	}
}

// head requests a file with the transport that the environment configures.
func head(t *testing.T, at string) error {
	t.Helper()
	transport, err := NewTransport(Settings{})
	require.NoError(t, err)
	defer transport.Close()
	s, err := Open(t.Context(), parse(t, at), Options{Unversioned: true, Transport: transport})
	require.NoError(t, err)
	_, err = s.Head(t.Context(), s.Names()[0])
	return err
}

func TestAGuardedTransportReachesNothingOfThisMachineButWhatIsAllowed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "5") }))
	defer server.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "http://"), ":")
	named := "http://localhost:" + port
	leading := httptest.NewServer(http.RedirectHandler(named+"/x.tar", http.StatusFound))
	defer leading.Close()
	all := []string{server.URL, named, "http://[::ffff:127.0.0.1]:" + port, "http://0.0.0.0:" + port, leading.URL}
	for _, at := range all {
		require.NoError(t, head(t, at+"/x.tar"), at)
	}
	refused := func(at string) {
		t.Helper()
		err := head(t, at+"/x.tar")
		require.ErrorContains(t, err, "--allow-url", at)
		var refusal *remote.Refusal
		require.ErrorAs(t, err, &refusal, "it is not tried again")
	}

	t.Setenv(AllowURLVariable, "")
	for _, at := range all {
		refused(at)
	}
	t.Setenv(AllowURLVariable, "https://data.example "+named+"/path")
	require.NoError(t, head(t, named+"/x.tar"))
	require.NoError(t, head(t, "http://LocalHost:"+port+"/x.tar"))
	refused(server.URL) // under another name
	refused("http://localhost:1")
	t.Setenv(AllowURLVariable, leading.URL)
	refused(leading.URL) // a redirect to something that is not allowed
	t.Setenv(AllowURLVariable, leading.URL+" "+named)
	require.NoError(t, head(t, leading.URL+"/x.tar"))

	local, err := NewTransport(Settings{Local: true})
	require.NoError(t, err)
	defer local.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodHead, server.URL, nil)
	require.NoError(t, err)
	answer, err := local.RoundTrip(request)
	require.NoError(t, err, "where credentials of a role are asked for is not named by a dataset")
	require.NoError(t, answer.Body.Close())

	for _, wrong := range []string{"localhost:80", "ftp://x", "http://", "http://%zz"} {
		t.Setenv(AllowURLVariable, wrong)
		_, err := NewTransport(Settings{})
		require.ErrorContains(t, err, AllowURLVariable, wrong)
	}
}

// A name may have another address at each lookup: the address of the connection counts.
func TestANameThatLeadsToThisMachineIsRefused(t *testing.T) {
	d := newDialer(&guard{})
	d.lookup = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
	_, err := d.DialContext(t.Context(), "tcp", "data.example:80")
	require.ErrorContains(t, err, "data.example:80 leads to 127.0.0.1, an address of this machine")
}

func TestAddressesOfLocalInterfacesAreRefused(t *testing.T) {
	all, err := net.InterfaceAddrs()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, own := range all {
		a := netip.MustParsePrefix(own.String()).Addr()
		require.ErrorContains(t, refuse("data.example:80", a), "(lsiofs-csi --allow-url=http://data.example:80, or LSIOFS_ALLOW_URL)", own.String())
	}
	require.NoError(t, refuse("data.example:80", netip.MustParseAddr("192.0.2.1")), "of documentation: nobody has it")
}

// A proxy makes its own connections, so the guard of connections sees only the proxy's address.
func TestAGuardedRequestGoesThroughNoProxyThatIsNotAllowed(t *testing.T) {
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = append(asked, r.URL.String()) }))
	defer proxy.Close()
	by, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	ask := func(at, allowed string, by *url.URL) error {
		t.Helper()
		t.Setenv(AllowURLVariable, allowed)
		transport, err := newTransport(Settings{}, http.ProxyURL(by))
		require.NoError(t, err)
		defer transport.Close()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil)
		require.NoError(t, err)
		answer, err := transport.RoundTrip(request)
		if err == nil {
			require.NoError(t, answer.Body.Close())
		}
		return err
	}
	socks := &url.URL{Scheme: "socks5", Host: "proxy.example"}
	for _, at := range []string{"http://169.254.169.254/latest", "http://inner.example/x", "https://data.example/x", "http://0xa9fea9fe/"} {
		var refusal *remote.Refusal
		require.ErrorAs(t, ask(at, "http://other.example", by), &refusal, at)
		require.ErrorContains(t, refusal, "--allow-url=http://"+by.Host, at)
		require.ErrorContains(t, ask(at, "", socks), "--allow-url=http://proxy.example:1080", at)
	}
	require.Empty(t, asked, "the proxy has seen none of them")
	require.NoError(t, ask("http://data.example/x", proxy.URL, by), "the proxy is allowed")
	require.Equal(t, []string{"http://data.example/x"}, asked)
	direct, err := (&guard{}).through(http.ProxyURL(nil))(httptest.NewRequest(http.MethodGet, "http://data.example/x", nil))
	require.NoError(t, err)
	require.Nil(t, direct, "what goes through no proxy is guarded where it connects")
	unguarded, err := (*guard)(nil).through(http.ProxyURL(by))(httptest.NewRequest(http.MethodGet, "http://data.example/x", nil))
	require.NoError(t, err)
	require.Equal(t, by, unguarded)
}
