package web

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	gopath "path"
	"strconv"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
)

// Options are the settings of a Source.
type Options struct {
	// Unversioned accepts files whose versions the server can't distinguish: then only changes of
	// their size are noticed.
	Unversioned bool
	// AuthFile is a file with tokens and headers for hosts, in addition to TokenVariable and a
	// .netrc; "" for none.
	AuthFile string
	// NamedOnly ignores tokens without a host, because they would be for several datasets.
	NamedOnly bool
	// Transport makes the requests. The caller owns it, and closes it after the source.
	Transport http.RoundTripper
}

// Source is a folder of a web server and the named files in it.
type Source struct {
	options Options
	web     target.Web
	names   []target.Name
	named   map[string]int // index in names by path
	kept    *kept
	auth    *authorization
}

var (
	_ remote.Source = (*Source)(nil)
	_ remote.Summer = (*Source)(nil)
)

// Open returns the source for a target. If that is a list of files it is fetched, with one request:
// an error may be temporary, unless it is a *remote.Refusal.
func Open(ctx context.Context, t target.Web, o Options) (*Source, error) {
	auth, err := newAuthorization(o.AuthFile, url.URL{Scheme: t.Scheme, Host: t.Host}, o.NamedOnly)
	if err != nil {
		return nil, err
	}
	s := &Source{options: o, web: t, kept: newKept(), auth: auth}
	s.name(t.Names)
	if !t.List {
		return s, nil
	}
	names, err := s.readList(ctx)
	if err != nil {
		return nil, err
	}
	s.name(names)
	return s, nil
}

func (s *Source) name(names []target.Name) {
	s.names, s.named = names, make(map[string]int, len(names))
	for i, n := range names {
		s.named[n.Path] = i
	}
}

// Name returns the URL of the folder.
func (s *Source) Name() string { return s.web.Root() }

// Names returns the paths of the named files, in their order.
func (s *Source) Names() []string {
	paths := make([]string, len(s.names))
	for i, n := range s.names {
		paths[i] = n.Path
	}
	return paths
}

// Refresh reads the files with tokens and passwords again. If the target of a redirect rejects a
// request, it is requested again anyway.
func (s *Source) Refresh(context.Context, string) { s.auth.renew() }

// Close does nothing: the transport belongs to the caller.
func (s *Source) Close() error { return nil }

// Head requests a file's size and version. If the server rejects HEAD, or does not return the size,
// it requests the first byte.
func (s *Source) Head(ctx context.Context, path string) (remote.Listed, error) {
	resp, err := s.ask(ctx, http.MethodHead, path, "", 0, -1)
	if err != nil {
		return remote.Listed{}, err
	}
	_ = resp.Body.Close()
	a := s.answer(path, resp, "")
	switch {
	case a.Status == http.StatusOK && (a.LengthBytes >= 0 || a.Page != ""):
		return s.describe(path, a, a.LengthBytes)
	case a.Status == http.StatusNotFound || a.Status == http.StatusGone || a.Status >= 500 && a.Status != http.StatusNotImplemented,
		a.Status == http.StatusTooManyRequests, a.Status == http.StatusRequestTimeout, a.Status == http.StatusUnauthorized:
		return remote.Listed{}, failure(a)
	}
	return s.firstByte(ctx, path)
}

// Sums implements remote.Summer. It fails if the server rejects HEAD.
func (s *Source) Sums(ctx context.Context, path string) (remote.Listed, remote.Sums, error) {
	resp, err := s.ask(ctx, http.MethodHead, path, "", 0, -1)
	if err != nil {
		return remote.Listed{}, remote.Sums{}, err
	}
	_ = resp.Body.Close()
	a := s.answer(path, resp, "")
	if a.Status != http.StatusOK {
		return remote.Listed{}, remote.Sums{}, failure(a)
	}
	l, err := s.describe(path, a, a.LengthBytes)
	return l, remote.WebSums(resp.Header), err
}

