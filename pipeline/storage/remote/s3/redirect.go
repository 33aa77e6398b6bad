package s3

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/web"
)

// maxRedirects is far more than any service needs.
const maxRedirects = 10

// send makes a request at u and follows redirects: some services redirect if another of their nodes
// has the object. It returns the last answer, with the request that it is for.
//
// A signature is for one host, so each request is signed again. A host that is not the service's
// gets no signature and no session token: the query of the redirect has what it needs.
func (s *Source) send(ctx context.Context, at place, method string, u *url.URL, header http.Header) (*http.Response, error) {
	var from []string
	region := at.region
	for sign := !s.options.Anonymous; ; {
		resp, err := s.once(ctx, method, u, header, region, sign)
		if err != nil || !at.leadsOn(resp) {
			return resp, err
		}
		web.Discard(resp)
		to, err := web.Follow(u, resp.Header.Get("Location"))
		if err != nil {
			return nil, err
		}
		from = append(from, u.String())
		switch {
		case slices.Contains(from, to.String()):
			return nil, remote.Refuse("the service redirects in a circle: %s leads back to %s: look at --endpoint", u.Host, to.Host)
		case len(from) > maxRedirects:
			return nil, remote.Refuse("the service redirects more than %d times: the last redirect leads to %s: look at --endpoint", maxRedirects, to.Host)
		}
		if said := resp.Header.Get(regionHeader); said != "" {
			region = said
		}
		sign = !s.options.Anonymous && at.owns(to) && !isSigned(to)
		if sign {
			to.RawPath = escape(to.Path) // the form that is signed
		}
		for _, name := range []string{"Authorization", "X-Amz-Date", "X-Amz-Security-Token", "X-Amz-Content-Sha256"} {
			header.Del(name)
		}
		u = to
	}
}

// once makes one request.
func (s *Source) once(ctx context.Context, method string, u *url.URL, header http.Header, region string, sign bool) (*http.Response, error) {
	request := (&http.Request{
		Method: method, URL: u, Host: u.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if sign {
		value, err := s.keys.get(ctx)
		if err != nil {
			return nil, err
		}
		header.Set("X-Amz-Content-Sha256", nothing)
		request = signer.SignV4(*request, value.AccessKeyID, value.SecretAccessKey, value.SessionToken, region)
	}
	resp, err := s.options.Transport.RoundTrip(request)
	if err != nil {
		return nil, remote.Clean(err)
	}
	resp.Request = request
	return resp, nil
}

// leadsOn reports whether to follow an answer's redirect. If Amazon names another region, later
// requests go there instead (Refresh).
func (p place) leadsOn(resp *http.Response) bool {
	if !web.Redirects(resp.StatusCode) || resp.Header.Get("Location") == "" {
		return false
	}
	region := resp.Header.Get(regionHeader)
	return p.endpoint != nil || region == "" || region == p.region
}

// owns reports whether a URL belongs to the service itself: same host or a subdomain of it, same
// scheme and port.
func (p place) owns(u *url.URL) bool {
	host := strings.ToLower(u.Host)
	if p.endpoint != nil {
		own := p.endpoint.Host
		if short, err := target.Host(p.endpoint.Scheme, own); err == nil {
			own = short // without the scheme's default port, as web.Follow returns it
		}
		return u.Scheme == p.endpoint.Scheme && (host == own || strings.HasSuffix(host, "."+own))
	}
	_, _, amazon := target.Amazon(host)
	return u.Scheme == "https" && amazon
}

// isSigned reports whether a URL has a signature in its query, in addition to which there must be
// no other.
func isSigned(u *url.URL) bool {
	query := u.Query()
	return query.Has("X-Amz-Signature") || query.Has("Signature") || query.Has("X-Goog-Signature")
}
