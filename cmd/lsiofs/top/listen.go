package top

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/style"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/printable"
)

// The page loads its style, its script and board.json from its own origin, and nothing else.
var (
	//go:embed board.html
	boardHTML string
	//go:embed board.js
	boardJS string
	//go:embed board.css
	boardCSS string
)

const (
	// requestTime bounds how long a client may take to send a request, and answerTime how long to
	// read the answer.
	requestTime  = 10 * time.Second
	answerTime   = 30 * time.Second
	requestBytes = 16 << 10
	clientsMost  = 32 // at once; others wait

	loopbackHost  = "127.0.0.1"
	pagePolicy    = "default-src 'none'; img-src data:; style-src 'self'; script-src 'self'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
	metricsFormat = "text/plain; version=0.0.4; charset=utf-8"
)

// listenAddress returns the address for --listen. A port alone, with or without a colon before it,
// is on the loopback address, so the network is reachable only if another address is named.
func listenAddress(s string) (string, error) {
	asked := s
	if !strings.Contains(s, ":") {
		s = ":" + s
	}
	host, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return "", exit.Usagef("--listen (%s) must be ADDRESS:PORT or PORT, such as 127.0.0.1:9464 or 9464", terminal.Quote(asked))
	}
	if host == "" {
		host = loopbackHost
	}
	return net.JoinHostPort(host, port), nil
}

// listen serves the page and the metrics until ctx ends.
func listen(ctx context.Context, o Options, u *terminal.UI) error {
	address, err := listenAddress(o.Listen)
	if err != nil {
		return err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("can't listen on %s: %w; choose another port, or 0 for any free port", address, err)
	}
	url := "http://" + l.Addr().String() + "/"
	if u.JSON {
		err = u.Emit(map[string]string{"url": url})
	} else {
		err = u.Printf("the page is at %s, the metrics are at %smetrics; Ctrl-C ends\n", url, url)
	}
	if err != nil {
		l.Close()
		return err
	}
	if a, ok := l.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		u.Warn(fmt.Sprintf("%s is not a loopback address: anyone who can reach it sees the names of datasets and what is read", l.Addr()))
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b := newBoard(o.Points)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { b.run(ctx) })
	if err := serve(ctx, l, address, b.answer); err != nil {
		return fmt.Errorf("listening on %s: %w", address, err)
	}
	return ctx.Err()
}

// reply is the answer to a request.
type reply struct {
	status      int
	contentType string
	body        []byte
}

func text(status int, words string) reply {
	return reply{status, "text/plain; charset=utf-8", []byte(words + "\n")}
}

// serve answers one request per connection until ctx ends, then waits for all that it has started.
// It does not use net/http's server, which with its HTTP/2 would add 0.5 MB to the program, but
// uses that package's requests and responses.
func serve(ctx context.Context, l net.Listener, address string, answer func(*http.Request) reply) error {
	ended := context.AfterFunc(ctx, func() { l.Close() })
	defer ended()
	var clients sync.WaitGroup
	defer clients.Wait()
	slots := make(chan struct{}, clientsMost)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		client, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				client.Close()
			}
			return nil
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ECONNABORTED):
			<-slots
			if !pause(ctx, every) {
				return nil
			}
			continue
		case err != nil:
			return err
		}
		clients.Go(func() {
			defer func() { <-slots }()
			hangUp := context.AfterFunc(ctx, func() { client.Close() })
			defer hangUp()
			defer client.Close()
			converse(ctx, client, address, answer)
		})
	}
}

// converse reads a request and answers it. It reports nothing if the client has gone or sends an
// invalid request.
func converse(ctx context.Context, client net.Conn, address string, answer func(*http.Request) reply) {
	if client.SetDeadline(time.Now().Add(requestTime)) != nil {
		return
	}
	r, err := http.ReadRequest(bufio.NewReader(io.LimitReader(client, requestBytes)))
	if err != nil {
		return
	}
	a := refusal(r, address)
	if a.status == 0 {
		a = answer(r.WithContext(ctx))
	}
	// If unread data were left, the kernel would reset the connection before the answer is read.
	_, _ = io.Copy(io.Discard, r.Body)
	if client.SetDeadline(time.Now().Add(answerTime)) != nil {
		return
	}
	response := http.Response{
		StatusCode: a.status, ProtoMajor: 1, ProtoMinor: 1, Request: r, Close: true,
		Header: http.Header{
			"Content-Type":                 {a.contentType},
			"Content-Security-Policy":      {pagePolicy},
			"X-Content-Type-Options":       {"nosniff"},
			"Cross-Origin-Resource-Policy": {"same-origin"},
			"Cross-Origin-Opener-Policy":   {"same-origin"},
			"Referrer-Policy":              {"no-referrer"},
			"Cache-Control":                {"no-store"},
		},
		Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body)),
	}
	_ = response.Write(client)
}

// refusal returns the reply to a client that may not see mounts, or status 0 for one that may. A
// browser that shows a page of another origin may not, whatever name that page has given this
// address (DNS rebinding). No client may write.
func refusal(r *http.Request, address string) reply {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return text(http.StatusMethodNotAllowed, "lsiofs top is read-only: use GET")
	case !namesUs(r.Host, address):
		return text(http.StatusForbidden, "lsiofs top only answers requests for its address, localhost, or its machine's name")
	case foreign(r):
		return text(http.StatusForbidden, "lsiofs top does not answer requests from other sites' pages")
	}
	return reply{}
}

// namesUs reports whether a request's Host is an IP address, or a name that others can't have
// chosen: localhost, the machine's, or that of --listen.
func namesUs(host, address string) bool {
	name := hostOf(host)
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	machine, err := os.Hostname()
	return strings.EqualFold(name, "localhost") || strings.EqualFold(name, hostOf(address)) || err == nil && strings.EqualFold(name, machine)
}

// hostOf returns a Host or an address without its port.
func hostOf(s string) string {
	if host, _, err := net.SplitHostPort(s); err == nil {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")
}

// foreign reports whether a browser makes the request for a page of another origin. Following a
// link from there is allowed, because that page does not see the result. (developer.mozilla.org,
// Fetch metadata.)
func foreign(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return true
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return false
	}
	return r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"
}

// answer returns the page, what it loads, or the metrics.
func (b *board) answer(r *http.Request) reply {
	switch r.URL.Path {
	case "/":
		return reply{http.StatusOK, "text/html; charset=utf-8", []byte(boardHTML)}
	case "/board.js":
		return reply{http.StatusOK, "text/javascript; charset=utf-8", []byte(boardJS)}
	case "/board.css":
		return reply{http.StatusOK, "text/css; charset=utf-8", []byte(style.CSS + boardCSS)}
	case "/board.json":
		after, _ := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64) // 0 if missing: all samples
		state, err := json.Marshal(b.state(after))
		if err != nil {
			return text(http.StatusInternalServerError, err.Error())
		}
		return reply{http.StatusOK, "application/json", printable.JSON(state)}
	case "/metrics":
		return reply{http.StatusOK, metricsFormat, merged(b.scrape(r.Context()))}
	}
	return text(http.StatusNotFound, "lsiofs top serves / and /metrics only")
}
