package web

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

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
