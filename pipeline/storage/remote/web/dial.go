package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

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
