package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

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
