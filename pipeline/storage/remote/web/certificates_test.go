package web

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// authority is a certificate authority for test servers.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	file        string // its certificate in PEM
}

func newAuthority(t *testing.T) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	a := &authority{key: key, file: filepath.Join(t.TempDir(), "authority.pem")}
	a.certificate, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(a.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return a
}

// vouch returns a certificate for 127.0.0.1 that is valid until then.
func (a *authority) vouch(t *testing.T, until time.Time) *tls.Certificate {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: until.Add(-48 * time.Hour), NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &a.key.PublicKey, a.key)
	require.NoError(t, err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
}

// Tests a certificate of an unknown authority, and one that expires while its server is being read
// from.
func TestInvalidCertificatesAreFinalErrors(t *testing.T) {
	a := newAuthority(t)
	good, expired := a.vouch(t, time.Now().Add(time.Hour)), a.vouch(t, time.Now().Add(-time.Hour))
	var shown atomic.Pointer[tls.Certificate]
	var handshakes atomic.Int64
	server := httptest.NewUnstartedServer(file("ETag", `"v1"`, "Connection", "close"))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of aborted handshakes
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		handshakes.Add(1)
		return &tls.Config{Certificates: []tls.Certificate{*shown.Load()}}, nil
	}}
	server.StartTLS()
	t.Cleanup(server.Close)

	engine := func(caFile string) *remote.Storage {
		// Without session tickets, with which a new connection needs no certificate.
		tr := transport(t, Settings{CAFile: caFile})
		tr.base.TLSClientConfig.ClientSessionCache = nil
		source, err := Open(t.Context(), parse(t, server.URL+"/x.tar"), Options{Transport: tr})
		require.NoError(t, err)
		s, err := remote.New(source, remote.DefaultConfig())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	fails := func(s *remote.Storage, words, advice string) {
		t.Helper()
		for name, ask := range map[string]func() error{
			"stat": func() error { _, err := s.Stat(t.Context(), "x.tar"); return err },
			"list": func() error {
				return s.List(t.Context(), func(string, bool) bool { return true }, func(storage.Object) error { return nil })
			},
		} {
			before := handshakes.Load()
			err := ask()
			require.ErrorContains(t, err, words, name)
			require.ErrorContains(t, err, advice, name)
			require.ErrorContains(t, err, "x.tar", name)
			require.EqualValues(t, 1, handshakes.Load()-before, "%s: it is not tried again", name)
		}
	}
	shown.Store(good)
	fails(engine(""), "unknown authority", "--ca-file")

	s := engine(a.file)
	o, err := s.Stat(t.Context(), "x.tar")
	require.NoError(t, err)
	p := make([]byte, 10)
	require.NoError(t, storage.ReadAt(t.Context(), s, o, p, 0))
	shown.Store(expired)
	before := handshakes.Load()
	err = storage.ReadAt(t.Context(), s, o, p, 0)
	require.ErrorContains(t, err, "has expired")
	require.ErrorContains(t, err, "have the server's certificate renewed")
	require.NotContains(t, err.Error(), "--ca-file")
	require.ErrorContains(t, err, server.URL)
	require.EqualValues(t, 1, handshakes.Load()-before)
	fails(s, "has expired", "renewed, and look at this machine's clock")
}

// A server that does not use the protocol of the URL is an error at once, which names the right
// scheme. A server without TLS may answer in HTTP, or only with a page, as in HTTP/0.9.
func TestWrongURLSchemeIsAFinalErrorNamingRightOne(t *testing.T) {
	plain, secured := httptest.NewServer(file("ETag", `"v1"`)), httptest.NewUnstartedServer(nil)
	secured.Config.ErrorLog = log.New(io.Discard, "", 0)
	secured.StartTLS()
	t.Cleanup(plain.Close)
	t.Cleanup(secured.Close)
	old, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := old.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1000))
			_, _ = io.WriteString(conn, "<!DOCTYPE HTML>\n<p>400")
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = old.Close(); <-ended })
	for url, words := range map[string]string{
		"https://" + plain.Listener.Addr().String():  "plain HTTP there, and no TLS: write http://",
		"https://" + old.Addr().String():             "plain HTTP there, and no TLS: write http://",
		"http://" + secured.Listener.Addr().String(): "400 Bad Request: if the server speaks TLS at that port, write https://",
	} {
		source, err := Open(t.Context(), parse(t, url+"/x.tar"), Options{Transport: transport(t, Settings{})})
		require.NoError(t, err)
		s, err := remote.New(source, remote.DefaultConfig())
		require.NoError(t, err)
		_, err = s.Stat(t.Context(), "x.tar")
		require.ErrorContains(t, err, words, url)
		require.NotContains(t, err.Error(), "ca-file")
		require.NoError(t, s.Close())
	}
}
