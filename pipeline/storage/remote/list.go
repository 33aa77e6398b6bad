package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// List implements storage.Storage. Listings of services are flat, so rejecting a directory in match
// saves no requests. List skips keys that are not paths, such as those with empty components, "."
// or "..", which it reports (Config.Log); empty objects whose keys end in '/', which some tools
// write for folders; and names that begin with a dot. Objects that can't be read, because they are
// archived or have no version, are errors. Errors don't name the root, which the caller knows.
func (s *Storage) List(ctx context.Context, match func(path string, isDir bool) bool, visit func(storage.Object) error) error {
	if s.config.Known != nil {
		return s.listKnown(match, visit)
	}
	l := &listing{s: s, match: match, visit: visit, entered: true}
	err := walk(ctx, func(ctx context.Context, page string) (next []string, err error) {
		failed := s.call(ctx, "", func(ctx context.Context) error {
			s.stats.askedList()
			if next, err = s.source.List(ctx, page, l.visited); l.failed() {
				return nil
			}
			return err
		})
		return next, cmp.Or(failed, err)
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
		return l.err
	case errors.Is(err, fs.ErrNotExist) && !refused(err):
		return fmt.Errorf("list: %w: there is no such bucket or folder: look at its name", err)
	case err != nil:
		return fmt.Errorf("list: %w", err)
	}
	l.s.tell(&l.notes)
	if err := l.archives(); err != nil {
		return err
	}
	s.omitted.Store(&l.omitted)
	return l.grow(ctx)
}

// listing is one call of List.
type listing struct {
	s     *Storage
	match func(path string, isDir bool) bool
	visit func(storage.Object) error

	mu  sync.Mutex
	err error // from visit, or about an object: it ends the listing

	omitted []storage.Omission
	dirs    []string // of the last path, as far as match was asked about them
	entered bool     // match accepted all of them

	young []young // visited at the end
	notes notes

	archived      int
	archivedBytes int64
	firstArchived string
}

// visited is called for each object of a page.
func (l *listing) visited(o Listed) error {
	u := usable(o.Path)
	if u == hidden {
		l.omit(o.Path)
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	if u == notAPath {
		l.s.stats.passedOver()
		if l.notes.leftOut(o) && len(l.omitted) < storage.MaxOmitted {
			l.omitted = append(l.omitted, storage.Omission{Path: o.Path, Reason: storage.OmittedKey})
		}
		return nil
	}
	if !l.enters(o.Path) || !l.match(o.Path, false) {
		return nil
	}
	if o.Archived {
		if l.archived++; l.archived == 1 {
			l.firstArchived = o.Path
		}
		l.archivedBytes += o.SizeBytes
		return nil
	}
	if l.err = refusal(o, l.s.config.Unversioned); l.err != nil {
		l.err = fmt.Errorf("list: %s: %w", o.Path, l.err)
		return l.err
	}
	l.notes.taken(o)
	if o.Unsettled > 0 {
		l.young = append(l.young, young{o, time.Now().Add(o.Unsettled)})
		return nil
	}
	l.err = l.visit(l.s.object(o))
	return l.err
}

// omit notes an object that is left out because a component of its path begins with a dot. If that
// is a folder, it notes the folder, once.
func (l *listing) omit(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := 0
	for path[at] != '.' {
		at += strings.IndexByte(path[at:], '/') + 1
	}
	if end := strings.IndexByte(path[at:], '/'); end >= 0 {
		path = path[:at+end+1]
	}
	if n := len(l.omitted); n < storage.MaxOmitted && (n == 0 || l.omitted[n-1].Path != path) {
		l.omitted = append(l.omitted, storage.Omission{Path: path, Reason: storage.OmittedHidden})
	}
}

// Omitted implements storage.Caps.
func (s *Storage) Omitted() []storage.Omission {
	if list := s.omitted.Load(); list != nil {
		return *list
	}
	return nil
}

func (l *listing) failed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err != nil
}

// enters asks match about the directories of a path, except the ones shared with the previous path:
// services list by name.
func (l *listing) enters(path string) bool {
	dirs := strings.Split(path, "/")
	dirs = dirs[:len(dirs)-1]
	same := 0
	for same < min(len(dirs), len(l.dirs)) && dirs[same] == l.dirs[same] {
		same++
	}
	if same == len(l.dirs) && !l.entered {
		return false // it is in a directory that is not entered
	}
	l.dirs, l.entered = append(l.dirs[:same:same], dirs[same:]...), true
	for i := same; i < len(dirs); i++ {
		if !l.match(strings.Join(dirs[:i+1], "/"), true) {
			l.dirs, l.entered = l.dirs[:i+1], false
			return false
		}
	}
	return true
}

// archives returns the error for archived objects. Restoring them takes hours, so one error covers
// them all.
func (l *listing) archives() error {
	if l.archived == 0 {
		return nil
	}
	return fmt.Errorf("list: archived objects can't be read, here %d of %s together, such as %s: restore them, or leave them out by a pattern",
		l.archived, humanize.IBytes(uint64(l.archivedBytes)), l.firstArchived)
}

type use int

const (
	isPath use = iota
	hidden
	notAPath
)

// usable classifies a key by its components.
func usable(key string) use {
	u := isPath
	for component := range strings.SplitSeq(key, "/") {
		switch {
		case component == "" || component == "." || component == ".." || strings.ContainsRune(component, 0):
			return notAPath
		case component[0] == '.':
			u = hidden
		}
	}
	return u
}

// object records a listed object, and returns it in the form that the rest of lsiofs uses.
func (s *Storage) object(l Listed) storage.Object {
	o := storage.Object{Path: l.Path, SizeBytes: l.SizeBytes, Version: version(l)}
	if known, ok := s.listed.withoutVersion(o); ok {
		return known
	}
	s.listed.put(o, l.Validator)
	return o
}

// Stat implements storage.Storage. The object that it returns can be read from then on; an object
// that was listed earlier only if it is equal.
func (s *Storage) Stat(ctx context.Context, path string) (storage.Object, error) {
	if i, ok := s.knownAt[path]; ok {
		return s.known(s.config.Known.Objects[i]), nil
	}
	l, err := s.describe(ctx, path)
	if errors.Is(err, fs.ErrNotExist) && !refused(err) {
		err = fmt.Errorf("%w: look at its name, and at the folder's", err)
	}
	if err != nil {
		return storage.Object{}, fmt.Errorf("%s: %w", path, err)
	}
	return s.object(l), nil
}

// describe returns an object that can be read, as it is now.
func (s *Storage) describe(ctx context.Context, path string) (Listed, error) {
	l, err := s.head(ctx, path)
	if err != nil {
		return l, err
	}
	if l.Path = path; l.Archived {
		return l, errors.New("the object is archived: restore it first")
	}
	return l, refusal(l, s.config.Unversioned)
}

func (s *Storage) head(ctx context.Context, path string) (l Listed, err error) {
	if usable(path) == notAPath {
		return l, fs.ErrNotExist
	}
	err = s.call(ctx, path, func(ctx context.Context) (err error) {
		l, err = s.source.Head(ctx, path)
		if status, ok := errors.AsType[*StatusError](err); ok && (status.Status == 405 || status.Status == 501) {
			s.stats.asked(status.Status)
			l, err = s.headByRead(ctx, path)
		}
		return err
	})
	return l, err
}

// headByRead describes an object by reading its first byte, for servers that don't support HEAD.
func (s *Storage) headByRead(ctx context.Context, path string) (Listed, error) {
	a, err := s.source.Open(ctx, path, "", 0, 1)
	if err != nil {
		return Listed{}, err
	}
	_ = a.Body.Close()
	l := Listed{Path: path, SizeBytes: -1, Validator: a.Validator, Modified: a.Modified, Unsettled: a.Unsettled}
	switch {
	case a.Status == 206:
		l.SizeBytes = a.Total
	case a.Status == 200 && a.Encoding == "":
		l.SizeBytes = a.LengthBytes
	case a.Status == 416 && a.Total == 0:
		l.SizeBytes = 0
	case a.Status != 200:
		return l, &StatusError{Status: a.Status, Code: a.Code, RetryAfter: a.RetryAfter, Advice: a.Advice, Renewal: a.Renewal}
	}
	return l, nil
}

// firstContact is how long to keep trying to reach a host that has never answered: its name or port
// may be wrong, and then readers should not have to wait for the whole timeout. It gives a service
// that is started together with the mount time to come up. firstLookup is the same for a name that
// is not found: the resolvers of clusters and laptops report for some seconds that a host does not
// exist.
const (
	firstContact = 20 * time.Second
	firstLookup  = 15 * time.Second
)

// contact returns how long to retry an error that may come from a wrong name or port, and advice; 0
// for other errors.
func contact(err error) (limit time.Duration, advice string) {
	if name, ok := errors.AsType[*net.DNSError](err); ok && name.IsNotFound {
		return firstLookup, "look at the host's name, and at DNS"
	}
	switch op, ok := errors.AsType[*net.OpError](err); {
	case ok && op.Op == "proxyconnect":
		return firstContact, "look at the proxy of HTTPS_PROXY or HTTP_PROXY, and at NO_PROXY"
	case ok && op.Op == "dial":
		return firstContact, "look at the host's name and port"
	}
	return 0, ""
}

// call makes a request that is not a read, on the caller's goroutine, and retries it as reads are
// retried. It uses no slot: listings are few, and callers that stat many objects bound their own
// concurrency.
func (s *Storage) call(ctx context.Context, path string, ask func(ctx context.Context) error) error {
	var h history
	began := time.Now()
	var late atomic.Bool
	for tries := 0; ; tries++ {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		limit, asked := s.config.ReadTimeout, time.Now()
		silent := time.AfterFunc(patience, func() {
			if s.troubled(waits{path, tries, time.Since(began), limit}, &silenceError{time.Since(asked)}) {
				late.Store(true)
			}
		})
		f, err := s.askOnce(ctx, ask)
		silent.Stop()
		switch {
		case err == nil:
			s.answered(late.Load())
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case final(err):
			return Clean(err)
		}
		most := limit
		if first, advice := contact(err); first > 0 && !s.worked.Load() {
			most = min(most, first, s.config.FirstContact)
			f.err = fmt.Errorf("%w: %s", f.err, advice)
		}
		next := h.next(f, time.Since(began), most, rand.Float64())
		if next.err != nil {
			return unanswered(f, next.err)
		}
		s.stats.retried(path, f)
		s.throttled(f)
		if next.refresh {
			s.refresh(ctx, path)
		}
		tell := func() {
			if s.troubled(waits{path, tries + 1, time.Since(began), most}, f.err) {
				late.Store(true)
			}
		}
		if err := telling(ctx, next.wait, time.Since(began), tell); err != nil {
			return err
		}
	}
}

// telling waits like sleep, for a caller that has already waited for waited. It calls tell once the
// total is long enough to be reported, if necessary in the middle of the wait.
func telling(ctx context.Context, wait, waited time.Duration, tell func()) error {
	if waited >= patience {
		tell()
	} else if waited+wait > patience {
		defer time.AfterFunc(patience-waited, tell).Stop()
	}
	return sleep(ctx, wait)
}

// Try makes a request that is not a read, with the retries of an engine with this Config: until it
// is answered, until retrying does not help, or until Config.ReadTimeout has passed. It is for
// requests before there is an engine.
func Try(ctx context.Context, c Config, ask func(ctx context.Context) error) error {
	if err := c.Validate(); err != nil {
		return err
	}
	s := &Storage{config: c, source: nowhere{}, slots: newSlots(c.Connections)}
	return s.call(ctx, "", ask)
}

// nowhere is a Source on which call may call Refresh.
type nowhere struct{ Source }

func (nowhere) Name() string { return "" }

func (nowhere) Refresh(context.Context, string) {}

// askOnce is one attempt of call.
func (s *Storage) askOnce(ctx context.Context, ask func(ctx context.Context) error) (finding, error) {
	limit := s.config.FirstByteTimeout + s.config.SlowTime
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &silenceError{limit})
	defer cancel()
	err := ask(ctx)
	status, answered := errors.AsType[*StatusError](err)
	switch {
	case err == nil:
		s.worked.Store(true)
		s.stats.asked(200)
	case answered:
		s.worked.Store(true)
		s.stats.asked(status.Status)
		f := advised(ofStatus(status.Status, status.Code, status.RetryAfter), status.Status, status.Code, status.Advice)
		f = renewed(f, status.Code, status.Renewal)
		if place, ok := strings.CutSuffix(err.Error(), status.Error()); ok && place != "" {
			f.err = fmt.Errorf("%s%w", CleanText(place), f.err)
		}
		return f, err
	case !final(err):
		s.stats.asked(0)
	}
	return ofError(s.cause(ctx, err)), err
}

