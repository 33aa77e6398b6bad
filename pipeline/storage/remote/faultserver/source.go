package faultserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// Source is a remote.Source for a Server. Fields are set before it is used.
type Source struct {
	// Token returns the token to send; Refresh calls it. nil: none is sent.
	Token func() string
	// Renewal is what it returns for rejected credentials.
	Renewal remote.Renewal
	// Resolve requests objects at /resolve/, and remembers the target of the redirect.
	Resolve bool
	// Dial, if not nil, is called before each new connection; its error is returned for the
	// connection.
	Dial func() error

	base   *url.URL
	client *http.Client

	mu        sync.Mutex
	token     string
	signed    map[string]string
	refreshed int
	closed    bool
}

var _ remote.Source = (*Source)(nil)

func newSource(base string) *Source {
	u, err := url.Parse(base)
	if err != nil {
		panic(err)
	}
	u.User = url.UserPassword("someone", "secret-password")
	return &Source{base: u, signed: map[string]string{}, client: &http.Client{
		Transport:     &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 1024, IdleConnTimeout: 30 * time.Second},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Name implements remote.Source.
func (s *Source) Name() string { return "http://" + s.base.Host + "/data" }

// Refreshed returns how often Refresh was called.
func (s *Source) Refreshed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refreshed
}

// Refresh implements remote.Source.
func (s *Source) Refresh(_ context.Context, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refreshed++
	delete(s.signed, path)
	if s.Token != nil {
		s.token = s.Token()
	}
}

// Close implements remote.Source.
func (s *Source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("closed twice")
	}
	s.closed = true
	s.client.CloseIdleConnections()
	return nil
}

// List implements remote.Source.
func (s *Source) List(ctx context.Context, after string, visit func(remote.Listed) error) ([]string, error) {
	r, err := s.do(ctx, http.MethodGet, s.base.String()+"?list=1&secret=query&after="+url.QueryEscape(after), nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Body.Close() }()
	if r.StatusCode != 200 {
		return nil, s.refused(r)
	}
	var p page
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		return nil, fmt.Errorf("read a page: %w", err)
	}
	for i := range p.Items {
		if p.Items[i].Key, err = url.PathUnescape(p.Items[i].Key); err != nil {
			return nil, err
		}
	}
	for _, o := range p.Items {
		l := remote.Listed{Path: o.Key, SizeBytes: o.Size, Modified: o.Modified, Archived: o.Archived, Validator: validator(o.ETag, o.Modified)}
		l.Unsettled = remote.Unsettled(r.Header, l.Modified, l.Validator)
		if err := visit(l); err != nil {
			return nil, err
		}
	}
	if p.Next == "" {
		return nil, nil
	}
	return []string{p.Next}, nil
}

// Head implements remote.Source.
func (s *Source) Head(ctx context.Context, path string) (remote.Listed, error) {
	r, err := s.do(ctx, http.MethodHead, s.url(path), nil)
	if err != nil {
		return remote.Listed{}, err
	}
	_ = r.Body.Close()
	switch r.StatusCode {
	case 200:
	default:
		return remote.Listed{}, s.refused(r)
	}
	modified := lastModified(r.Header)
	l := remote.Listed{Path: path, SizeBytes: r.ContentLength, Modified: modified, Validator: validator(r.Header.Get("ETag"), modified)}
	l.Unsettled = remote.Unsettled(r.Header, l.Modified, l.Validator)
	return l, nil
}

// Open implements remote.Source.
func (s *Source) Open(ctx context.Context, path string, v remote.Validator, off, n int64) (remote.Answer, error) {
	h := http.Header{}
	switch {
	case n >= 0:
		h.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+n-1))
	case off > 0:
		h.Set("Range", fmt.Sprintf("bytes=%d-", off))
	}
	if date, ok := strings.CutPrefix(string(v), "modified:"); ok {
		h.Set("If-Unmodified-Since", date)
	} else if v != "" {
		h.Set("If-Match", string(v))
	}
	target, signed, err := s.resolve(ctx, path)
	if err != nil {
		return remote.Answer{}, err
	}
	r, err := s.do(ctx, http.MethodGet, target, h)
	if err != nil {
		return remote.Answer{}, err
	}
	modified := lastModified(r.Header)
	a := remote.Answer{
		Body: r.Body, Status: r.StatusCode, LengthBytes: r.ContentLength, Modified: modified, Validator: validator(r.Header.Get("ETag"), modified),
		Encoding: r.Header.Get("Content-Encoding"), Code: r.Header.Get("X-Code"), RetryAfter: remote.RetryAfter(r.Header, time.Now()),
		Renewal: s.Renewal,
	}
	a.Several = strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/byteranges")
	a.Unsettled = remote.Unsettled(r.Header, a.Modified, a.Validator)
	a.Begin, a.End, a.Total, _ = remote.ParseContentRange(r.Header.Get("Content-Range"))
	if signed && a.Status == 403 && a.Code == "" {
		a.Code = remote.CodeExpired
	}
	return a, nil
}

// resolve returns the URL to read an object from, and whether it is signed.
func (s *Source) resolve(ctx context.Context, path string) (target string, signed bool, err error) {
	if !s.Resolve {
		return s.url(path), false, nil
	}
	s.mu.Lock()
	target, ok := s.signed[path]
	s.mu.Unlock()
	if ok {
		return target, true, nil
	}
	r, err := s.do(ctx, http.MethodGet, s.url("resolve/"+path), nil)
	if err != nil {
		return "", false, err
	}
	_ = r.Body.Close()
	to, err := url.Parse(r.Header.Get("Location"))
	if r.StatusCode != 302 || err != nil {
		return "", false, remote.Refuse("no redirect")
	}
	target = s.base.ResolveReference(&url.URL{Path: "." + to.Path, RawQuery: to.RawQuery}).String()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signed[path] = target
	return target, true, nil
}

func (s *Source) url(path string) string {
	return s.base.ResolveReference(&url.URL{Path: "./" + path}).String()
}

func (s *Source) do(ctx context.Context, method, target string, h http.Header) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, target, nil)
	if err != nil {
		return nil, err
	}
	if h != nil {
		r.Header = h
	}
	s.mu.Lock()
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	s.mu.Unlock()
	return s.client.Do(r)
}

func (s *Source) refused(r *http.Response) error {
	_, _ = io.Copy(io.Discard, r.Body)
	return &remote.StatusError{Status: r.StatusCode, Code: r.Header.Get("X-Code"), RetryAfter: remote.RetryAfter(r.Header, time.Now()), Renewal: s.Renewal}
}

func validator(tag string, modified time.Time) remote.Validator {
	switch {
	case tag != "":
		return remote.Validator(tag)
	case !modified.IsZero():
		return remote.Validator("modified:" + modified.Format(http.TimeFormat))
	}
	return ""
}

func lastModified(h http.Header) time.Time {
	at, err := http.ParseTime(h.Get("Last-Modified"))
	if err != nil {
		return time.Time{}
	}
	return at.UTC()
}
