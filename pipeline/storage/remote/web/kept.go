package web

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

const (
	// keptAge is how long to keep the target of a redirect without an expiry time.
	keptAge = 10 * time.Minute
	// keptMargin is how long before its expiry a target is requested again.
	keptMargin = 10 * time.Second
	// maxKept bounds how many targets are kept. Each takes about 1 KiB.
	maxKept = 4096
	// turnTime bounds how long to wait for another request that asks the server for a file's
	// target. A request takes about a tenth of that; after it, each makes its own.
	turnTime = time.Second
)

// kept stores the targets that redirects of files have led to, such as signed URLs: requesting them
// for each range would double the number of requests, and hubs allow only a few per second. A
// target belongs to one version of its file. It is used until it expires, or its answer shows that
// it can't be used. It is safe for concurrent use.
type kept struct {
	now func() time.Time

	mu sync.Mutex
	of map[string]*redirected // by path
}

// redirected is a file for which the server redirects.
type redirected struct {
	turn    chan struct{} // holds a value while a request asks the server for the target
	at      *url.URL      // nil: unknown
	version remote.Validator
	until   time.Time
	brief   bool // targets expire too soon to be used again, so waiting for one is useless
}

func newKept() *kept { return &kept{now: time.Now, of: make(map[string]*redirected)} }

// learn records that the server redirects a file.
func (k *kept) learn(path string) *redirected {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.of[path]
	if r == nil {
		for other := range k.of { // any of them: the next request for it asks its server
			if len(k.of) < maxKept {
				break
			}
			delete(k.of, other)
		}
		r = &redirected{turn: make(chan struct{}, 1)}
		k.of[path] = r
	}
	return r
}

// find returns the target for a version of a file, or nil if the server must be asked. Then the
// caller calls leave after the answer: other requests for the file wait for that, so that only one
// of them asks.
func (k *kept) find(ctx context.Context, path string, v remote.Validator) (at *url.URL, leave func()) {
	r, at := k.look(path, v)
	if r == nil || at != nil {
		return at, func() {}
	}
	bound := time.NewTimer(turnTime)
	defer bound.Stop()
	select {
	case r.turn <- struct{}{}:
	case <-bound.C:
		return nil, func() {}
	case <-ctx.Done():
		return nil, func() {} // the request fails on its own
	}
	if _, at = k.look(path, v); at != nil {
		<-r.turn
		return at, func() {}
	}
	return nil, func() { <-r.turn }
}

func (k *kept) look(path string, v remote.Validator) (*redirected, *url.URL) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.of[path]
	if r != nil && r.brief {
		return nil, nil
	}
	if r == nil || r.at == nil || r.version != v || !k.now().Before(r.until) {
		return r, nil
	}
	return r, r.at
}

// keep records the target for a version of a file.
func (k *kept) keep(path string, at *url.URL, v remote.Validator) {
	r := k.learn(path)
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	r.at, r.version, r.until = at, v, now.Add(keptAge)
	if end, ok := expiry(at.Query()); ok {
		r.until = end.Add(-keptMargin)
	}
	r.brief = !now.Before(r.until)
}

// forget drops a target that can't be used, unless another has replaced it.
func (k *kept) forget(path string, at *url.URL) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.of[path]; r != nil && r.at == at {
		r.at = nil
	}
}

// expiry returns when a signed URL expires according to its query, and whether the query contains
// that. It knows the URLs of CloudFront (and older ones of S3), of S3 and Google, and of Azure.
func expiry(query url.Values) (time.Time, bool) {
	if at, err := strconv.ParseInt(query.Get("Expires"), 10, 64); err == nil {
		return time.Unix(at, 0), true
	}
	for _, by := range []string{"X-Amz-", "X-Goog-"} {
		signed, err1 := time.Parse("20060102T150405Z", query.Get(by+"Date"))
		seconds, err2 := strconv.ParseUint(query.Get(by+"Expires"), 10, 31)
		if err1 == nil && err2 == nil {
			return signed.Add(time.Duration(seconds) * time.Second), true
		}
	}
	if at, err := time.Parse(time.RFC3339, query.Get("se")); err == nil {
		return at, true
	}
	return time.Time{}, false
}

// get requests a range of a version of a file from where a redirect has led before, if that is
// known. If the target rejects it, or has another version, the server is asked again.
func (s *Source) get(ctx context.Context, path string, v remote.Validator, off, n int64) (*http.Response, error) {
	named, err := s.address(path)
	if err != nil {
		return nil, err
	}
	at, leave := s.kept.find(ctx, path, v)
	for range 2 { // if another request has got a new target, try that
		if at == nil {
			break
		}
		resp, err := s.askAt(ctx, named, at, http.MethodGet, v, off, n)
		if err != nil {
			s.kept.forget(path, at)
			return nil, err
		}
		switch verdict(path, resp, v) {
		case answers:
			resp.Body = &watched{ReadCloser: resp.Body, failed: func() { s.kept.forget(path, at) }}
			return resp, nil
		case fails:
			s.kept.forget(path, at)
			return resp, nil
		case throttles:
			return resp, nil
		}
		Discard(resp)
		s.kept.forget(path, at)
		at, leave = s.kept.find(ctx, path, v)
	}
	defer leave()
	return s.ask(ctx, http.MethodGet, path, v, off, n)
}

// verdict returns what an answer for a file means for the target that gave it.
func verdict(path string, resp *http.Response, v remote.Validator) judged {
	switch status := resp.StatusCode; {
	case status == http.StatusOK || status == http.StatusPartialContent:
		if remote.AnswerOf(resp, v).Validator != v || page(path, resp) != "" {
			return refuses
		}
		return answers
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		return throttles
	case status >= 500 || status == http.StatusRequestTimeout:
		return fails
	}
	return refuses
}

type judged int

const (
	answers   judged = iota
	throttles        // it is the right one, and overloaded
	fails            // another may work: the next attempt asks the server for one
	refuses          // ask the server for another at once
)

// watched is the body of an answer. failed is called if it breaks off or hangs.
type watched struct {
	io.ReadCloser
	failed func()
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		w.failed()
	}
	return n, err
}
