package web

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
)

// TokenVariable is an environment variable with the same contents as a file of --auth-file.
const TokenVariable = "LSIOFS_HTTP_TOKEN"

// maxAuthBytes bounds files with tokens and passwords.
const maxAuthBytes = 1 << 20

// authorization holds what requests are authorized with, besides the user name in a URL: lines of
// --auth-file and of TokenVariable, and machines of a .netrc. Each is sent only to the host that it
// names. None of it is printed. It is safe for concurrent use.
type authorization struct {
	file  string // of --auth-file; "" for none
	piped bool   // file is a pipe, which can be read once
	netrc string // "" for none
	root  url.URL
	// namedOnly ignores lines without a host, because several datasets would get them.
	namedOnly bool

	accepted sync.Map // hosts that have accepted a request with one of these headers

	mu       sync.Mutex
	lines    []authLine
	machines []machine
	problem  string // why netrc is not used, for users
}

// authLine is a header for a host.
type authLine struct {
	scheme, host  string // "" for the dataset's own host; scheme is "" if the line has none
	header, value string
}

// newAuthorization reads the authorization for a dataset at root.
func newAuthorization(file string, root url.URL, namedOnly bool) (*authorization, error) {
	a := &authorization{file: file, netrc: netrcFile(), root: root, namedOnly: namedOnly}
	if is, err := os.Stat(file); err == nil {
		a.piped = !is.Mode().IsRegular()
	}
	return a, a.read()
}

// renew reads the files again. If one can't be read now, the earlier contents stay.
func (a *authorization) renew() {
	if !a.piped {
		_ = a.read()
	}
}

// read reads the files and the environment.
func (a *authorization) read() error {
	var lines []authLine
	if a.file != "" {
		text, err := readAuth(a.file)
		if err == nil {
			lines, err = parseAuth(text, "--auth-file "+a.file)
		}
		if err != nil {
			return err
		}
		if len(lines) == 0 {
			return remote.Refuse("--auth-file %s has no token: write lines such as HOST TOKEN", a.file)
		}
	}
	inherited, err := parseAuth(os.Getenv(TokenVariable), TokenVariable)
	if err != nil {
		return err
	}
	machines, problem := readNetrc(a.netrc)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines, a.machines, a.problem = append(lines, inherited...), machines, problem
	return nil
}

// readAuth returns the contents of a file with secrets.
func readAuth(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", remote.Refuse("--auth-file: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxAuthBytes+1))
	switch {
	case err != nil:
		return "", remote.Refuse("--auth-file: %w", err)
	case len(text) > maxAuthBytes:
		return "", remote.Refuse("--auth-file %s is larger than %d bytes", file, maxAuthBytes)
	}
	return string(text), nil
}

// reserved are headers that lsiofs sets itself, because they determine what is requested.
var reserved = []string{
	"Accept-Encoding", "Connection", "Content-Length", "Expect", "Host", "If-Match", "If-Modified-Since", "If-None-Match",
	"If-Range", "If-Unmodified-Since", "Range", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "User-Agent",
}

