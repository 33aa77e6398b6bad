package remote

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ofError returns the finding for a request that got no answer.
func ofError(err error) finding {
	f := finding{kind: kindAgain, err: err}
	switch {
	case err == nil:
	case refused(err):
		f.kind = kindFinal
	case isOtherScheme(err) != nil:
		f.kind, f.err = kindFinal, &Refusal{isOtherScheme(err)}
	case certificate(err) != "":
		f.kind, f.err = kindFinal, Refuse("%w: %s", err, certificate(err))
	}
	return f
}

// Explain returns an error of a Source as the engine reports it: without secrets, with advice if
// there is any, and as a *Refusal if retrying can't change it.
func Explain(err error) error {
	if err == nil {
		return nil
	}
	return ofError(Clean(err)).err
}

// refused reports whether retrying can't change an error of a Source.
func refused(err error) bool {
	_, ok := errors.AsType[*Refusal](err)
	return ok
}

// certificate returns advice about an error of a server's certificate, or "" for other errors.
func certificate(err error) string {
	var (
		verification *tls.CertificateVerificationError
		authority    x509.UnknownAuthorityError
		host         x509.HostnameError
		invalid      x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &host):
		return "write the name of the server that its certificate is for"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "have the server's certificate renewed, and look at this machine's clock"
	case errors.As(err, &authority):
		return "give the certificate of the server's authority with --ca-file"
	case errors.As(err, &verification) || errors.As(err, &invalid):
		return "have the server's certificate put right"
	}
	return ""
}

// isOtherScheme returns an error if a server does not use the protocol of the URL, or nil if it
// may. A server of plain HTTP answers the start of TLS with text, or closes the connection.
func isOtherScheme(err error) error {
	if record, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		for _, b := range record.RecordHeader {
			if b >= 0x80 || b < ' ' && b != '\n' && b != '\r' && b != '\t' {
				return fmt.Errorf("%w: the server speaks something else than TLS there: look at the port", err)
			}
		}
		return errors.New("the server speaks plain HTTP there, and no TLS: write http:// in the place of https://")
	}
	// net/http has no error type for an answer that is not HTTP. TLS alerts begin with 0x15 0x03.
	if strings.Contains(err.Error(), `malformed HTTP response "\x15\x03`) {
		return errors.New("the server speaks TLS there, and no plain HTTP: write https:// in the place of http://")
	}
	return nil
}

// Clean returns err without what might be secret in its text: user names and queries of URLs,
// signatures and tokens. Errors of net/http repeat the URL of a request, or for redirects and
// proxies other URLs; the text omits them. errors.Is and errors.As still find the wrapped errors,
// but they are not printed.
func Clean(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for shown := err; ; {
		of, ok := errors.AsType[*url.Error](shown)
		if !ok || of.Err == nil {
			break
		}
		text = strings.ReplaceAll(text, of.Error(), of.Err.Error())
		shown = of.Err
	}
	return &cleanError{text: CleanText(text), err: err}
}

type cleanError struct {
	text string
	err  error
}

func (e *cleanError) Error() string        { return e.text }
func (e *cleanError) Is(target error) bool { return errors.Is(e.err, target) }
func (e *cleanError) As(target any) bool   { return errors.As(e.err, target) }

// CleanText is Clean for a text.
func CleanText(text string) string {
	var out strings.Builder
	for len(text) > 0 {
		end := strings.IndexAny(text, " \t\r\n\"'<>")
		if end < 0 {
			end = len(text)
		}
		out.WriteString(cleanWord(text[:end]))
		if end < len(text) {
			end++
			out.WriteByte(text[end-1])
		}
		text = text[end:]
	}
	return named.ReplaceAllString(out.String(), "$1=…")
}

// cleanWord removes the query of a URL or path, and the user of a URL, from a word.
func cleanWord(word string) string {
	if cut := strings.IndexAny(word, "?#"); cut >= 0 && cut < len(word)-1 {
		colon := ""
		if word[len(word)-1] == ':' {
			colon = ":"
		}
		word = word[:cut] + colon
	}
	scheme, rest, found := strings.Cut(word, "://")
	if !found {
		return word
	}
	authority, path, slash := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		authority = authority[at+1:]
	}
	if slash {
		path = "/" + path
	}
	return scheme + "://" + authority + path
}

// named matches secrets that follow their names, as in headers and files.
var named = regexp.MustCompile(`(?i)((?:x-amz-[a-z-]+|x-goog-[a-z-]+|\bsignature|\bsig|\b\w*token|\bauthorization|\bpassword|\b\w*secret\w*|\bcredential))\s*[=:]\s*(?:(?:Basic|Bearer)\s+)?[^\s&"]+`)

