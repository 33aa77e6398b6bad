package remote

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// A file that is written twice within a second, with the same size, has the same
// validator both times where that is made of its time of modification in whole seconds.
// So an object is not trusted before the second in which it was modified is over.

const (
	// settleTime is by how much the service's clock has to be past an object's time: a
	// second is the grain of such times, and servers keep their own for up to another.
	settleTime = 2 * time.Second
	// maxAhead is how far an object's time may be ahead of the service's clock and still
	// be that of a clock. What is further ahead was set by somebody, and is not waited for.
	maxAhead = time.Minute
	// maxLooks is how often an object is looked at that is written again and again.
	maxLooks = 3
	// looksAtOnce is how many objects are looked at again at a time.
	looksAtOnce = 32
)

// Unsettled is for how long a change of an object may not show in its validator v, by the
// header of an answer that says when the object was modified, or lists it; 0: any change
// shows. The clock is the service's own: its Date, and the Age of what a cache gives.
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

// hashDigits are as many as an MD5 sum has, the shortest that services name contents by.
const hashDigits = 32

// maybeTime says whether a validator may be made of a time of modification: a date is, and
// so may be any ETag that is no hash. nginx, Apache, lighttpd, Caddy and IIS all make theirs
// of time and size, each in its own way; S3 and its kin make hashes.
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

// LastClamp is the last year of times that many tools set, all alike, where they do not want
// one: 0 and 1 of Unix, and the first that zip files have.
const LastClamp = 1980

// Clamped reports whether an object's version says nothing, since it is made of a time that
// was clamped: what is written in its place, with the same size, has the same version.
func Clamped(l Listed) bool {
	if !maybeTime(l.Validator) {
		return false
	}
	if !l.Modified.IsZero() {
		return l.Modified.Year() <= LastClamp
	}
	// "5b2c-11" is the time and the size of nginx, "11-5b2c" size and microseconds of Apache.
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

// settle waits until an object's validator can be trusted, and gives the object as it is
// then. no: it is being written to, again and again.
func (s *Storage) settle(ctx context.Context, y young) (l Listed, ok bool, err error) {
	for range maxLooks {
		if err := sleep(ctx, time.Until(y.until)); err != nil {
			return l, false, err
		}
		if l, err = s.describe(ctx, y.Path); err != nil {
			return l, false, err
		}
		// What is the same after that time is so for good, whatever the clock says.
		if l.Unsettled <= 0 || l.Validator == y.Validator && l.SizeBytes == y.SizeBytes {
			return l, true, nil
		}
		y = young{l, time.Now().Add(l.Unsettled)}
	}
	return l, false, nil
}

// settled gives an object for reading. One that is written to all the time is described
// as what it never was, so that its reads are ErrChanged.
func (s *Storage) settled(l Listed, ok bool) storage.Object {
	if ok {
		return s.object(l)
	}
	o := storage.Object{Path: l.Path, SizeBytes: l.SizeBytes, Version: version(l)}
	o.Version.ModTimeNanos++
	return o
}

// Settled implements storage.Settler.
func (s *Storage) Settled(ctx context.Context, path string) (storage.Object, error) {
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

// grow visits the objects of a listing that were young, when they are no more.
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
