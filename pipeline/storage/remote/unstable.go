package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// A file that is written twice within a second, with the same size, has the same validator both
// times if the validator is made from its modification time in whole seconds. So an object is not
// trusted until the second in which it was modified is over.

const (
	// settleTime is by how much the service's clock must be past an object's time: such times have
	// a resolution of a second, and servers cache their own for up to another.
	settleTime = 2 * time.Second
	// maxAhead is how far an object's time may be ahead of the service's clock to be considered
	// clock skew. A time further ahead was set by a program, and is not waited for.
	maxAhead = time.Minute
	// maxLooks is how often an object that keeps being written is examined.
	maxLooks = 3
	// looksAtOnce is how many objects are examined again at a time.
	looksAtOnce = 32
)

// Unsettled returns how long a change of an object may not show in its validator v; 0 means that
// any change shows. h is the header of an answer that has the object's modification time, or lists
// it. The clock is the service's own: its Date, plus the Age of an answer from a cache.
func Unsettled(h http.Header, modified time.Time, v Validator) time.Duration {
	if modified.IsZero() || !maybeTime(v) {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	now = now.Add(seconds(max(number(h.Get("Age")), 0)))
	left := modified.Truncate(time.Second).Add(settleTime).Sub(now)
	if left > settleTime+maxAhead {
		return 0
	}
	return max(left, 0)
}

// hashDigits is the number of digits of an MD5 sum, the shortest hash that services use as an ETag.
const hashDigits = 32

// maybeTime reports whether a validator may be made from a modification time. A date is, and so may
// be any ETag that is not a hash. nginx, Apache, lighttpd, Caddy and IIS all make theirs from time
// and size, each in its own way; S3 and compatible services use hashes.
func maybeTime(v Validator) bool {
	if _, dated := v.Modified(); dated {
		return true
	}
	digits := 0
	for _, r := range string(v) {
		if digits++; !strings.ContainsRune("0123456789abcdefABCDEF", r) {
			digits = 0
		}
		if digits == hashDigits {
			return false
		}
	}
	return v != ""
}

// LastClamp is the last year of the fixed times that many tools set instead of real ones: 0 and 1
// in Unix time, and the first time that zip files can store.
const LastClamp = 1980

// Clamped reports whether an object's version is worthless because it is made from a time that was
// clamped: a replacement of the same size has the same version.
func Clamped(l Listed) bool {
	if !maybeTime(l.Validator) {
		return false
	}
	if !l.Modified.IsZero() {
		return l.Modified.Year() <= LastClamp
	}
	// nginx writes time and size, "5b2c-11"; Apache writes size and microseconds, "11-5b2c".
	first, second, two := strings.Cut(strings.Trim(string(l.Validator), `"`), "-")
	a, errA := strconv.ParseInt(first, 16, 64)
	b, errB := strconv.ParseInt(second, 16, 64)
	if !two || errA != nil || errB != nil {
		return false
	}
	return b == l.SizeBytes && time.Unix(a, 0).UTC().Year() <= LastClamp || a == l.SizeBytes && time.UnixMicro(b).UTC().Year() <= LastClamp
}

// young is an object that is not settled yet.
type young struct {
	Listed
	until time.Time
}

// settle waits until an object's validator can be trusted, and returns the object as it is then. ok
// is false if it keeps being written.
func (s *Storage) settle(ctx context.Context, y young) (l Listed, ok bool, err error) {
	for range maxLooks {
		if err := sleep(ctx, time.Until(y.until)); err != nil {
			return l, false, err
		}
		if l, err = s.describe(ctx, y.Path); err != nil {
			return l, false, err
		}
		// If it is the same after that time, it stays so, whatever the clock shows.
		if l.Unsettled <= 0 || l.Validator == y.Validator && l.SizeBytes == y.SizeBytes {
			return l, true, nil
		}
		y = young{l, time.Now().Add(l.Unsettled)}
	}
	return l, false, nil
}

// settled returns an object for reading. An object that keeps being written gets a version that it
// never had, so that its reads fail with ErrChanged.
func (s *Storage) settled(l Listed, ok bool) storage.Object {
	if ok {
		return s.object(l)
	}
	o := storage.Object{Path: l.Path, SizeBytes: l.SizeBytes, Version: version(l)}
	o.Version.ModTimeNanos++
	return o
}

// StatStable implements storage.Caps.
func (s *Storage) StatStable(ctx context.Context, path string) (storage.Object, error) {
	l, err := s.describe(ctx, path)
	ok := true
	if err == nil && l.Unsettled > 0 {
		l, ok, err = s.settle(ctx, young{l, time.Now().Add(l.Unsettled)})
	}
	if err != nil {
		return storage.Object{}, fmt.Errorf("%s: %w", path, err)
	}
	return s.settled(l, ok), nil
}

// grow visits the objects of a listing that were not settled, once they are.
func (l *listing) grow(ctx context.Context) error {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(looksAtOnce)
	for _, y := range l.young {
		g.Go(func() error {
			now, ok, err := l.s.settle(ctx, y)
			if err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return fmt.Errorf("list: %s: %w", y.Path, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return l.visit(l.s.settled(now, ok))
		})
	}
	return g.Wait()
}

// An answer with another version than the listed one does not always mean that the object has
// changed. Servers that share a name may each have their own ETag or time for it, and some make a
// new one for each answer. So the object is described several times before a read fails.

const (
	doubtLooks = 3               // two servers taking turns have both shown their versions by then
	doubtTime  = 3 * time.Second // for all looks together
	// mostDoubting bounds how many objects are examined at a time: all may be in doubt at once.
	mostDoubting = 8
	// doubtMemory is how long the result is used for other reads of an object, and mostDoubts is
	// for how many objects results are kept.
	doubtMemory = 10 * time.Second
	mostDoubts  = 1024
)

// doubts holds the results for objects that seemed to have changed. It is safe for concurrent use.
type doubts struct {
	looking chan struct{}
	warn    sync.Once

	mu sync.Mutex
	of map[string]doubted // by path
}

type doubted struct {
	err   error // nil: it has changed
	until time.Time
}

func newDoubts() *doubts {
	return &doubts{looking: make(chan struct{}, mostDoubting), of: make(map[string]doubted)}
}

// reconsider returns the finding for an answer that suggests that an object has changed: f if it
// has, or else why the server can't be relied on. If the user accepts sizes alone, the read is
// repeated without a version. It makes a few requests.
func (s *Storage) reconsider(ctx context.Context, o storage.Object, v Validator, f finding) finding {
	if !f.doubtful {
		return f
	}
	if now, _, ok := s.listed.get(o); ok && v != "" && now == "" {
		return finding{kind: kindAgain, err: f.err} // another read has found that the versions can't be relied on
	}
	err := s.doubt(ctx, o, v, f)
	switch {
	case err == nil:
		return f
	case s.config.Unversioned && errors.Is(err, errFlutters):
		s.listed.dropVersion(o)
		s.doubts.warn.Do(func() {
			if s.config.Log == nil {
				return
			}
			s.config.Log.Warn("a change of the file shows in its size alone (--unversioned)", "file", o.Path, "reason", err)
		})
		return finding{kind: kindAgain, err: err}
	}
	return finding{kind: kindFinal, err: err}
}

func (s *Storage) doubt(ctx context.Context, o storage.Object, v Validator, f finding) error {
	d := s.doubts
	d.mu.Lock()
	known, ok := d.of[o.Path]
	d.mu.Unlock()
	if ok && time.Now().Before(known.until) {
		return known.err
	}
	ctx, cancel := context.WithTimeout(ctx, doubtTime)
	defer cancel()
	select {
	case d.looking <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	defer func() { <-d.looking }()
	var seen []Listed
	for range doubtLooks {
		l, err := s.source.Head(ctx, o.Path)
		if err != nil {
			return nil // nothing is known except f
		}
		seen = append(seen, l)
	}
	err := unreliable(o, v, f, seen)
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.of) >= mostDoubts {
		clear(d.of)
	}
	d.of[o.Path] = doubted{err, time.Now().Add(doubtMemory)}
	return err
}

// errFlutters means that a service alternates between versions of one object.
var errFlutters = errors.New("so a change could not be seen: servers that share a name must give one file the same ETag and Last-Modified; with --unversioned, its size alone counts")

// unreliable returns why a server's answers about an object can't be relied on, or nil if the
// object has changed. f is the answer that suggested a change, and seen are descriptions of the
// object made after it.
func unreliable(o storage.Object, v Validator, f finding, seen []Listed) error {
	listed := true // every look has shown what was listed
	for _, l := range seen {
		if l.SizeBytes != o.SizeBytes {
			return nil
		}
		listed = listed && l.Validator == v
	}
	if listed && f.short {
		return errors.New("the server answers 416 Range Not Satisfiable to a range of it, and says in other answers that it has all of that: serve it from one that serves ranges, or look at proxies before it")
	}
	if v == "" {
		return nil
	}
	for _, l := range seen {
		if other := seen[0].Validator; l.Validator != other {
			return fmt.Errorf("its version is another at each look (%.60s, then %.60s), %w", other, l.Validator, errFlutters)
		}
	}
	if listed {
		return fmt.Errorf("its version is %.60s in some answers of the server, and another in others, %w", v, errFlutters)
	}
	return nil
}
