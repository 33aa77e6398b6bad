package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
	"github.com/lsiofs/lsiofs/pipeline/storage/s3"
	"github.com/lsiofs/lsiofs/pipeline/storage/web"
)

// Options are how a service is asked. They are those of spec.Remote.
type Options struct {
	Region, Endpoint         string
	Addressing               string
	Anonymous, RequesterPays bool
	CAFile, AuthFile         string
	Unversioned              bool

	// Credentials are those that several services share, made by NewCredentials and closed after them.
	// nil: each finds its own.
	Credentials *s3.Credentials
	namedOnly   bool // as web.Options has it
	// Trouble, if set, is told when a request is not answered for some seconds.
	Trouble func(remote.Trouble)
}

// Service is a dataset's root at a service, opened to be looked at. It is not for
// concurrent use, but for Close.
type Service struct {
	source    remote.Source
	bucket    *s3.Source // nil: it is a web server
	transport *web.Transport
	heard     *heard
	object    string // the one that the name stands for; "": what is listed
	host      string // that is asked, in words

	credentials *s3.Credentials // nil: it is a web server
	own         *s3.Credentials // nil: they are shared, or there are none
	trouble     func(remote.Trouble)
}

// NewCredentials returns credentials for all services of a command: they are looked for once.
func NewCredentials() (*s3.Credentials, error) { return s3.NewCredentials(keysPatience) }

// sumsTimeout is for how long a service that does not answer is asked for checksums.
const sumsTimeout = 20 * time.Second

// Bounds of what is listed to find objects to read.
const (
	mostObjects = 1024
	mostPages   = 64
)

// Open opens the service of a dataset's name. It may make a request, to find out what the
// name stands for.
func Open(ctx context.Context, name string, o Options) (*Service, error) {
	parsed, err := target.Parse(name)
	if err != nil {
		return nil, err
	}
	return open(ctx, parsed, o)
}

// OpenFolder opens a folder of which objects are known by their paths: a canonical URL with a
// slash at its end, as it is printed. It makes no request. A bucket is looked for at the service
// of Options and the environment, whatever service stands in the URL: credentials go where the user
// says. The Name of what is opened tells whether it is the same.
func OpenFolder(ctx context.Context, url string, o Options) (*Service, error) {
	if strings.HasPrefix(url, "http") {
		url += "any" // there is no URL of a web server's folder
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

// Sums describes an object of the root, by its path, and gives the checksums that the service
// tells of it.
func (s *Service) Sums(ctx context.Context, path string) (l remote.Listed, sums remote.Sums, err error) {
	c := remote.DefaultConfig()
	c.ReadTimeout = sumsTimeout
	err = remote.Try(ctx, c, func(ctx context.Context) error {
		l, sums, err = s.source.(remote.Summer).Sums(ctx, path)
		return err
	})
	return l, sums, remote.Explain(err)
}

// Close lets go of connections. No request may be under way.
func (s *Service) Close() error {
	err := s.source.Close()
	if s.own != nil {
		s.own.Close()
	}
	s.transport.Close()
	return err
}

// Name is the canonical URL of the root, without secrets.
func (s *Service) Name() string { return s.source.Name() }

// Kind is the kind of profile that fits the service.
func (s *Service) Kind() profile.Kind {
	if s.bucket != nil {
		return profile.KindObject
	}
	return profile.KindWeb
}

// ErrNothing says that a listing has no object with any bytes.
var ErrNothing = errors.New("there are no files with bytes in them")

// Objects gives some objects of the dataset, the largest first: those of the first pages
// of its listing. There is at least one.
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
	slices.SortStableFunc(found, func(a, b remote.Listed) int {
		return cmp.Or(cmp.Compare(b.SizeBytes, a.SizeBytes), cmp.Compare(a.Path, b.Path))
	})
	return found[:min(len(found), mostObjects)], nil
}

// hidden are names that datasets have no shards of.
func hidden(path string) bool {
	return strings.HasSuffix(path, "/") || strings.HasPrefix(path, ".") || strings.Contains(path, "/.")
}

// heard notes what answers say of the service. Safe for concurrent use.
type heard struct {
	below http.RoundTripper

	mu      sync.Mutex
	host    string        // that was asked last, without port
	answers bool          // it has answered
	skew    time.Duration // the service's clock less this one, where its answers are dated
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

// skewOf is by how much the clock of a service is ahead, 0 where it may be right. date has
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
