package probe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/s3"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/web"
)

// Options are the settings for a service, from spec.Remote.
type Options struct {
	Region, Endpoint         string
	Addressing               string
	Anonymous, RequesterPays bool
	CAFile, AuthFile         string
	Unversioned              bool

	// Credentials is shared by several services; the caller gets it from NewCredentials and closes
	// it after them. nil: each service has its own.
	Credentials *s3.Credentials
	namedOnly   bool // as in web.Options
	// Trouble, if set, is called when a request is not answered for some seconds.
	Trouble func(remote.Trouble)
}

// Service is a dataset's root at a service, opened to examine it. It must not be used concurrently,
// except for Close.
type Service struct {
	source    remote.Source
	bucket    *s3.Source // nil for a web server
	transport *web.Transport
	heard     *heard
	object    string // the object that the name refers to; "": use the listing
	host      string // name of the host, for messages

	credentials *s3.Credentials // nil for a web server
	own         *s3.Credentials // nil if they are shared, or there are none
	trouble     func(remote.Trouble)
}

// NewCredentials returns Credentials for all services of a command, so that credentials are looked
// for once.
func NewCredentials() (*s3.Credentials, error) { return s3.NewCredentials(keysPatience) }

// sumsTimeout is how long to ask a service that does not answer for checksums.
const sumsTimeout = 20 * time.Second

// Bounds on listing to find objects to read.
const (
	mostObjects = 1024
	mostPages   = 64
)

// Open opens the service of a dataset's name. It may make a request to find out what the name
// refers to.
func Open(ctx context.Context, name string, o Options) (*Service, error) {
	parsed, err := target.Parse(name)
	if err != nil {
		return nil, err
	}
	return open(ctx, parsed, o)
}

// OpenFolder opens a folder whose objects are known by their paths. url is a canonical URL ending
// in a slash, as it is printed. It makes no request. A bucket is looked up at the service of
// Options and the environment, whatever service the URL contains: credentials are sent only where
// the user wants. The result's Name shows whether it is the same service.
func OpenFolder(ctx context.Context, url string, o Options) (*Service, error) {
	if strings.HasPrefix(url, "http") {
		url += "any" // a web server's folder alone is not a valid URL
	}
	parsed, err := target.Parse(url)
	if err != nil {
		return nil, err
	}
	if w := parsed.Web; w != nil {
		w.Names, w.List = nil, false
	}
	if b := parsed.Bucket; b != nil {
		b.Endpoint = ""
	}
	o.namedOnly = true // the caller opens folders of several hosts
	return open(ctx, parsed, o)
}

func open(ctx context.Context, parsed target.Target, o Options) (s *Service, err error) {
	s = &Service{trouble: o.Trouble}
	trust := web.Settings{CAFile: o.CAFile}
	if parsed.Bucket != nil {
		if trust, err = s3.Trust(trust.CAFile); err != nil {
			return nil, err
		}
	}
	if s.transport, err = web.NewTransport(trust); err != nil {
		return nil, err
	}
	s.heard = &heard{below: s.transport}
	if parsed.Bucket != nil {
		err = s.openBucket(ctx, *parsed.Bucket, o)
	} else {
		s.host = parsed.Web.Host
		err = s.patiently(ctx, func(ctx context.Context) (err error) {
			s.source, err = web.Open(ctx, *parsed.Web, web.Options{Unversioned: o.Unversioned, AuthFile: o.AuthFile, NamedOnly: o.namedOnly, Transport: s.heard})
			return err
		})
	}
	if err != nil {
		if s.own != nil {
			s.own.Close()
		}
		s.transport.Close()
		return nil, remote.Explain(err)
	}
	return s, nil
}

func (s *Service) openBucket(ctx context.Context, b target.Bucket, o Options) (err error) {
	asked := s3.Options{Region: o.Region, Endpoint: o.Endpoint, Addressing: o.Addressing, Anonymous: o.Anonymous, RequesterPays: o.RequesterPays, Transport: s.heard}
	if s.host, _, err = s3.Locate(b, asked); err != nil {
		return err
	}
	if s.credentials = o.Credentials; s.credentials == nil {
		if s.own, err = NewCredentials(); err != nil {
			return err
		}
		s.credentials = s.own
	}
	asked.Credentials = s.credentials
	return s.patiently(ctx, func(ctx context.Context) (err error) {
		s.bucket, s.object, err = s3.Open(ctx, b, asked)
		s.source = s.bucket
		return err
	})
}

