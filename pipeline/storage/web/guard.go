package web

import (
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// AllowURLVariable is a variable of the environment. Where it is set, no address is connected to that only
// this machine can reach, except those of the URLs in it, which are separated by blanks. It is no flag,
// because flags may come from somebody who must not allow it, such as a pod.
const AllowURLVariable = "LSIOFS_ALLOW_URL"

// guard refuses addresses of this machine and of the cloud's metadata services. The nil guard refuses none.
type guard struct {
	allowed []string // HOST:PORT
}

// parseGuard returns the guard that allows some URLs, separated by blanks.
func parseGuard(urls string) (*guard, error) {
	g := &guard{}
	for _, text := range strings.Fields(urls) {
		u, err := url.Parse(text)
		if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, remote.Refuse("%s (%q) must be URLs such as http://HOST:PORT, separated by blanks", AllowURLVariable, text)
		}
		port := u.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		g.allowed = append(g.allowed, net.JoinHostPort(strings.ToLower(u.Hostname()), port))
	}
	return g, nil
}

// control returns the Control of a net.Dialer that connects to host, a name or address with its port. It
// looks at the address that is connected to, so a name that has another address each time it is looked up
// is refused, too.
func (g *guard) control(host string) func(network, address string, c syscall.RawConn) error {
	if g == nil || slices.Contains(g.allowed, strings.ToLower(host)) {
		return nil
	}
	return func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return remote.Refuse("%s is not an address", address)
		}
		if inner(at.Addr()) {
			return remote.Refuse("%s leads to %s, an address of this machine or of its metadata service: the administrator of this machine has to allow it (lsiofs-csi --allow-url=http://%[1]s, or %s)", host, at.Addr(), AllowURLVariable)
		}
		return nil
	}
}

// metadata are addresses of clouds' metadata services that are not link-local: of Amazon, Alibaba, Azure.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("fd00:ec2::/32"), netip.MustParsePrefix("100.100.100.200/32"), netip.MustParsePrefix("168.63.129.16/32"),
}

// embedding are ranges of IPv6 whose last four bytes are an address of IPv4: NAT64, and the old form.
var embedding = []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("::/96")}

// inner reports whether an address leads to this machine, or to what only it can reach.
func inner(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	within := func(p netip.Prefix) bool { return p.Contains(a) }
	switch {
	case a.IsLoopback(), a.IsUnspecified(), a.IsLinkLocalUnicast(), a.IsMulticast(), a.Is4() && a.As4()[0] == 0, slices.ContainsFunc(metadata, within):
		return true
	case slices.ContainsFunc(embedding, within):
		b := a.As16()
		return inner(netip.AddrFrom4([4]byte(b[12:])))
	}
	return false
}
