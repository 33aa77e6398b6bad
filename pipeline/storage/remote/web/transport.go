package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
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

const (
	// lookupAge is how long the addresses of a host are used before the next lookup: large services
	// change theirs every few seconds to minutes.
	lookupAge = 30 * time.Second
	// lookupTimeout bounds one lookup.
	lookupTimeout = 5 * time.Second
	// connectTimeout bounds a connection attempt to one address: a live one answers within a second
	// from anywhere.
	connectTimeout = 3 * time.Second
	// avoidAge is how long an address that did not answer is tried last.
	avoidAge = 30 * time.Second
	// maxHosts bounds how many hosts are remembered; redirects may name many.
	maxHosts = 256
)

// dialer connects to the addresses of a host in turn. Go's own dialer always uses the first one
// that answers, although S3 returns eight, each with limits of its own. It is safe for concurrent
// use.
type dialer struct {
	lookup func(ctx context.Context, host string) ([]string, error)
	// connect connects to an address of a host, which is given by name, with its port.
	connect func(ctx context.Context, host, network, address string) (net.Conn, error)
	now     func() time.Time

	mu    sync.Mutex
	hosts map[string]*host
}

// host is what is known about one host.
type host struct {
	asking    chan struct{} // holds a value during a lookup
	addresses []string
	asked     time.Time // time of the last lookup, successful or not
	next      int
	avoided   map[string]time.Time // until when
}

func newDialer(g *guard) *dialer {
	connect := func(ctx context.Context, host, network, address string) (net.Conn, error) {
		plain := &net.Dialer{Timeout: connectTimeout, KeepAlive: 15 * time.Second, Control: g.control(host)}
		return plain.DialContext(ctx, network, address)
	}
	return &dialer{
		lookup: net.DefaultResolver.LookupHost, connect: connect, now: time.Now,
		hosts: make(map[string]*host),
	}
}

// DialContext connects to one of the addresses of a host, trying all of them if necessary.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	name, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(name) != nil {
		return d.connect(ctx, address, network, address)
	}
	addresses, err := d.inTurn(ctx, name)
	if err != nil {
		return nil, err
	}
	var failures []error
	for _, a := range addresses {
		conn, err := d.connect(ctx, address, network, net.JoinHostPort(a, port))
		if err == nil {
			d.answered(name, a, true)
			return conn, nil
		}
		if ctx.Err() != nil { // then the error is not about the address
			return nil, err
		}
		d.answered(name, a, false)
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}

// inTurn returns a host's addresses in the order in which to try them.
func (d *dialer) inTurn(ctx context.Context, name string) ([]string, error) {
	h := d.host(name)
	select {
	case h.asking <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-h.asking }()
	d.mu.Lock()
	known, age := len(h.addresses) > 0, d.now().Sub(h.asked)
	d.mu.Unlock()
	if !known || age >= lookupAge {
		bounded, cancel := context.WithTimeout(ctx, lookupTimeout)
		addresses, err := d.lookup(bounded, name)
		cancel()
		if err == nil && len(addresses) == 0 {
			err = fmt.Errorf("%s has no addresses", name)
		}
		if err != nil && !known {
			return nil, err
		}
		d.mu.Lock()
		h.asked = d.now() // even if it failed: then the known addresses are used for longer
		if err == nil {
			h.addresses = slices.Clone(addresses)
		}
		d.mu.Unlock()
	}
	return d.order(h), nil
}

// order returns the order for one connection: from the next address on, with avoided ones last.
func (d *dialer) order(h *host) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(h.addresses)
	h.next = (h.next + 1) % n
	var good, bad []string
	for i := range n {
		a := h.addresses[(h.next+i)%n]
		if until, ok := h.avoided[a]; ok && d.now().Before(until) {
			bad = append(bad, a)
		} else {
			good = append(good, a)
		}
	}
	return append(good, bad...)
}

// answered records whether a connection to an address succeeded.
func (d *dialer) answered(name, address string, well bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.hosts[name]
	switch {
	case h == nil: // forgotten meanwhile
	case well:
		delete(h.avoided, address)
	default:
		if len(h.avoided) >= maxHosts {
			clear(h.avoided)
		}
		h.avoided[address] = d.now().Add(avoidAge)
	}
}

func (d *dialer) host(name string) *host {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.hosts[name]
	if h == nil {
		if len(d.hosts) >= maxHosts {
			clear(d.hosts)
		}
		h = &host{asking: make(chan struct{}, 1), avoided: make(map[string]time.Time)}
		d.hosts[name] = h
	}
	return h
}

// AllowURLVariable is an environment variable. If it is set, addresses that only this machine can
// reach are rejected, except for the URLs in the variable, which are separated by blanks. It is not
// a flag, because flags may come from users who must not be able to allow it, such as a pod's.
const AllowURLVariable = "LSIOFS_ALLOW_URL"

