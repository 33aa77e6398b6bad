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

// Options are settings of a Source.
type Options struct {
	// Unversioned accepts files whose versions the server can't tell apart: only a
	// change of their size is then seen.
	Unversioned bool
	// AuthFile has tokens and headers for hosts, besides those of TokenVariable and a .netrc;
	// "" for none.
	AuthFile string
	// NamedOnly leaves out tokens that name no host, where they are for several datasets.
	NamedOnly bool
	// Transport makes the requests. It is the caller's, who closes it after the source.
	Transport http.RoundTripper
}

// Source is a folder of a web server and the files that were named in it.
type Source struct {
	options Options
	web     target.Web
	names   []target.Name
	named   map[string]int // of paths, in names
	kept    *kept
	auth    *authorization
}

var (
	_ remote.Source = (*Source)(nil)
	_ remote.Summer = (*Source)(nil)
)

// Open makes the source of a target. Where that is a list of files, it is fetched, which
// is one request: what fails then may pass, or is a *remote.Refusal.
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

// Name is the URL of the folder.
func (s *Source) Name() string { return s.web.Root() }

// Names are the paths of the files that were named, in that order.
func (s *Source) Names() []string {
	paths := make([]string, len(s.names))
	for i, n := range s.names {
		paths[i] = n.Path
	}
	return paths
}

// Refresh reads the files of tokens and passwords anew. The target of a redirect that refuses is
// asked for anew without it.
func (s *Source) Refresh(context.Context, string) { s.auth.renew() }

// Close has nothing to close: the transport is another's.
func (s *Source) Close() error { return nil }

// Head asks for a file's size and version. A server that refuses HEAD, or does not say
// the size, is asked for the first byte.
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

// Sums implements remote.Summer. A server that refuses HEAD tells none.
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

// firstByte is Head by a GET: 405 and 501 refuse HEAD, and so does 403 of a URL that is
// signed for GET.
func (s *Source) firstByte(ctx context.Context, path string) (remote.Listed, error) {
	resp, err := s.ask(ctx, http.MethodGet, path, "", 0, 1)
	if err != nil {
		return remote.Listed{}, err
	}
	a := s.answer(path, resp, "")
	_ = a.Body.Close() // which closes the connection where the body is more than a byte
	size := int64(-1)
	switch a.Status {
	case http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable:
		size = a.Total
		if a.Status == http.StatusRequestedRangeNotSatisfiable && size != 0 {
			return remote.Listed{}, remote.Refuse("the answer to a request for its first byte is 416 Range Not Satisfiable, which does not say how large it is: look at its server, or at proxies before it")
		}
	case http.StatusOK:
		if a.Encoding == "" { // else it may be encoded on the way
			size = a.LengthBytes
		}
	default:
		return remote.Listed{}, failure(a)
	}
	return s.describe(path, a, size)
}

// page is Answer.Page of an answer for a file: where the name of neither the file nor what
// came in its place is that of a web page, or only one of both is.
func page(path string, resp *http.Response) string {
	ok := resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent
	from := resp.Request.URL
	if !ok || !remote.IsPage(resp.Header) || remote.NamesPage(path) && gopath.Base(path) == gopath.Base(from.Path) {
		return ""
	}
	return fmt.Sprintf("a web page (text/html) of %s came, and no file: the server may ask for a login, or a network before it", from.Host)
}

// describe refuses what can't be read rightly.
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

// Open asks for a range by GET, with If-Match or If-Unmodified-Since, where a redirect for that
// version has led before.
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

// answer is what a request for a file in a version gave.
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

// variant is a digest of the query that a file is asked for with: a server may have
// different files at one path. It says nothing of the query, which may be a signature.
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

// urlFor is a file's URL as it is printed.
func (s *Source) urlFor(path string) string {
	if host, file, is := target.Elsewhere(path); is {
		return host + "/" + target.Escape(file)
	}
	return s.Name() + "/" + target.Escape(path)
}

// address is a file's URL as it is sent.
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
