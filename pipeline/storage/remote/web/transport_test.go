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
