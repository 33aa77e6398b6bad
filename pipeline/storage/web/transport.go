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
	// retireAge is the age at which a connection makes its last request: services move,
	// and the addresses of a lookup stay in use only as long as their connections.
	retireAge = 10 * time.Minute
	// idleTimeout is less than that of servers (nginx: 75 s), which otherwise close a
	// connection while a request is on its way.
	idleTimeout = 30 * time.Second
	// maxIdle is the largest --connections.
	maxIdle = 1024
)

// Transport makes the requests of Sources over HTTP/1.1, as many at a time as it is
// asked for. HTTP/2 takes 1.7 times the processor time for a range of 256 KiB, and puts
// all of them on one connection. Nothing is decompressed: ranges are of what is stored.
// Safe for concurrent use; Close it when no request is under way.
type Transport struct {
	base *http.Transport
	now  func() time.Time
}

// Settings are what a Transport may be told.
type Settings struct {
	// CAFile has certificates, in PEM, that are trusted beside the system's.
	CAFile string
	// CAFrom is what names that file, for errors; "" is --ca-file.
	CAFrom string
	// Local is for services of this machine, such as the one that has credentials of its role: the proxies
	// that the environment names are not used, and AllowURLVariable is not looked at.
	Local bool
}

// NewTransport makes one, which is to be closed. It fails when the file can't be used.
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

// connected refuses what a proxy does not let through, since no further try changes that. What fails
// behind it (5xx) may pass.
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
	// The transport asks the request whether its connection is to be closed only after
	// it has chosen one.
	var own *http.Request
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if t.old(info.Conn) {
			own.Close = true
		}
	}}
	own = request.Clone(httptrace.WithClientTrace(request.Context(), trace))
	return t.base.RoundTrip(own)
}

// sendable refuses headers that no connection takes, such as a version with a newline in it.
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

// Close closes the connections that are idle.
func (t *Transport) Close() { t.base.CloseIdleConnections() }

// dated is a connection that knows since when it is open.
type dated struct {
	net.Conn
	born time.Time
}

// old says whether a connection has come to its age.
func (t *Transport) old(conn net.Conn) bool {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	c, ok := conn.(*dated)
	return ok && t.now().Sub(c.born) >= retireAge
}