// firstByte is Head by means of a GET. Servers reject HEAD with 405 and 501, and with 403 if a URL
// is signed for GET.
func (s *Source) firstByte(ctx context.Context, path string) (remote.Listed, error) {
	resp, err := s.ask(ctx, http.MethodGet, path, "", 0, 1)
	if err != nil {
		return remote.Listed{}, err
	}
	a := s.answer(path, resp, "")
	_ = a.Body.Close() // this closes the connection if the body is longer than a byte
	size := int64(-1)
	switch a.Status {
	case http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable:
		size = a.Total
		if a.Status == http.StatusRequestedRangeNotSatisfiable && size != 0 {
			return remote.Listed{}, remote.Refuse("the answer to a request for its first byte is 416 Range Not Satisfiable, which does not say how large it is: look at its server, or at proxies before it")
		}
	case http.StatusOK:
		if a.Encoding == "" { // otherwise it may be encoded on the way
			size = a.LengthBytes
		}
	default:
		return remote.Listed{}, failure(a)
	}
	return s.describe(path, a, size)
}

// page returns Answer.Page for an answer for a file. A web page counts as the file only if the
// file's name is that of a web page, and the answer came from a URL with the same name.
func page(path string, resp *http.Response) string {
	ok := resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent
	from := resp.Request.URL
	if !ok || !remote.IsPage(resp.Header) || remote.NamesPage(path) && gopath.Base(path) == gopath.Base(from.Path) {
		return ""
	}
	return fmt.Sprintf("a web page (text/html) of %s came, and no file: the server may ask for a login, or a network before it", from.Host)
}

// describe returns an error for files that can't be read reliably.
func (s *Source) describe(path string, a remote.Answer, sizeBytes int64) (remote.Listed, error) {
	l := remote.Listed{Path: path, SizeBytes: sizeBytes, Validator: a.Validator, Modified: a.Modified, Unsettled: a.Unsettled, Variant: s.variant(path)}
	switch {
	case a.Page != "":
		return l, remote.Refuse("%s", a.Page)
	case a.Encoding != "" && sizeBytes < 0:
		return l, remote.Refuse("the server encodes it on the way (Content-Encoding %q), though asked for the bytes as they are: turn this off for it", a.Encoding)
	case sizeBytes < 0:
		return l, remote.Refuse("the server does not say how large it is")
	case l.Validator == "" && !s.options.Unversioned:
		return l, remote.Refuse("the server says neither ETag nor Last-Modified, so that a change could not be seen: with --unversioned, the size alone counts")
	case remote.Clamped(l) && !s.options.Unversioned:
		return l, remote.Refuse("its ETag or Last-Modified is made of a time of %d or before, as tools set it for all files alike, so that a change could not be seen: with --unversioned, the size alone counts", remote.LastClamp)
	}
	return l, nil
}

// Open requests a range by GET, with If-Match or If-Unmodified-Since, from where a redirect for
// that version has led before.
func (s *Source) Open(ctx context.Context, path string, v remote.Validator, off, n int64) (remote.Answer, error) {
	if off < 0 || n == 0 {
		return remote.Answer{}, remote.Refuse("there is no range of %d bytes at %d", n, off)
	}
	resp, err := s.get(ctx, path, v, off, n)
	if err != nil {
		return remote.Answer{}, err
	}
	return s.answer(path, resp, v), nil
}

// answer returns the Answer to a request for a version of a file.
func (s *Source) answer(path string, resp *http.Response, v remote.Validator) remote.Answer {
	a := remote.AnswerOf(resp, v)
	if resp.Request.Method == http.MethodGet {
		a.ReadCode(resp.Header)
	}
	if a.Page = page(path, resp); refused(a.Status) {
		if named, err := s.address(path); err == nil {
			a.Advice = s.auth.advice(a.Status, resp.Request, s.web.User, named)
		}
	}
	switch {
	case a.Status == http.StatusUnauthorized:
		a.Renewal = s.auth.renewal(resp.Request.URL)
	case a.Status == http.StatusBadRequest && resp.Request.URL.Scheme == "http":
		a.Advice = "if the server speaks TLS at that port, write https://"
	case a.Status < http.StatusBadRequest && resp.Request.Header["Authorization"] != nil:
		s.auth.accepted.LoadOrStore(resp.Request.URL.Host, true)
	}
	return a
}

