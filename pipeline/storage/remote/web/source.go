package web

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	gopath "path"

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
