package web

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

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
