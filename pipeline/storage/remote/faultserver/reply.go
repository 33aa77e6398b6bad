package faultserver

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Request is a request that the server received.
type Request struct {
	N             int    // from 0
	Method        string // GET, HEAD, LIST, RESOLVE
	Path          string
	Query         string
	Begin, End    int64 // of the range; -1: none
	Authorization string
	Connection    string
	At            time.Time
	Status        int // of the answer; 0: the connection was closed instead
}

// Log returns the requests so far.
func (s *Server) Log() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.log...)
}

// Reply is an answer before it is sent, for a Fault to change.
type Reply struct {
	Request      Request
	Status       int
	Header       http.Header
	Body         []byte
	Delay        time.Duration // before the header
	NoAnswer     bool          // close the connection instead
	StopAfter    int           // bytes of the body; -1: none
	Stall        bool          // then wait until the client leaves, instead of closing the connection
	PauseKiB     time.Duration // before each 1 KiB of the body
	Unannounced  bool          // no Content-Length
	Old          bool          // HTTP/1.0, whose bodies end with the connection
	Precondition bool          // it is a 412 because the version differs

	closed    <-chan struct{} // closed when the server is
	head      bool
	ranged    bool                      // a range was requested
	taken     []byte                    // removed from the end of the body
	sizeBytes int64                     // of the object
	part      func(off, n int64) []byte // of the object; nil: the answer is not about one
	right     func()                    // turns it into the answer without the precondition
}

func (p *Reply) fail(status int, code string) {
	p.Status, p.Body = status, []byte("<Error>the secret signature is in here</Error>")
	if code != "" {
		p.Header.Set("X-Code", code)
	}
}

func (p *Reply) send(o *object, path string, begin, end int64) {
	p.Status = 200
	p.Header.Del("X-Code")
	if p.Body = nil; p.head {
		p.Header.Set("Content-Length", strconv.FormatInt(o.size, 10))
	} else {
		p.Body = o.bytes(path, begin, end-begin)
	}
	if p.ranged {
		p.Status = 206
		p.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", begin, end-1, o.size))
	}
}

// write sends a reply, as far as it should be sent.
func (p *Reply) write(w http.ResponseWriter, r *http.Request) {
	if p.Delay > 0 && !p.pause(r, p.Delay) {
		return
	}
	if p.NoAnswer {
		panic(http.ErrAbortHandler)
	}
	if p.Old {
		p.writeOld(w)
		return
	}
	h := w.Header()
	for key, values := range p.Header {
		h[key] = values
	}
	if !p.Unannounced && h.Get("Content-Length") == "" {
		h.Set("Content-Length", strconv.Itoa(len(p.Body)))
	}
	w.WriteHeader(p.Status)
	if r.Method == http.MethodHead {
		return
	}
	flush := http.NewResponseController(w).Flush
	if p.Unannounced {
		_ = flush() // otherwise the server computes the length of short ones
	}
	body := p.Body
	if p.StopAfter >= 0 {
		body = body[:min(p.StopAfter, len(body))]
	}
	step := len(body)
	if p.PauseKiB > 0 {
		step = 1 << 10
	}
	for len(body) > 0 {
		n := min(step, len(body))
		if p.PauseKiB > 0 && !p.pause(r, p.PauseKiB) {
			return
		}
		if _, err := w.Write(body[:n]); err != nil {
			return
		}
		_ = flush()
		body = body[n:]
	}
	if p.StopAfter < 0 {
		return
	}
	_ = flush()
	if p.Stall {
		p.pause(r, forever)
	}
	panic(http.ErrAbortHandler)
}

const forever = 365 * 24 * time.Hour

// pause waits for d. It returns false if the client has left or the server has closed.
func (p *Reply) pause(r *http.Request, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
	case <-p.closed:
	}
	return false
}

func (p *Reply) writeOld(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(conn, "HTTP/1.0 %d OK\r\n", p.Status)
	_ = p.Header.Write(conn)
	_, _ = io.WriteString(conn, "\r\n")
	_, _ = conn.Write(p.Body)
}