// variant returns a digest of the query in a file's URL: a server may have different files at the
// same path. It reveals nothing of the query, which may be a signature.
func (s *Source) variant(path string) string {
	query := s.web.Query
	if i, ok := s.named[path]; ok {
		query = s.names[i].Query
	}
	if query == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(query))
	return hex.EncodeToString(sum[:16])
}

// urlFor returns a file's URL for messages.
func (s *Source) urlFor(path string) string {
	if host, file, is := target.Elsewhere(path); is {
		return host + "/" + target.Escape(file)
	}
	return s.Name() + "/" + target.Escape(path)
}

// address returns a file's URL for requests.
func (s *Source) address(path string) (*url.URL, error) {
	root, raw, query := s.web.Root(), target.Escape(path), s.web.Query
	if i, ok := s.named[path]; ok {
		root, raw, query = cmp.Or(s.names[i].Root, root), s.names[i].Raw, s.names[i].Query
	} else if _, _, elsewhere := target.Elsewhere(path); elsewhere {
		return nil, remote.Refuse("only a list names files outside of its own folder")
	}
	u, err := url.Parse(root + "/" + raw)
	if err != nil {
		return nil, remote.Refuse("it has no URL: %w", remote.Clean(err))
	}
	u.RawQuery = query
	return u, nil
}

// maxListBytes bounds the size of a list of files.
const maxListBytes = 256 << 20

// List describes each named file, which is a page of its own, and fails if one does not exist. It
// returns remote.ErrNoListing if no files are named.
func (s *Source) List(ctx context.Context, page string, visit func(remote.Listed) error) (next []string, err error) {
	i := 0
	if len(s.names) == 0 {
		return nil, remote.ErrNoListing
	}
	if page != "" {
		if i, err = strconv.Atoi(page); err != nil || i < 1 || i >= len(s.names) {
			return nil, remote.Refuse("there is no page of such a name")
		}
	}
	name := s.names[i]
	l, err := s.Head(ctx, name.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, remote.Refuse("%s: %w: it was named: restore it, or change the range or the list", name.Path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name.Path, err)
	}
	if name.SizeBytes >= 0 && name.SizeBytes != l.SizeBytes {
		return nil, remote.Refuse("%s: it has %d bytes, and the list says %d: make the list anew", name.Path, l.SizeBytes, name.SizeBytes)
	}
	if err := visit(l); err != nil || page != "" {
		return nil, err
	}
	for i := range len(s.names) - 1 {
		next = append(next, strconv.Itoa(i+1))
	}
	return next, nil
}

// readList fetches the list of files that the target is.
func (s *Source) readList(ctx context.Context) ([]target.Name, error) {
	path := s.names[0].Path
	fail := func(err error) ([]target.Name, error) {
		return nil, fmt.Errorf("list of files %s: %w", s.urlFor(path), err)
	}
	resp, err := s.ask(ctx, http.MethodGet, path, "", 0, -1)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = resp.Body.Close() }()
	a := s.answer(path, resp, "")
	switch {
	case a.Status != http.StatusOK:
		return fail(failure(a))
	case a.Page != "":
		return fail(remote.Refuse("%s", a.Page))
	case a.LengthBytes < 0 && len(resp.TransferEncoding) == 0:
		return fail(remote.Refuse("the server does not say how long it is (Content-Length), so that one which is cut short would look whole: have it say so, or name the files by a range such as {000..146}"))
	case a.Encoding != "":
		return fail(remote.Refuse("the server sends it with Content-Encoding %q, though asked for the bytes as they are", a.Encoding))
	}
	text, err := io.ReadAll(io.LimitReader(a.Body, maxListBytes+1))
	if err != nil {
		return fail(remote.Clean(err))
	}
	if len(text) > maxListBytes {
		return fail(remote.Refuse("it is larger than %d MiB", maxListBytes>>20))
	}
	var names []target.Name
	if strings.HasSuffix(path, ".json") {
		names, err = s.web.ParseShards(text)
	} else {
		names, err = s.web.ParseText(string(text))
	}
	if err != nil {
		return fail(&remote.Refusal{Err: err})
	}
	return names, nil
}

