package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

func TestInnerAddresses(t *testing.T) {
	for _, a := range []string{
		"127.0.0.1", "127.9.9.9", "0.0.0.0", "0.1.2.3", "169.254.169.254", "224.0.0.1", "100.100.100.200", "168.63.129.16", "::1", "::", "fe80::1", "fe80::1%eth0", "ff02::1",
		"::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::a9fe:a9fe", "fd00:ec2::254",
	} {
		require.True(t, inner(netip.MustParseAddr(a)), a)
	}
	for _, a := range []string{"10.0.0.1", "192.168.1.1", "52.216.1.1", "100.64.0.1", "2600:1fa0::1", "fd12:3456::1", "64:ff9b::34d8:101"} {
		require.False(t, inner(netip.MustParseAddr(a)), a)
	}
}

// head asks for a file by a transport of the environment.
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
	refused(server.URL) // by another name
	refused("http://localhost:1")
	t.Setenv(AllowURLVariable, leading.URL)
	refused(leading.URL) // a redirect to what is not allowed
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

// A name may have another address each time it is looked up: what counts is what is connected to.
func TestANameThatLeadsToThisMachineIsRefused(t *testing.T) {
	d := newDialer(&guard{})
	d.lookup = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
	_, err := d.DialContext(t.Context(), "tcp", "data.example:80")
	require.ErrorContains(t, err, "data.example:80 leads to 127.0.0.1, an address of this machine")
}