// parseAuth parses lines: [HOST] TOKEN, or [HOST] HEADER: VALUE. Errors contain nothing of a line.
func parseAuth(text, from string) (lines []authLine, err error) {
	n := 0
	for text := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		n++
		text = strings.TrimSpace(text)
		if text == "" || text[0] == '#' {
			continue
		}
		l, problem := parseAuthLine(text)
		if problem == "" && slices.ContainsFunc(lines, func(o authLine) bool {
			return o.scheme == l.scheme && o.host == l.host && o.header == l.header
		}) {
			problem = "a line before it has the same header for the same host"
		}
		if problem != "" {
			return nil, remote.Refuse("%s: line %d: %s: write HOST TOKEN or HOST HEADER: VALUE, without HOST for the dataset's own host", from, n, problem)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

func parseAuthLine(text string) (l authLine, problem string) {
	cut := func(s string) (first, rest string) {
		i := strings.IndexAny(s, " \t")
		if i < 0 {
			return s, ""
		}
		return s[:i], strings.TrimSpace(s[i:])
	}
	isHeader := func(word string) bool { return len(word) > 1 && strings.HasSuffix(word, ":") }
	first, rest := cut(text)
	if rest != "" && !isHeader(first) && !strings.EqualFold(first, "Bearer") {
		scheme, host, found := strings.Cut(first, "://")
		if !found {
			scheme, host = "", first
		}
		scheme = strings.ToLower(scheme)
		if scheme != "" && scheme != "https" && scheme != "http" {
			return l, "the host's scheme is neither https:// nor http://"
		}
		var err error
		if l.host, err = target.Host(scheme, strings.TrimSuffix(host, "/")); err != nil {
			return l, "what comes first is not a host"
		}
		l.scheme = scheme
		first, rest = cut(rest)
	}
	switch {
	case isHeader(first):
		l.header, l.value = http.CanonicalHeaderKey(strings.TrimSuffix(first, ":")), rest
		switch {
		case rest == "":
			return l, "the header has no value"
		case strings.ContainsFunc(l.header, func(r rune) bool { return !strings.ContainsRune(headerSigns, r) }):
			return l, "the header's name has a sign in it that none has"
		case slices.Contains(reserved, l.header):
			return l, "lsiofs sets the header " + l.header + " itself"
		}
	case strings.EqualFold(first, "Bearer") && rest != "":
		l.header, l.value = "Authorization", "Bearer "+rest
	case rest == "":
		l.header, l.value = "Authorization", "Bearer "+first
	default:
		return l, "a token has no blanks in it"
	}
	if strings.ContainsFunc(l.value, func(r rune) bool { return r < ' ' && r != '\t' || r >= 0x7f }) {
		return l, "there is a sign in it that no header can have"
	}
	return l, ""
}

const headerSigns = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_!#$%&'*+.^`|~"

// loopback reports whether a host is this machine, so that what is sent can't be read on the way.
func loopback(u *url.URL) bool {
	if u.Hostname() == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(u.Hostname())
	return err == nil && a.IsLoopback()
}

// authorize sets the headers of a request for the file at named, which a redirect may have led
// elsewhere.
func (a *authorization) authorize(request *http.Request, user *url.Userinfo, named *url.URL) {
	headers, _ := a.headers(request.URL, user, named)
	for name, values := range headers {
		request.Header[name] = values
	}
}

// headers returns the headers for a request at a URL. withheld means that there are others that are
// not sent, because they could be read on the way.
func (a *authorization) headers(at *url.URL, user *url.Userinfo, named *url.URL) (h http.Header, withheld bool) {
	same := func(u *url.URL) bool { return at.Scheme == u.Scheme && at.Host == u.Host }
	own := same(&a.root)
	if at != named && signed(at) {
		return nil, false // services reject a request that is authorized twice
	}
	h = make(http.Header)
	if user != nil && own {
		h.Set("Authorization", basic(user.Username(), password(user)))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	inClear := at.Scheme != "https" && !loopback(at)
	for _, l := range a.lines {
		switch {
		case l.host == "" && (!own || a.namedOnly), l.host != "" && l.host != at.Host, l.scheme != "" && l.scheme != at.Scheme:
		case inClear && l.scheme != "http":
			withheld = true
		case h.Get(l.header) == "":
			h.Set(l.header, l.value)
		}
	}
	alone := user != nil && own && password(user) == "" // a user name in the URL whose password is not there, so it is looked up
	if !same(named) || h.Get("Authorization") != "" && !alone {
		return h, withheld
	}
	i := slices.IndexFunc(a.machines, func(m machine) bool {
		return (strings.EqualFold(m.name, at.Hostname()) || m.name == "" && own && !a.namedOnly) && (!alone || m.login == user.Username())
	})
	switch {
	case i < 0:
	case inClear:
		withheld = true
	default:
		h.Set("Authorization", basic(a.machines[i].login, a.machines[i].password))
	}
	return h, withheld
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

func password(user *url.Userinfo) string {
	p, _ := user.Password()
	return p
}

// renewed reads the files again, and reports whether a request that was rejected would now be sent
// with other headers.
func (a *authorization) renewed(was *http.Request, user *url.Userinfo, named *url.URL) bool {
	a.renew()
	now, _ := a.headers(was.URL, user, named)
	for name, values := range now {
		if !slices.Equal(was.Header[name], values) {
			return true
		}
	}
	return false
}

// renewal returns what a 401 for a URL means: if its host has accepted headers from a file before,
// something else renews that file, and may be late.
func (a *authorization) renewal(at *url.URL) remote.Renewal {
	_, accepted := a.accepted.Load(at.Host)
	a.mu.Lock()
	defer a.mu.Unlock()
	if accepted && !a.piped && (a.file != "" || len(a.machines) > 0) {
		return remote.LateRenewal
	}
	return remote.SomeRenewal
}

// signed reports whether a URL contains a signature.
func signed(u *url.URL) bool {
	q := u.Query()
	return slices.ContainsFunc([]string{"X-Amz-Signature", "X-Goog-Signature", "Signature", "sig"}, q.Has)
}

// advice returns advice for users about a request for the file at named that a server rejected with
// 401 or 403.
func (a *authorization) advice(status int, request *http.Request, user *url.Userinfo, named *url.URL) string {
	h, withheld := a.headers(request.URL, user, named)
	a.mu.Lock()
	problem := a.problem
	a.mu.Unlock()
	const how = "give a token (a line HOST TOKEN in a file of --auth-file, or " + TokenVariable + " in the environment), or a user name and password (a machine of ~/.netrc, or USER:PASSWORD@ before the host of an https:// URL)"
	switch {
	case len(h) > 0 && status == http.StatusUnauthorized:
		return "the server does not accept the token or password that was sent: renew it where it was given"
	case len(h) > 0:
		return "the token or password that was sent may not read it: ask its owner for access"
	case withheld:
		return "the token or password for it was not sent, since http:// shows it to anybody on the way: write https://, or name the host as http://HOST in the file of --auth-file"
	case problem != "":
		return problem
	case status == http.StatusUnauthorized:
		return "the server wants to know who asks: " + how
	}
	return "the server forbids it: if those who sign in can read it, " + how
}

// failure returns the error for an answer that is not the requested one.
func failure(a remote.Answer) error {
	return &remote.StatusError{Status: a.Status, Code: a.Code, RetryAfter: a.RetryAfter, Advice: a.Advice, Renewal: a.Renewal}
}

// machine is a user name and a password in a .netrc. The name is "" for the default, which comes
// last.
type machine struct{ name, login, password string }

// netrcFile returns the .netrc that NETRC names, or that of the home directory, or "".
func netrcFile() string {
	if file := os.Getenv("NETRC"); file != "" {
		return file
	}
	if home := os.Getenv("HOME"); home != "" {
		return filepath.Join(home, ".netrc")
	}
	return ""
}

// readNetrc returns the machines of a .netrc, or none if there is no such file. problem explains to
// users why a file is not used.
func readNetrc(file string) (machines []machine, problem string) {
	if file == "" {
		return nil, ""
	}
	unused := func(format string, args ...any) ([]machine, string) {
		return nil, fmt.Sprintf("the server wants to know who asks, and %s is not used, since ", file) + fmt.Sprintf(format, args...)
	}
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if os.IsNotExist(err) {
		return nil, ""
	}
	if err != nil {
		return unused("it can't be read: %v", err)
	}
	defer func() { _ = f.Close() }()
	is, err := f.Stat()
	if err != nil || !is.Mode().IsRegular() {
		return nil, ""
	}
	if s, ok := is.Sys().(*syscall.Stat_t); ok && s.Uid != uint32(os.Geteuid()) && s.Uid != 0 {
		return unused("it belongs to somebody else")
	}
	if is.Mode().Perm()&0o077 != 0 {
		return unused("others may read it: chmod 600 %s", file)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxAuthBytes+1))
	if err != nil || len(text) > maxAuthBytes {
		return unused("it can't be read, or is larger than %d bytes", maxAuthBytes)
	}
	if machines, err = parseNetrc(string(text)); err != nil {
		return unused("%v", err)
	}
	return machines, ""
}

// parseNetrc parses the format of ftp(1), curl and others: machine NAME login USER password WORD,
// default, macdef, comments, and quoted words with \ as escape. The first of several machines of
// the same name counts, and the default comes last.
func parseNetrc(text string) (machines []machine, err error) {
	w := words{text: strings.TrimPrefix(text, "\ufeff")}
	var fallback []machine
	var m *machine
	for {
		word, ok := w.next(true)
		if !ok {
			break
		}
		value := func() string {
			if value, ok := w.next(false); ok {
				return value
			}
			err = fmt.Errorf("nothing comes after its last word, %q", word)
			return ""
		}
		switch word {
		case "machine":
			machines = append(machines, machine{name: value()})
			m = &machines[len(machines)-1]
		case "default":
			fallback = []machine{{}}
			m = &fallback[0]
		case "macdef":
			_ = value()
			w.macro()
		case "login", "password", "account":
			v := value()
			switch {
			case m == nil:
				return nil, fmt.Errorf("%s stands before the first machine", word)
			case word == "login":
				m.login = v
			case word == "password":
				m.password = v
			}
		default:
			return nil, errors.New("it has a word that a .netrc has not, and that may be a part of a password: quote passwords with blanks") // the word itself is not printed
		}
		if err != nil {
			return nil, err
		}
	}
	return append(machines, fallback...), nil
}

// words splits a .netrc into words.
type words struct {
	text string
	at   int
}

// next returns the next word. If comments are allowed, # begins one.
func (w *words) next(comments bool) (word string, ok bool) {
	for {
		for w.at < len(w.text) && strings.IndexByte(" \t\r\n", w.text[w.at]) >= 0 {
			w.at++
		}
		if !comments || w.at >= len(w.text) || w.text[w.at] != '#' {
			break
		}
		if end := strings.IndexByte(w.text[w.at:], '\n'); end >= 0 {
			w.at += end
		} else {
			w.at = len(w.text)
		}
	}
	if w.at >= len(w.text) {
		return "", false
	}
	quoted := w.text[w.at] == '"'
	if quoted {
		w.at++
	}
	var b strings.Builder
	for ; w.at < len(w.text); w.at++ {
		switch c := w.text[w.at]; {
		case quoted && c == '"':
			w.at++
			return b.String(), true
		case !quoted && strings.IndexByte(" \t\r\n", c) >= 0:
			return b.String(), true
		case quoted && c == '\\' && w.at+1 < len(w.text):
			w.at++
			b.WriteByte(escaped(w.text[w.at]))
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), !quoted // a quote without an end is not a word
}

// escaped returns the character that \ followed by c means in quotes.
func escaped(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

// macro skips a macro, which ends with an empty line.
func (w *words) macro() {
	rest := w.text[w.at:]
	for {
		end := strings.IndexByte(rest, '\n')
		if end < 0 {
			w.at = len(w.text)
			return
		}
		rest = rest[end+1:]
		if line, _, _ := strings.Cut(rest, "\n"); strings.TrimSuffix(line, "\r") == "" {
			w.at = len(w.text) - len(rest)
			return
		}
	}
}