const (
	// patience is how long a reader waits for a request before it is reported. Shorter delays are
	// usual.
	patience = 3 * time.Second
	// tellEvery is how often it is reported while it lasts.
	tellEvery = time.Minute
)

// Trouble reports a request that a reader waits for in vain, or the end of such waiting.
type Trouble struct {
	For    string // what the reader waits for: a host, or credentials
	Object string // "" for a listing, or if not known yet
	Why    error  // nil: there is nothing to report but For
	Tries  int    // failed attempts
	// Waited is how long the reader has waited, and Left how much longer it waits at most.
	Waited, Left time.Duration
	Over         bool // requests are answered again
}

func (t Trouble) String() string {
	if t.Over {
		return fmt.Sprintf("%s answers again, after %v", t.For, t.Waited.Round(time.Second))
	}
	text := "waiting for " + t.For
	if t.Why != nil {
		text += ": " + Clean(t.Why).Error()
	}
	tries := ""
	if t.Tries > 0 {
		tries = fmt.Sprintf("%d tries, ", t.Tries)
	}
	if t.Tries == 1 {
		tries = "1 try, "
	}
	return text + fmt.Sprintf(" (%s%v left)", tries, t.Left.Round(time.Second))
}

// trouble is the state of these reports, for all requests of an engine together.
type trouble struct {
	lasts atomic.Bool // it was reported, and its end was not yet

	mu    sync.Mutex
	began time.Time // when the first reader began to wait
	last  time.Time // time of the last report
	seen  time.Time // when a reader was last found to have waited this long
}

// waits describes what a reader waits for, for troubled.
type waits struct {
	path          string // "" for a listing
	tries         int
	waited, limit time.Duration
}

// troubled reports that a reader waits, and why. It returns whether the wait is long enough to be
// reported, for answered.
func (s *Storage) troubled(w waits, why error) bool {
	if s.config.Trouble == nil || w.waited < patience {
		return false
	}
	t := &s.trouble
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.seen = now
	if !t.last.IsZero() && now.Sub(t.last) < tellEvery {
		return true
	}
	if t.last = now; !t.lasts.Swap(true) {
		t.began = now.Add(-w.waited)
	}
	told := Trouble{For: s.service(), Object: w.path, Why: why, Tries: w.tries, Waited: w.waited, Left: max(w.limit-w.waited, 0)}
	if before := s.before(); before != "" {
		told.For = before
		if silence := (*silenceError)(nil); errors.As(why, &silence) {
			told.Why = nil // no request was sent yet
		}
	}
	s.config.Trouble(told)
	return true
}

// service returns the name of the service that requests are sent to.
func (s *Storage) service() string { return cmp.Or(s.config.Service, s.source.Name(), "the service") }

// before returns what must complete before a request can be sent, or "" for nothing.
func (s *Storage) before() string {
	if s.config.Before == nil {
		return ""
	}
	return s.config.Before()
}

// answered is called when a request has succeeded. It reports that, once for each reported trouble,
// if the request was late according to troubled, or if there has been no trouble for tellEvery:
// late requests may have ended without an answer, or may not be wanted any more.
func (s *Storage) answered(late bool) {
	t := &s.trouble
	if !t.lasts.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lasts.Load() && (late || time.Since(t.seen) >= tellEvery) {
		t.lasts.Store(false)
		s.config.Trouble(Trouble{For: s.service(), Over: true, Waited: time.Since(t.began)})
	}
}

// silenceError means that nothing has arrived for that long.
type silenceError struct{ since time.Duration }

func (e *silenceError) Error() string {
	return fmt.Sprintf("no answer for %v", e.since.Round(time.Second))
}

// statusText returns a status with its usual text and the service's own code: "503 Service
// Unavailable (SlowDown)".
func statusText(status int, code string) string {
	text := strconv.Itoa(status)
	if known := http.StatusText(status); known != "" {
		text += " " + known
	}
	if code = codeWord(code); code != "" {
		text += " (" + code + ")"
	}
	return text
}

// maxCodeBytes bounds how much of a service's own code is repeated; S3's longest code has 44 bytes.
const maxCodeBytes = 48

// codeWord returns a code if it may be printed, that is, if it is one short word. Anything else may
// be a message that repeats what was sent, and gives "".
func codeWord(code string) string {
	plain := func(r rune) bool {
		return r == '_' || r == '-' || r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	if len(code) > maxCodeBytes || strings.IndexFunc(code, func(r rune) bool { return !plain(r) }) >= 0 {
		return ""
	}
	return code
}
