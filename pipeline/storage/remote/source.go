package remote

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"
)

// Source is the root of one dataset at one service, such as a prefix of a bucket or a folder of a
// web server. It makes one request and returns its answer as it is. It never retries, never checks,
// and never follows an object to another version: the engine does. It is safe for concurrent use.
type Source interface {
	// List lists one page of the objects below the root, in no particular order. The first page is
	// "". Each page returns the names of following pages in next; they may be requested in any
	// order and concurrently, until there are none left. List calls visit once it has the whole
	// page, so a call that failed to get it has visited nothing and may be repeated; an error of
	// visit is returned as it is. visit may be called by several pages at once. List returns
	// ErrNoListing if there is nothing that can be listed; other errors are as in Head, but errors
	// about one of several objects name its path.
	List(ctx context.Context, page string, visit func(Listed) error) (next []string, err error)
	// Head describes one object as it is now. If the answer does not describe it, the error is a
	// *StatusError, which is fs.ErrNotExist if there is no such object. Errors name neither object
	// nor root: the engine adds them.
	Head(ctx context.Context, path string) (Listed, error)
	// Open requests n bytes from off on of an object in version v; n < 0 means everything from off
	// on. An answer of any status is not an error: errors come from the connection, or from
	// preparing the request. They are retried, unless they wrap a *Refusal or are about
	// certificates. They don't name the object. The caller closes the body, which ends when ctx
	// does.
	Open(ctx context.Context, path string, v Validator, off, n int64) (Answer, error)
	// Refresh renews what requests for an object are sent with: credentials, redirects. The engine
	// calls it after a 401 or 403 that may pass, then repeats the request. When credentials expire
	// it is called for many objects at a time, so the Source renews those once.
	Refresh(ctx context.Context, path string)
	// Name returns the canonical URL of the root, without credentials and query: it is printed,
	// logged and hashed.
	Name() string
	// Close closes idle connections. No request is running.
	Close() error
}

// Listed is an object as a listing or a HEAD describes it. Path is relative to the root, decoded,
// with components joined by '/'.
type Listed struct {
	Path      string
	SizeBytes int64
	Validator Validator
	Modified  time.Time // zero if unknown
	Archived  bool      // it must be restored before it can be read
	// Variant distinguishes resources with the same path, if requests contain more than the path,
	// such as a query: it is a digest of that, "" for nothing.
	Variant string
	// Unsettled is how long from now on a change may not show in Validator; 0: any change shows.
	Unsettled time.Duration
}

// Validator is a version of an object as its service names it, including the kind of name:
// `"d41d8…"` (a strong ETag, with its quotes), `generation:17…` or `modified:Sat, 21 Nov 2026
// 08:00:00 GMT`. In a mount it is "" only if the user accepts sizes alone (--unversioned).
type Validator string

// Answer is a service's answer to Open. Begin, End and Total are from its Content-Range, End
// exclusive, each -1 if missing (ParseContentRange). Body is never nil.
type Answer struct {
	Body              io.ReadCloser
	Status            int
	Begin, End, Total int64
	Several           bool  // the body is parts, each with its own header (multipart/byteranges)
	LengthBytes       int64 // of the body, by its Content-Length; -1: unknown
	Validator         Validator
	Modified          time.Time     // zero if unknown
	Unsettled         time.Duration // as in Listed
	Encoding          string        // Content-Encoding, "" for none
	Code              string        // the service's own code for an error, such as SlowDown; CodeExpired
	RetryAfter        time.Duration // from Retry-After or RateLimit; 0: none
	// Advice is what a user should do about a 401 or 403; "" for the advice for buckets.
	Advice string
	// Renewal applies to a 400, 401 or 403: it is whether other credentials may become available.
	Renewal Renewal
	// Page describes, for users, a web page that came instead of the object, such as a login page,
	// and its origin; "" for the object.
	Page string
}

// Renewal is whether rejected credentials may be replaced by others later.
type Renewal int

const (
	// SomeRenewal means that nothing is known: the engine calls Refresh and repeats the request.
	SomeRenewal Renewal = iota
	// NoRenewal means that they can't change, such as credentials from the environment.
	NoRenewal
	// LateRenewal means that they were valid before, and that something else renews them, possibly
	// late.
	LateRenewal
)

// CodeExpired is the Code of a 401 or 403 for which Refresh may help. S3 sends it; a Source sets it
// if it knows, for answers to a signed URL that a request was redirected to.
const CodeExpired = "ExpiredToken"

// ErrNoListing means that a service can't list its objects: they must be named.
var ErrNoListing = errors.New("the service can't list what it has")

// mostNamed is how many of the keys that were left out are named.
const mostNamed = 3

// notes collects what a listing reports to the user.
type notes struct {
	left  int      // objects left out because their keys are not paths
	first []string // the first of those keys

	files int       // files whose versions may consist of their times
	time  time.Time // of all of them
	mixed bool      // their times differ, or other files exist
}

// leftOut notes an object whose key is not a path. Empty objects whose keys end in '/' represent
// folders and are not noted. It reports whether the object was noted.
func (n *notes) leftOut(o Listed) bool {
	if o.SizeBytes == 0 && strings.HasSuffix(o.Path, "/") || o.Path == "" {
		return false
	}
	n.left++
	at, _ := slices.BinarySearch(n.first, o.Path)
	n.first = slices.Insert(n.first, at, o.Path)
	n.first = n.first[:min(len(n.first), mostNamed)]
	return true
}

// taken notes an object that is visited.
func (n *notes) taken(o Listed) {
	if n.files++; n.files == 1 {
		n.time = o.Modified
	}
	n.mixed = n.mixed || o.Modified.IsZero() || !maybeTime(o.Validator) || !o.Modified.Equal(n.time)
}

// tell logs the notes. Each message is logged once per engine, however often it lists.
func (s *Storage) tell(n *notes) {
	if s.config.Log == nil {
		return
	}
	if n.left > 0 {
		s.toldLeft.Do(func() {
			s.config.Log.Warn("objects are left out, since empty parts, . and .. in their keys make them no paths: copy them to other keys", "objects", n.left, "first", n.first)
		})
	}
	if n.files > 1 && !n.mixed {
		s.toldTimes.Do(func() {
			s.config.Log.Warn("all files have the same time, by which the server tells versions apart: one that is replaced by another of that time and its size looks unchanged, so give it another time",
				"files", n.files, "time", n.time)
		})
	}
}
