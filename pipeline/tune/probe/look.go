package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/s3"
)

// Facts are the results of single requests to a service. Each error belongs to the field before it,
// and contains no secrets.
type Facts struct {
	Name        string
	Host        string
	Addresses   []string // of the host
	LookupErr   error
	Answers     bool        // the host has answered
	Bucket      bool        // it is a bucket, not a web server
	Identity    s3.Identity // of a bucket
	IdentityErr error
	Region      string // of a bucket, "" if unknown

	Object    remote.Listed // the largest one found, which is read
	ObjectErr error

	Heads   []time.Duration // how long each took
	HeadErr error           // of the last one, if it failed
	Gets    []Get
	GetErr  error
	Skew    time.Duration // the service's clock minus this one
	Skewed  bool          // Skew is known
	Ranges  Answered      // the answer for some bytes from the middle of the object
	Version Condition
}

// Get is a request for a range.
type Get struct {
	Bytes            int64
	FirstByte, Whole time.Duration
}

// Answered is the answer of a service, and whether it was right.
type Answered struct {
	Status int // 0: no answer
	Right  bool
	Err    error
}

// Condition is the result of a request for a version that does not exist, which must fail with 412.
type Condition struct {
	Header string // the condition's header, such as If-Match; "" if there is none to send
	Status int
	Err    error
}

const (
	heads    = 20
	gets     = 3
	getBytes = 8 << 20
)

// Part is a part of the facts, which are determined in this order.
type Part int

const (
	Credentials Part = iota
	Objects
	Addresses
	Heads
	Gets
	Ranges
	Versions
	Clock
)

// Look examines a service. It makes about 30 requests and transfers at most 24 MiB. When ctx ends,
// it returns the facts found so far. made, if not nil, is called after each part, with everything
// known by then. Parts that can't be determined are omitted.
func (s *Service) Look(ctx context.Context, made func(Part, Facts)) Facts {
	f := Facts{Name: s.Name(), Bucket: s.bucket != nil}
	tell := func(p Part) {
		if made != nil && ctx.Err() == nil {
			made(p, f)
		}
	}
	if s.bucket != nil {
		f.IdentityErr = s.patiently(ctx, func(ctx context.Context) (err error) {
			f.Identity, err = s.bucket.Identity(ctx)
			return err
		})
		tell(Credentials)
	}
	objects, err := s.Objects(ctx)
	f.ObjectErr = err
	if s.bucket != nil {
		f.Region = s.bucket.Region()
	}
	if err == nil {
		f.Object = objects[0]
	}
	tell(Objects)
	s.findAddresses(ctx, &f)
	tell(Addresses)
	if err == nil {
		for _, look := range []struct {
			ask  func(context.Context, *Facts)
			part Part
		}{{s.timeHeads, Heads}, {s.timeGets, Gets}, {s.askForRange, Ranges}, {s.askForOther, Versions}} {
			look.ask(ctx, &f)
			tell(look.part)
		}
	}
	s.heard.mu.Lock()
	f.Skew, f.Skewed = s.heard.skew, s.heard.dated
	s.heard.mu.Unlock()
	tell(Clock)
	return f
}

func (s *Service) findAddresses(ctx context.Context, f *Facts) {
	s.heard.mu.Lock()
	f.Host, f.Answers = s.heard.host, s.heard.answers
	s.heard.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if f.Host != "" {
		f.Addresses, f.LookupErr = net.DefaultResolver.LookupHost(ctx, f.Host)
	}
}

func (s *Service) timeHeads(ctx context.Context, f *Facts) {
	for range heads {
		bounded, cancel := context.WithTimeout(ctx, patience)
		began := time.Now()
		_, err := s.source.Head(bounded, f.Object.Path)
		took := time.Since(began)
		cancel()
		if err != nil {
			f.HeadErr = remote.Explain(err)
			return
		}
		f.Heads = append(f.Heads, took)
	}
}

func (s *Service) timeGets(ctx context.Context, f *Facts) {
	size := min(getBytes, f.Object.SizeBytes)
	for i := range int64(gets) {
		off := min(i*getBytes, f.Object.SizeBytes-size)
		g, err := s.get(ctx, f.Object, off, size)
		if err != nil {
			f.GetErr = err
			return
		}
		f.Gets = append(f.Gets, g)
	}
}