// Sums describes an object of the root, by its path, and returns the checksums that the service
// has.
func (s *Service) Sums(ctx context.Context, path string) (l remote.Listed, sums remote.Sums, err error) {
	c := remote.DefaultConfig()
	c.ReadTimeout = sumsTimeout
	err = remote.Try(ctx, c, func(ctx context.Context) error {
		l, sums, err = s.source.(remote.Summer).Sums(ctx, path)
		return err
	})
	return l, sums, remote.Explain(err)
}

// Close closes connections. No request may be running.
func (s *Service) Close() error {
	err := s.source.Close()
	if s.own != nil {
		s.own.Close()
	}
	s.transport.Close()
	return err
}

// Name returns the canonical URL of the root, without secrets.
func (s *Service) Name() string { return s.source.Name() }

// Kind returns the kind of profile for the service.
func (s *Service) Kind() storage.Kind {
	if s.bucket != nil {
		return storage.KindObject
	}
	return storage.KindWeb
}

// ErrNothing means that a listing has no object that is not empty.
var ErrNothing = errors.New("there are no files with bytes in them")

// Objects returns some objects of the dataset, the largest first, from the first pages of its
// listing. There is at least one.
func (s *Service) Objects(ctx context.Context) ([]remote.Listed, error) {
	if s.object != "" {
		var l remote.Listed
		err := s.patiently(ctx, func(ctx context.Context) (err error) {
			l, err = s.source.Head(ctx, s.object)
			return err
		})
		if err != nil {
			return nil, remote.Explain(err)
		}
		return []remote.Listed{l}, nil
	}
	var mu sync.Mutex
	var found []remote.Listed
	pages := []string{""}
	for asked := 0; len(pages) > 0 && asked < mostPages && len(found) < mostObjects; asked++ {
		var next []string
		err := s.patiently(ctx, func(ctx context.Context) (err error) {
			next, err = s.source.List(ctx, pages[0], func(l remote.Listed) error {
				mu.Lock()
				defer mu.Unlock()
				if l.SizeBytes > 0 && !l.Archived && !hidden(l.Path) {
					found = append(found, l)
				}
				return nil
			})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", s.Name(), remote.Explain(err))
		}
		pages = append(pages[1:], next...)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: %w", s.Name(), ErrNothing)
	}
	sort.Slice(found, func(i, j int) bool {
		a, b := &found[i], &found[j]
		return a.SizeBytes > b.SizeBytes || a.SizeBytes == b.SizeBytes && a.Path < b.Path
	})
	return found[:min(len(found), mostObjects)], nil
}

// hidden reports whether a name can't be a shard of a dataset.
func hidden(path string) bool {
	return strings.HasSuffix(path, "/") || strings.HasPrefix(path, ".") || strings.Contains(path, "/.")
}

// heard records facts from the service's answers. It is safe for concurrent use.
type heard struct {
	below http.RoundTripper

	mu      sync.Mutex
	host    string        // host of the last request, without port
	answers bool          // it has answered
	skew    time.Duration // the service's clock minus this one, if its answers have dates
	dated   bool
}

// RoundTrip implements http.RoundTripper.
func (h *heard) RoundTrip(request *http.Request) (*http.Response, error) {
	began := time.Now()
	h.mu.Lock()
	h.host = request.URL.Hostname()
	h.mu.Unlock()
	answer, err := h.below.RoundTrip(request)
	if err != nil {
		return answer, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answers = true
	if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		h.skew, h.dated = skewOf(date, began, time.Now()), true
	}
	return answer, nil
}

// skewOf returns by how much the clock of a service is ahead, or 0 if it may be right. date is in
// whole seconds, and was set at some time between began and ended.
func skewOf(date, began, ended time.Time) time.Duration {
	switch {
	case date.After(ended):
		return date.Sub(ended)
	case date.Add(time.Second).Before(began):
		return date.Add(time.Second).Sub(began)
	}
	return 0
}
