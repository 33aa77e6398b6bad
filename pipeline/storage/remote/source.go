package remote

import (
	"context"
	"errors"
	"io"
	"time"
)

// Source is one dataset root at one service, such as a prefix of a bucket or a folder
// of a web server: it makes one request and gives its answer as it came. It never
// retries, never checks, and never follows an object to another version: that is the
// engine's. Safe for concurrent use.
type Source interface {
	// List gives one page of the objects below the root, in no particular order: the
	// first for page "", then those that pages name as the next, in any order and
	// several at a time, until none is named. It calls visit once it has the whole
	// page, so one that fails has visited nothing and may be asked for again; an error
	// of visit is returned as it is. visit may be called by several pages at once.
	// ErrNoListing where there is nothing that could be listed; else as Head, but that
	// errors of one object of several name its path.
	List(ctx context.Context, page string, visit func(Listed) error) (next []string, err error)
	// Head describes one object as it is now. Answers that do not are a *StatusError,
	// which is fs.ErrNotExist where there is no such object. Errors name neither object
	// nor root: the engine does.
	Head(ctx context.Context, path string) (Listed, error)
	// Open asks for n bytes from off on of an object in the version that v names; with
	// n < 0 for all from off on. An answer of any status is no error: errors are those
	// of the connection, and of what was to be sent. They are tried again, but for
	// those that wrap a *Refusal and those about certificates. They name no object. The
	// caller closes the body, which ends when ctx does.
	Open(ctx context.Context, path string, v Validator, off, n int64) (Answer, error)
	// Refresh renews what requests for an object are sent with: credentials, redirects.
	// The engine calls it after a 401 or 403 that may pass, then asks again; for many
	// objects at a time when credentials expire, so the Source renews those once.
	Refresh(ctx context.Context, path string)
	// Name is the canonical URL of the root, without credentials and query: it is
	// printed, logged and hashed.
	Name() string
	// Close lets go of idle connections. No request is under way.
	Close() error
}

// Listed is an object as a listing or a HEAD has it. Path is relative to the root,
// decoded, its components joined by '/'.
type Listed struct {
	Path      string
	SizeBytes int64
	Validator Validator
	Modified  time.Time // zero where the service does not say
	Archived  bool      // it is to be restored before it can be read
	// Variant tells apart what one path stands for, where it is asked for by more than
	// that, such as a query: a digest of it, "" for nothing.
	Variant string
	// Unsettled is for how long from now on a change may not show in Validator; 0: any
	// change shows.
	Unsettled time.Duration
}

// Validator names a version of an object as its service does, with what kind of name it
// is: `"d41d8…"` (a strong ETag, with its quotes), `generation:17…` or
// `modified:Sat, 21 Nov 2026 08:00:00 GMT`. It is never "" in a mount, but where the
// user accepts sizes alone (--unversioned).
type Validator string

// Answer is what a service answers to Open. Begin, End and Total are those of its
// Content-Range, End exclusive, -1 each where it has none or does not say
// (ParseContentRange). Body is never nil.
type Answer struct {
	Body              io.ReadCloser
	Status            int
	Begin, End, Total int64
	Several           bool  // the body is parts, each with a header of its own (multipart/byteranges)
	LengthBytes       int64 // of the body, by its Content-Length; -1: not known
	Validator         Validator
	Modified          time.Time     // zero where the service does not say
	Unsettled         time.Duration // as Listed's
	Encoding          string        // Content-Encoding, "" for none
	Code              string        // the service's own word for an error, such as SlowDown; CodeExpired
	RetryAfter        time.Duration // of Retry-After or RateLimit; 0: it does not say
	// Advice is what to do about a 401 or 403, for people; "" for what is said of buckets.
	Advice string
	// Renewal says, of a 400, 401 or 403, whether other credentials may come.
	Renewal Renewal
	// Page says, for people, that what came is a web page, as of a login, and from where; "" for
	// the object.
	Page string
}

// Renewal says whether what a request was refused for, its credentials, may be others later.
type Renewal int

const (
	// SomeRenewal is of those of which nothing is known: Refresh is called, and then asked again.
	SomeRenewal Renewal = iota
	// NoRenewal is of those that can't change, such as those of the environment.
	NoRenewal
	// LateRenewal is of those that were good, and that something else renews: it may be late.
	LateRenewal
)

// CodeExpired is the Code of a 401 or 403 that Refresh may help. S3 says so itself; a
// Source sets it where it knows: the answer to a signed URL that was redirected to.
const CodeExpired = "ExpiredToken"

// ErrNoListing says that a service can't list what it has: objects must be named.
var ErrNoListing = errors.New("the service can't list what it has")
