package faultserver

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
)

// Connect returns a source whose connections to the server are in memory, so that it also works
// with the clock of testing/synctest.
func Connect(t testing.TB, s *Server) *Source {
	pipes := &pipes{accept: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: http.StripPrefix("/data", s)}
	var all sync.WaitGroup
	all.Go(func() { _ = server.Serve(pipes) })
	source := newSource("http://unkind.test/data/")
	source.client.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		if source.Dial != nil {
			if err := source.Dial(); err != nil {
				return nil, err
			}
		}
		return pipes.dial(ctx)
	}
	t.Cleanup(func() {
		source.client.CloseIdleConnections()
		s.close()
		_ = server.Close()
		all.Wait()
	})
	return source
}

// ConnectLoopback returns a source whose connections go through the kernel.
func ConnectLoopback(t testing.TB, s *Server) *Source {
	server := httptest.NewServer(http.StripPrefix("/data", s))
	t.Cleanup(func() {
		s.close()
		server.Close()
	})
	return newSource(server.URL + "/data/")
}

// pipes is a net.Listener for connections in memory.
type pipes struct {
	accept chan net.Conn
	once   sync.Once
	closed chan struct{}

	mu sync.Mutex
	n  int
}

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	p.mu.Lock()
	p.n++
	from := address("pipe:" + strconv.Itoa(p.n))
	p.mu.Unlock()
	client, server := net.Pipe()
	select {
	case p.accept <- addressed{server, from}:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return address("unkind.test") }

// addressed is a connection with a name for its other end, for the log.
type addressed struct {
	net.Conn
	remote address
}

func (a addressed) RemoteAddr() net.Addr { return a.remote }

type address string

func (address) Network() string  { return "pipe" }
func (a address) String() string { return string(a) }
