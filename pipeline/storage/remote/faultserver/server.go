// Package faultserver is a web server for tests that misbehaves as a test specifies: it answers
// late or not at all, breaks off, or sends something else than was requested. The bytes of its
// objects are computed, and it logs its requests. Source is a simple remote.Source for it.
//
//	server := faultserver.New()
//	server.Put("a.tar", 1<<20)
//	server.On(faultserver.Path("a.tar"), faultserver.Status(503, "SlowDown")).Times(3)
//	source := faultserver.Connect(t, server)
package faultserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// Server is an http.Handler. Objects and rules may be changed at any time.
//
//	GET /PATH                     an object, or a range of it
//	HEAD /PATH
//	GET /?list=1&after=TOKEN      a page of the listing, as JSON
//	GET /resolve/PATH             302 to /signed/PATH?signature=…
type Server struct {
	closed    chan struct{} // closed by close: nothing waits any more
	closeOnce sync.Once

	mu        sync.Mutex
	objects   map[string]*object
	rules     []*Rule
	log       []Request
	pageKeys  int
	token     string // required in requests; "": none
	signature int
}

type object struct {
	size     int64
	version  int
	data     []byte // nil: computed
	modified time.Time
	archived bool
	bare     bool // neither ETag nor Last-Modified
	dated    bool // only Last-Modified
	stamped  bool // its ETag is made from time and size
}

// epoch is the base of objects' modification times.
var epoch = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// New returns a server without objects.
func New() *Server {
	return &Server{objects: map[string]*object{}, pageKeys: 1000, closed: make(chan struct{})}
}

// close ends everything that waits: a server does not notice that a client leaves if the client has
// sent another request before.
func (s *Server) close() { s.closeOnce.Do(func() { close(s.closed) }) }

// Put creates an object with computed bytes, or changes its size.
func (s *Server) Put(path string, sizeBytes int64) {
	s.change(path, func(o *object) { o.size, o.data = sizeBytes, nil })
}

// PutBytes creates an object with the given bytes, which the caller must not change.
func (s *Server) PutBytes(path string, data []byte) {
	s.change(path, func(o *object) { o.size, o.data = int64(len(data)), data })
}

// Change gives an object other bytes, and a new version.
func (s *Server) Change(path string) { s.change(path, func(*object) {}) }

// Archive makes an object unreadable.
func (s *Server) Archive(path string) { s.change(path, func(o *object) { o.archived = true }) }

// Bare removes ETag and Last-Modified from an object.
func (s *Server) Bare(path string) { s.change(path, func(o *object) { o.bare = true }) }

// Dated removes the ETag from an object.
func (s *Server) Dated(path string) { s.change(path, func(o *object) { o.dated = true }) }

// Write gives an object other bytes, a modification time, and the ETag that nginx would use: made
// from that time, in seconds, and its size.
func (s *Server) Write(path string, at time.Time) {
	s.change(path, func(o *object) { o.modified, o.stamped = at, true })
}

func (s *Server) change(path string, how func(*object)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[path]
	if o == nil {
		o = &object{}
		s.objects[path] = o
	}
	o.version++
	o.modified = epoch.Add(time.Duration(o.version) * time.Minute)
	how(o)
}

// Delete removes an object.
func (s *Server) Delete(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, path)
}

// SetPageKeys sets how many keys a page of the listing has; the default is 1000.
func (s *Server) SetPageKeys(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pageKeys = n
}

// SetToken sets the token that requests need from now on. Others get 403 ExpiredToken.
func (s *Server) SetToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

// ExpireSignatures invalidates all URLs that redirects have led to.
func (s *Server) ExpireSignatures() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signature++
}

// Bytes returns the bytes [off, off + n) of an object as it is now.
func (s *Server) Bytes(path string, off, n int64) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[path].bytes(path, off, n)
}

func (o *object) bytes(path string, off, n int64) []byte {
	p := make([]byte, n)
	if o.data != nil {
		copy(p, o.data[off:])
		return p
	}
	Fill(p, path, o.version, off)
	return p
}

func (o *object) etag(path string) string {
	if o.stamped {
		return fmt.Sprintf(`"%x-%x"`, o.modified.Unix(), o.size)
	}
	var p [16]byte
	Fill(p[:], "etag of "+path, o.version, 0)
	return fmt.Sprintf(`"%x"`, p)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	reply, faults := s.answer(r)
	for _, fault := range faults {
		fault(reply)
	}
	s.mu.Lock()
	s.log[reply.Request.N].Status = reply.Status
	s.mu.Unlock()
	reply.write(w, r)
}

