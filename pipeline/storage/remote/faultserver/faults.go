package faultserver

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Fault changes an answer. It is called from the goroutine that answers.
type Fault func(*Reply)

// Rule selects the requests to which a fault is applied. Its methods return the rule, and may be
// called at any time.
type Rule struct {
	server *Server
	when   func(Request) bool
	fault  Fault
	from   int     // number of matching requests that are spared first
	times  int     // number of requests after those that it applies to; 0: all
	share  float64 // the share of those that it applies to; 0: all
	seed   uint64
	seen   int
	off    bool
}

// On adds a rule for requests that when accepts; nil means all. If several rules match, all of them
// are applied, in order.
func (s *Server) On(when func(Request) bool, fault Fault) *Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &Rule{server: s, when: when, fault: fault}
	s.rules = append(s.rules, r)
	return r
}

// After spares the first n matching requests.
func (r *Rule) After(n int) *Rule { return r.set(func() { r.from = n }) }

// Times limits the rule to n requests.
func (r *Rule) Times(n int) *Rule { return r.set(func() { r.times = n }) }

// Share limits the rule to a share of the requests, chosen by the seed and their number.
func (r *Rule) Share(share float64, seed uint64) *Rule {
	return r.set(func() { r.share, r.seed = share, seed })
}

// Off ends the rule.
func (r *Rule) Off() *Rule { return r.set(func() { r.off = true }) }

func (r *Rule) set(what func()) *Rule {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	what()
	return r
}

// applies reports whether the rule applies to a request. It is called under the server's lock, once
// per request.
func (r *Rule) applies(asked Request) bool {
	if r.off || r.when != nil && !r.when(asked) {
		return false
	}
	turn := r.seen
	r.seen++
	if turn < r.from || r.times > 0 && turn >= r.from+r.times {
		return false
	}
	return r.share == 0 || float64(mix(r.seed+uint64(turn))>>11)/(1<<53) < r.share
}

// Path matches reads of one object.
func Path(path string) func(Request) bool {
	return func(r Request) bool { return r.Method == "GET" && r.Path == path }
}

// Method matches requests with one method; see Request.
func Method(method string) func(Request) bool {
	return func(r Request) bool { return r.Method == method }
}

// Range matches reads of a range that overlaps [begin, end).
func Range(begin, end int64) func(Request) bool {
	return func(r Request) bool { return r.Method == "GET" && r.Begin >= 0 && r.Begin < end && r.End > begin }
}

// Status answers with a status, an error code, and the headers in pairs.
func Status(status int, code string, pairs ...string) Fault {
	return func(p *Reply) {
		p.Header = http.Header{}
		p.fail(status, code)
		for i := 0; i+1 < len(pairs); i += 2 {
			p.Header.Set(pairs[i], pairs[i+1])
		}
	}
}

// Delay waits before the answer.
func Delay(d time.Duration) Fault { return func(p *Reply) { p.Delay = d } }

// Hang never answers.
func Hang() Fault { return Delay(24 * time.Hour) }

// Stall sends k bytes of the body, and then nothing.
func Stall(k int) Fault { return func(p *Reply) { p.StopAfter, p.Stall = k, true } }

// Drip waits before each KiB of the body.
func Drip(perKiB time.Duration) Fault { return func(p *Reply) { p.PauseKiB = perKiB } }

// Reset closes the connection after k bytes of the body, or without an answer if k < 0.
func Reset(k int) Fault {
	return func(p *Reply) {
		p.StopAfter, p.NoAnswer = max(k, 0), k < 0
	}
}

// Short removes the last n bytes of the body, and announces the shorter length; n < 0 means all.
func Short(n int) Fault {
	return func(p *Reply) {
		taken := n
		if n < 0 || n > len(p.Body) {
			taken = len(p.Body)
		}
		rest := len(p.Body) - taken
		p.Body, p.taken = p.Body[:rest], append(slices.Clone(p.Body[rest:]), p.taken...)
	}
}

// Long appends n bytes to the body, and announces the longer length. Bytes that Short has removed
// come first: otherwise the result could be a body of the right length with wrong bytes, which
// nothing in an answer would show. This also holds if either is applied more than once.
func Long(n int) Fault {
	return func(p *Reply) {
		more := make([]byte, n)
		p.taken = p.taken[copy(more, p.taken):]
		p.Body = append(slices.Clip(p.Body), more...)
	}
}

// Unannounced sends the body without announcing its length.
func Unannounced() Fault { return func(p *Reply) { p.Unannounced = true } }

// Together applies several faults, in order.
func Together(faults ...Fault) Fault {
	return func(p *Reply) {
		for _, f := range faults {
			f(p)
		}
	}
}

// Whole answers with the whole object instead of a range.
func Whole() Fault {
	return func(p *Reply) {
		if p.Status == 206 {
			p.Status, p.Body, p.taken = 200, p.part(0, p.sizeBytes), nil
			p.Header.Del("Content-Range")
		}
	}
}

// OtherRange answers with the same number of bytes from another offset, and announces that.
func OtherRange(by int64) Fault {
	return func(p *Reply) {
		n := int64(len(p.Body))
		begin := max(min(p.Request.Begin+by, p.sizeBytes-n), 0)
		p.Body, p.taken = p.part(begin, n), nil
		p.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", begin, begin+n-1, p.sizeBytes))
	}
}

// ContentRange replaces Content-Range by format, in which BEGIN, LAST and TOTAL are replaced by
// their values; "" removes it.
func ContentRange(format string) Fault {
	return func(p *Reply) {
		p.Header.Del("Content-Range")
		if format != "" {
			begin, last, total := strconv.FormatInt(p.Request.Begin, 10), strconv.FormatInt(p.Request.End-1, 10), strconv.FormatInt(p.sizeBytes, 10)
			value := []byte(format)
			for word, with := range map[string]string{"BEGIN": begin, "LAST": last, "TOTAL": total} {
				value = bytes.ReplaceAll(value, []byte(word), []byte(with))
			}
			p.Header.Set("Content-Range", string(value))
		}
	}
}

// Multipart answers with the range as one part of several.
func Multipart() Fault {
	return func(p *Reply) {
		head := fmt.Sprintf("--x\r\nContent-Range: %s\r\n\r\n", p.Header.Get("Content-Range"))
		p.Header.Del("Content-Range")
		p.Header.Set("Content-Type", "multipart/byteranges; boundary=x")
		p.Body = append([]byte(head), append(p.Body, "\r\n--x--\r\n"...)...)
	}
}

// Encoded announces that the body is compressed.
func Encoded(encoding string) Fault {
	return func(p *Reply) { p.Header.Set("Content-Encoding", encoding) }
}

// NoPrecondition ignores If-Match, and answers with the current version.
func NoPrecondition() Fault {
	return func(p *Reply) {
		if p.Precondition {
			p.right()
		}
	}
}

// NoVersion omits the version of the answer.
func NoVersion() Fault {
	return func(p *Reply) {
		p.Header.Del("ETag")
		p.Header.Del("Last-Modified")
	}
}

// Old answers as servers did before HTTP/1.1: the end of the connection ends the body.
func Old() Fault { return func(p *Reply) { p.Old = true } }

// LastAnswer closes the connection after the answer.
func LastAnswer() Fault { return func(p *Reply) { p.Header.Set("Connection", "close") } }