// sleep waits for d, or returns the context's error.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pagesAtOnce is how many pages of a listing are requested at a time. At web servers, where a page
// is one file, 147 shards take 0.1 s at 25 ms each.
const pagesAtOnce = 32

// Walk visits all objects of a source, page by page, until the first error. visit is
// not called concurrently, nor after an error.
func Walk(ctx context.Context, source Source, visit func(Listed) error) error {
	var mu sync.Mutex
	var failed error
	one := func(l Listed) error {
		mu.Lock()
		defer mu.Unlock()
		if failed == nil {
			failed = ctx.Err()
		}
		if failed == nil {
			failed = visit(l)
		}
		return failed
	}
	return walk(ctx, func(ctx context.Context, page string) ([]string, error) { return source.List(ctx, page, one) })
}

// walk calls list for the first page, and for all pages that others return in next. At the first
// error it cancels the others, and waits for them.
func walk(ctx context.Context, list func(ctx context.Context, page string) (next []string, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type came struct {
		page string
		next []string
		err  error
	}
	pages, running, all := []string{""}, 0, make(chan came)
	var failed error
	for len(pages) > 0 || running > 0 {
		for ; len(pages) > 0 && running < pagesAtOnce; running++ {
			page := pages[0]
			pages = pages[1:]
			go func() {
				next, err := list(ctx, page)
				all <- came{page, next, err}
			}()
		}
		c := <-all
		running--
		if c.err == nil && slices.Contains(c.next, c.page) {
			c.err = fmt.Errorf("a page names itself as the next")
		}
		if c.err != nil && failed == nil {
			failed = c.err
			cancel()
		}
		if pages = append(pages, c.next...); failed != nil {
			pages = nil
		}
	}
	return failed
}

// IsPage reports whether an answer with header h has a web page as its body.
func IsPage(h http.Header) bool {
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "text/html", "application/xhtml+xml":
		return true
	}
	return false
}

// NamesPage reports whether a file with that path may be a web page.
func NamesPage(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".htm", ".html", ".xhtml":
		return true
	}
	return false
}