// answer makes the correct reply, logs the request, and finds the faults to apply.
func (s *Server) answer(r *http.Request) (*Reply, []Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := Request{
		N: len(s.log), Method: r.Method, Path: strings.TrimPrefix(r.URL.Path, "/"), Query: r.URL.RawQuery, Begin: -1, End: -1,
		Authorization: r.Header.Get("Authorization"), Connection: r.RemoteAddr, At: time.Now(),
	}
	reply := &Reply{Status: 200, Header: http.Header{}, StopAfter: -1, closed: s.closed}
	switch {
	case s.token != "" && !strings.HasPrefix(asked.Path, "signed/") && asked.Authorization != "Bearer "+s.token:
		reply.fail(403, remote.CodeExpired)
	case r.URL.Query().Has("list"):
		asked.Method = "LIST"
		s.page(reply, r.URL.Query().Get("after"))
	case strings.HasPrefix(asked.Path, "resolve/"):
		asked.Method = "RESOLVE"
		asked.Path = strings.TrimPrefix(asked.Path, "resolve/")
		reply.Status = 302
		reply.Header.Set("Location", fmt.Sprintf("/signed/%s?signature=%d", (&url.URL{Path: asked.Path}).EscapedPath(), s.signature))
	default:
		var signed bool
		if asked.Path, signed = strings.CutPrefix(asked.Path, "signed/"); signed && r.URL.Query().Get("signature") != strconv.Itoa(s.signature) {
			reply.fail(403, "")
			break
		}
		s.object(reply, r, &asked)
	}
	reply.Request = asked
	s.log = append(s.log, asked)
	var faults []Fault
	for _, rule := range s.rules {
		if rule.applies(asked) {
			faults = append(faults, rule.fault)
		}
	}
	return reply, faults
}

// object answers a request for an object, as a correct server does.
func (s *Server) object(reply *Reply, r *http.Request, asked *Request) {
	o := s.objects[asked.Path]
	if o == nil {
		reply.fail(404, "NoSuchKey")
		return
	}
	now := *o // faults use it after the lock is released, when the object may have changed: a reply is for one version
	o = &now
	tag, date := o.etag(asked.Path), o.modified.Format(http.TimeFormat)
	if !o.bare {
		reply.Header.Set("Last-Modified", date)
		if !o.dated {
			reply.Header.Set("ETag", tag)
		}
	}
	begin, end := int64(0), o.size
	if span, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok {
		first, last, _ := strings.Cut(span, "-")
		begin, _ = strconv.ParseInt(first, 10, 64)
		if last != "" {
			l, _ := strconv.ParseInt(last, 10, 64)
			end = min(l+1, o.size)
		}
		asked.Begin, asked.End, reply.ranged = begin, end, true
	}
	path := asked.Path
	reply.head = r.Method == http.MethodHead
	reply.sizeBytes, reply.part = o.size, func(off, n int64) []byte { return o.bytes(path, off, n) }
	want, since := r.Header.Get("If-Match"), r.Header.Get("If-Unmodified-Since")
	switch {
	case want != "" && want != tag || since != "" && since != date:
		reply.Precondition = true
		reply.right = func() { reply.send(o, path, begin, end) }
		reply.fail(412, "PreconditionFailed")
	case o.archived:
		reply.fail(403, "InvalidObjectState")
	case reply.ranged && begin >= end:
		reply.fail(416, "InvalidRange")
		reply.Header.Set("Content-Range", fmt.Sprintf("bytes */%d", o.size))
	default:
		reply.send(o, path, begin, end)
	}
}

// page answers a request for a page of the listing.
func (s *Server) page(reply *Reply, after string) {
	var keys []string
	for key := range s.objects {
		if key > after {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	var p page
	if len(keys) > s.pageKeys {
		keys = keys[:s.pageKeys]
		p.Next = keys[len(keys)-1]
	}
	for _, key := range keys {
		o := s.objects[key]
		l := item{Key: url.PathEscape(key), Size: o.size, Archived: o.archived}
		if !o.bare {
			l.Modified = o.modified
			if !o.dated {
				l.ETag = o.etag(key)
			}
		}
		p.Items = append(p.Items, l)
	}
	reply.Body, _ = json.Marshal(p)
}

// page is a page of a listing, as it is sent.
type page struct {
	Items []item
	Next  string
}

type item struct {
	Key      string // with percent signs, as S3's encoding-type=url
	Size     int64
	ETag     string
	Modified time.Time
	Archived bool
}