// guard rejects addresses of this machine and of the cloud's metadata services. The nil guard
// rejects none.
type guard struct {
	allowed []string // HOST:PORT
}

// parseGuard returns a guard that allows some URLs, separated by blanks.
func parseGuard(urls string) (*guard, error) {
	g := &guard{}
	for _, text := range strings.Fields(urls) {
		u, err := url.Parse(text)
		if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, remote.Refuse("%s (%q) must be URLs such as http://HOST:PORT, separated by blanks", AllowURLVariable, text)
		}
		g.allowed = append(g.allowed, strings.ToLower(hostPort(u)))
	}
	return g, nil
}

// hostPort returns the HOST:PORT of a URL, with the port of its scheme if it names none.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// allows reports whether the administrator allows a host, given as a name or address with its port.
func (g *guard) allows(host string) bool {
	return g == nil || slices.Contains(g.allowed, strings.ToLower(host))
}

// through returns the Proxy function of an http.Transport; by returns the proxy for a request. A
// proxy makes its own connections, which no guard sees, and looks names up again. So a proxy is
// used only if it is allowed: its administrator has to block inner addresses there.
func (g *guard) through(by func(*http.Request) (*url.URL, error)) func(*http.Request) (*url.URL, error) {
	return func(request *http.Request) (*url.URL, error) {
		proxy, err := by(request)
		if err != nil || proxy == nil || g.allows(hostPort(proxy)) {
			return proxy, err
		}
		return nil, remote.Refuse("%s is to be asked for through the proxy %s, which may lead to addresses of this machine or of its metadata service: the administrator of this machine has to allow the proxy (lsiofs-csi --allow-url=http://%[2]s, or %s) if it refuses those, or to name the host in NO_PROXY",
			hostPort(request.URL), hostPort(proxy), AllowURLVariable)
	}
}

// control returns the Control function of a net.Dialer that connects to host, a name or address
// with its port. It checks the address of the connection, so a name that has another address at
// each lookup is rejected, too.
func (g *guard) control(host string) func(network, address string, c syscall.RawConn) error {
	if g.allows(host) {
		return nil
	}
	return func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return remote.Refuse("%s is not an address", address)
		}
		return refuse(host, at.Addr())
	}
}

// refuse returns an error if an address that host leads to is an inner one.
func refuse(host string, a netip.Addr) error {
	if !inner(a) && !ofThisMachine(a) {
		return nil
	}
	return remote.Refuse("%s leads to %s, an address of this machine or of its metadata service: the administrator of this machine has to allow it (lsiofs-csi --allow-url=http://%[1]s, or %[3]s)", host, a, AllowURLVariable)
}

// ofThisMachine reports whether an address is one of this machine's interfaces. They are read each
// time, because interfaces come and go.
func ofThisMachine(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false // if the system hides them, loopback is rejected anyway
	}
	return slices.ContainsFunc(all, func(own net.Addr) bool {
		p, err := netip.ParsePrefix(own.String())
		return err == nil && p.Addr().Unmap() == a
	})
}

// metadata are addresses of cloud metadata services that are not link-local: Amazon, Alibaba,
// Azure, Google, Oracle, Scaleway.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("fd00:ec2::/32"), netip.MustParsePrefix("100.100.100.200/32"), netip.MustParsePrefix("168.63.129.16/32"),
	netip.MustParsePrefix("fd20:ce::254/128"), netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"), netip.MustParsePrefix("fd00:42::42/128"),
}

// localTranslation is the NAT64 range for local use (RFC 8215).
var localTranslation = netip.MustParsePrefix("64:ff9b:1::/48")

// translated are the possible positions of the bytes of an IPv4 address in an address of
// localTranslation (RFC 6052).
var translated = [][4]int{{6, 7, 9, 10}, {7, 9, 10, 11}, {9, 10, 11, 12}, {12, 13, 14, 15}}

// embedding are IPv6 ranges whose last four bytes are an IPv4 address: NAT64, and the old form.
var embedding = []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("::/96")}

// inner reports whether an address leads to this machine, or to something that only it can reach.
func inner(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	within := func(p netip.Prefix) bool { return p.Contains(a) }
	switch {
	case a.IsLoopback(), a.IsUnspecified(), a.IsLinkLocalUnicast(), a.IsMulticast(), a.Is4() && a.As4()[0] == 0, slices.ContainsFunc(metadata, within):
		return true
	case slices.ContainsFunc(embedding, within):
		b := a.As16()
		return inner(netip.AddrFrom4([4]byte(b[12:])))
	case localTranslation.Contains(a):
		b := a.As16()
		return slices.ContainsFunc(translated, func(at [4]int) bool {
			four := [4]byte{b[at[0]], b[at[1]], b[at[2]], b[at[3]]}
			return four[0] != 0 && inner(netip.AddrFrom4(four)) // 0: the address is not at these positions
		})
	}
	return false
}
