package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// An answer of another version than was listed need not mean that the object has changed. Servers
// that share a name may each have an ETag or a time of their own for it, and some make a new one for
// each answer. So the object is looked at some times before a read fails.

const (
	doubtLooks = 3               // two servers in turn have shown both their versions by then
	doubtTime  = 3 * time.Second // bounds all of them
	// mostDoubting bounds the objects that are looked at at a time: all may be in doubt at once.
	mostDoubting = 8
	// doubtMemory is for how long other reads of an object take what was found out, and mostDoubts of
	// how many objects it is kept.
	doubtMemory = 10 * time.Second
	mostDoubts  = 1024
)

// doubts are what was found out of objects that seemed to have changed. Safe for concurrent use.
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

// reconsider returns what an answer means by which an object seems to have changed: what f says if it
// has, or why the server can't be relied on. If the user accepts sizes alone, the read is made again
// without a version. It makes a few requests.
func (s *Storage) reconsider(ctx context.Context, o storage.Object, v Validator, f finding) finding {
	if !f.doubtful {
		return f
	}
	if now, _, ok := s.listed.get(o); ok && v != "" && now == "" {
		return finding{kind: kindAgain, err: f.err} // another read has found out
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
			return nil // what f says is all that is known
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

// errFlutters means that a service names now one version of an object and now another.
var errFlutters = errors.New("so a change could not be seen: servers that share a name must give one file the same ETag and Last-Modified; with --unversioned, its size alone counts")

// unreliable returns why answers about an object can't be relied on, by what looks at it have shown
// after an answer by which it seems to have changed; nil if it has changed.
func unreliable(o storage.Object, v Validator, f finding, seen []Listed) error {
	listed := true // each look has shown what was listed
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