// maxRedirects is far more than any service needs.
const maxRedirects = 10

// drainBytes is how much of a redirect's body is read so that its connection can be reused; if the
// body is larger, the connection is closed.
const drainBytes = 4 << 10

// ask sends a request for a file to its server, and follows redirects. The response's Request is
// the last one.
func (s *Source) ask(ctx context.Context, method, path string, v remote.Validator, off, n int64) (*http.Response, error) {
	from, err := s.address(path)
	if err != nil {
		return nil, err
	}
	resp, err := s.askAt(ctx, from, from, method, v, off, n)
	if err == nil && refused(resp.StatusCode) && s.auth.renewed(resp.Request, s.web.User, from) {
		Discard(resp)
		resp, err = s.askAt(ctx, from, from, method, v, off, n)
	}
	if err != nil {
		return nil, err
	}
	if to := resp.Request.URL; to != from {
		s.kept.learn(path)
		// A URL that is signed for HEAD may not work for GET.
		if method == http.MethodGet && verdict(path, resp, v) == answers {
			s.kept.keep(path, to, v)
		}
	}
	return resp, nil
}

// askAt sends a request for the file at named to at, where it is, and follows redirects. User
// names, passwords and tokens are sent only to the servers that they were given for, and not to
// other ports or schemes of these.
func (s *Source) askAt(ctx context.Context, named, at *url.URL, method string, v remote.Validator, off, n int64) (*http.Response, error) {
	folder := false // the last redirect is one with which servers answer requests for folders
	for range maxRedirects + 1 {
		request := (&http.Request{Method: method, URL: at, Host: at.Host, Header: http.Header{
			"Accept-Encoding": {"identity"}, // otherwise it may be compressed on the way
			"User-Agent":      {"lsiofs"},
		}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
		s.auth.authorize(request, s.web.User, named)
		if method == http.MethodGet {
			remote.SetRange(request.Header, off, n)
		}
		v.SetConditions(request.Header)
		resp, err := s.options.Transport.RoundTrip(request)
		if err != nil {
			return nil, remote.Clean(err)
		}
		resp.Request = request
		location := resp.Header.Get("Location")
		if !Redirects(resp.StatusCode) || location == "" {
			if folder && resp.StatusCode == http.StatusForbidden { // servers don't reveal what is in it
				_ = resp.Body.Close()
				return nil, remote.Refuse("it is a folder of the server, and no file: %w", fs.ErrNotExist)
			}
			return resp, nil
		}
		Discard(resp)
		from := at
		if at, err = Follow(at, location); err != nil {
			return nil, err
		}
		folder = at.Path == from.Path+"/"
	}
	return nil, remote.Refuse("the server redirects more than %d times: the last redirect leads to %s", maxRedirects, at.Host)
}

// Discard ends an answer so that its connection can be reused if the body is short.
func Discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, drainBytes)
	_ = resp.Body.Close()
}

// refused reports whether a status means that the request may succeed with other credentials.
func refused(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// Redirects reports whether a status is a redirect.
func Redirects(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// Follow returns the target of a redirect. The location may be signed, and is not printed.
func Follow(from *url.URL, location string) (*url.URL, error) {
	to, err := url.Parse(location)
	if err != nil {
		return nil, remote.Refuse("%s redirects to what is no URL", from.Host)
	}
	to = from.ResolveReference(to)
	if host, err := target.Host(to.Scheme, to.Host); err == nil {
		to.Host = host // normalized like other URLs, so that equal servers compare equal
	}
	switch {
	case to.Scheme != "https" && to.Scheme != "http" || to.Host == "":
		return nil, remote.Refuse("%s redirects to what is neither https:// nor http://", from.Host)
	case to.Scheme == "http" && from.Scheme == "https":
		return nil, remote.Refuse("%s redirects from https:// to http:// at %s, where anybody on the way could change the bytes", from.Host, to.Host)
	}
	// Credentials in a redirect would be sent on to its target.
	to.User, to.Fragment, to.RawFragment = nil, "", ""
	return to, nil
}
