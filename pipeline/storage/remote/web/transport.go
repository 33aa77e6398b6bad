package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

const (
	// retireAge is the age after which a connection makes its last request: services move, and
	// connections keep the addresses of old lookups in use.
	retireAge = 10 * time.Minute
	// idleTimeout is shorter than that of servers (nginx: 75 s), which otherwise close a connection
	// while a request is on its way.
	idleTimeout = 30 * time.Second
	// maxIdle is the largest --connections.
	maxIdle = 1024
)

// Transport makes the requests of Sources over HTTP/1.1, any number at a time. HTTP/2 takes 1.7
// times the processor time for a range of 256 KiB, and puts all requests on one connection. Nothing
// is decompressed: ranges are of the stored bytes. It is safe for concurrent use; Close it when no
// requests are running.
type Transport struct {
	base *http.Transport
	now  func() time.Time
}

// Settings are the settings of a Transport.
type Settings struct {
	// CAFile contains certificates, in PEM, that are trusted in addition to the system's.
	CAFile string
	// CAFrom is the setting that names the file, for errors; "" means --ca-file.
	CAFrom string
	// Local is for services of this machine, such as the one with the credentials of its role: the
	// proxies that the environment names are not used, and AllowURLVariable is ignored.
	Local bool
}

// NewTransport returns a Transport, which the caller closes. It fails if the file can't be used.
func NewTransport(s Settings) (*Transport, error) {
	return newTransport(s, http.ProxyFromEnvironment)
}

func newTransport(s Settings, proxy func(*http.Request) (*url.URL, error)) (*Transport, error) {
	trust := &tls.Config{MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(maxHosts)}
	if s.CAFile != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		text, err := os.ReadFile(s.CAFile)
		if err != nil {
			return nil, fmt.Errorf("certificates of %s: %w", cmp.Or(s.CAFrom, "--ca-file"), err)
		}
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("certificates of %s: %s has none in PEM", cmp.Or(s.CAFrom, "--ca-file"), s.CAFile)
		}
		trust.RootCAs = pool
	}
	t := &Transport{now: time.Now}
	var g *guard
	if urls, guarded := os.LookupEnv(AllowURLVariable); guarded && !s.Local {
		var err error
		if g, err = parseGuard(urls); err != nil {
			return nil, err
		}
	}
	dial := newDialer(g)
	t.base = &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &dated{Conn: conn, born: t.now()}, nil
		},
		TLSClientConfig:       trust,
		TLSHandshakeTimeout:   5 * time.Second,
		DisableCompression:    true,
		MaxIdleConns:          maxIdle,
		MaxIdleConnsPerHost:   maxIdle,
		IdleConnTimeout:       idleTimeout,
		ExpectContinueTimeout: time.Second,
		Protocols:             new(http.Protocols),
	}
	t.base.Protocols.SetHTTP1(true)
	if !s.Local {
		t.base.Proxy = g.through(proxy)
		t.base.OnProxyConnectResponse = connected
	}
	return t, nil
}

// connected returns an error if a proxy blocks a connection, as a refusal because retrying does not
// change that. Failures after the proxy (5xx) may pass.
func connected(_ context.Context, proxy *url.URL, request *http.Request, answer *http.Response) error {
	switch {
	case answer.StatusCode == http.StatusProxyAuthRequired:
		return remote.Refuse("proxy %s: %s", proxy.Host, remote.ProxyWantsSignIn)
	case answer.StatusCode >= 400 && answer.StatusCode < 500 && answer.StatusCode != http.StatusRequestTimeout && answer.StatusCode != http.StatusTooManyRequests:
		return remote.Refuse("proxy %s does not let through to %s: its answer is %s: look at HTTPS_PROXY, and at NO_PROXY", proxy.Host, request.Host, answer.Status)
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("proxy %s: its answer is %s", proxy.Host, answer.Status)
	}
	return nil
}

// RoundTrip makes one request, follows no redirect, and keeps no cookies.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := sendable(request.Header); err != nil {
		return nil, err
	}
	// The transport checks whether the request closes its connection only after it has chosen one.
	var own *http.Request
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if t.old(info.Conn) {
			own.Close = true
		}
	}}
	own = request.Clone(httptrace.WithClientTrace(request.Context(), trace))
	return t.base.RoundTrip(own)
}

// sendable returns an error for headers that can't be sent, such as a version that contains a
// newline.
func sendable(h http.Header) error {
	for name, values := range h {
		for _, value := range values {
			if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return remote.Refuse("the request can't be sent, since its header %s has a control character in it", name)
			}
		}
	}
	return nil
}

// Close closes idle connections.
func (t *Transport) Close() { t.base.CloseIdleConnections() }

// dated is a connection with the time when it was opened.
type dated struct {
	net.Conn
	born time.Time
}

// old reports whether a connection has reached its maximum age.
func (t *Transport) old(conn net.Conn) bool {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	c, ok := conn.(*dated)
	return ok && t.now().Sub(c.born) >= retireAge
}