// get reads a range, and drops the bytes.
func (s *Service) get(ctx context.Context, o remote.Listed, off, n int64) (g Get, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	a, err := s.source.Open(ctx, o.Path, o.Validator, off, n)
	if err != nil {
		return g, remote.Explain(err)
	}
	defer func() { _ = a.Body.Close() }()
	if a.Status != http.StatusPartialContent && (a.Status != http.StatusOK || n != o.SizeBytes) {
		return g, fmt.Errorf("%s: %w", o.Path, &remote.StatusError{Status: a.Status, Code: a.Code, RetryAfter: a.RetryAfter, Advice: a.Advice})
	}
	var first [1]byte
	if _, err = io.ReadFull(a.Body, first[:]); err == nil {
		g.FirstByte = time.Since(began)
		g.Bytes, err = io.Copy(io.Discard, io.LimitReader(a.Body, n-1))
		g.Bytes++
	}
	g.Whole = time.Since(began)
	if err == nil && g.Bytes != n {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return g, fmt.Errorf("%s: %w", o.Path, remote.Explain(err))
	}
	return g, nil
}

// askForRange requests a byte from the middle.
func (s *Service) askForRange(ctx context.Context, f *Facts) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	off := f.Object.SizeBytes / 2
	a, err := s.source.Open(ctx, f.Object.Path, f.Object.Validator, off, 1)
	if err != nil {
		f.Ranges.Err = remote.Explain(err)
		return
	}
	_ = a.Body.Close()
	f.Ranges.Status = a.Status
	f.Ranges.Right = a.Status == http.StatusPartialContent && !a.Several && a.Begin == off && a.End == off+1 && a.Total == f.Object.SizeBytes
}

// askForOther requests a byte of a version that does not exist.
func (s *Service) askForOther(ctx context.Context, f *Facts) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var other remote.Validator
	header := http.Header{}
	f.Object.Validator.SetConditions(header)
	switch {
	case header.Get("If-Match") != "":
		f.Version.Header, other = "If-Match", `"0123456789abcdef0123456789abcdef"`
	case header.Get("If-Unmodified-Since") != "":
		f.Version.Header, other = "If-Unmodified-Since", remote.ModifiedValidator(longAgo)
	default:
		return
	}
	a, err := s.source.Open(ctx, f.Object.Path, other, 0, 1)
	if err != nil {
		f.Version.Err = remote.Explain(err)
		return
	}
	_ = a.Body.Close()
	f.Version.Status = a.Status
}

// longAgo is before the first web servers.
var longAgo = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	// patience bounds one request, or an operation of few requests.
	patience = 30 * time.Second
	// tellAfter is how long to wait for a request before reporting that.
	tellAfter = 3 * time.Second
	// keysPatience is how long to wait for credentials: the user may have to sign in.
	keysPatience = 5 * time.Minute
)

// patiently calls ask with a context that bounds its waiting. It reports long waits, and returns an
// error that explains them if nothing arrives.
func (s *Service) patiently(ctx context.Context, ask func(ctx context.Context) error) error {
	for began := time.Now(); ; {
		err, silent := s.once(ctx, ask)
		if !silent {
			return err
		}
		before := s.before()
		switch {
		case before == "":
			return fmt.Errorf("%s: no answer for %v", s.host, patience)
		case time.Since(began) >= keysPatience:
			return fmt.Errorf("%s did not come within %v", before, keysPatience)
		}
	}
}

// once is one call of ask. It also returns whether nothing has arrived.
func (s *Service) once(ctx context.Context, ask func(ctx context.Context) error) (err error, silent bool) {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if s.trouble != nil {
		timer := time.AfterFunc(tellAfter, func() {
			t := remote.Trouble{For: s.host, Why: fmt.Errorf("no answer for %v", tellAfter), Waited: tellAfter, Left: patience - tellAfter}
			if before := s.before(); before != "" {
				t.For, t.Why, t.Left = before, nil, keysPatience-tellAfter
			}
			s.trouble(t)
		})
		defer timer.Stop()
	}
	err = ask(bounded)
	return err, err != nil && ctx.Err() == nil && errors.Is(bounded.Err(), context.DeadlineExceeded)
}

// before returns what must complete before a request can be sent, or "" for nothing.
func (s *Service) before() string {
	if s.credentials == nil {
		return ""
	}
	return s.credentials.Waiting()
}
