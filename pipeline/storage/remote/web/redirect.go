package web

import (
	"context"
	"io"
	"io/fs"
	"net/http"
	"net/url"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
)

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
