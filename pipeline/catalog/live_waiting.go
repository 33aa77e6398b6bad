package catalog

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Waiting is a file that may become a shard later.
type Waiting struct {
	Path, Reason string
	Again        time.Time // when it is tried again; zero: when it changes
}

// waiting is a file that is not whole yet.
type waiting struct {
	object  storage.Object
	reason  string
	damaged discover.Damaged
	again   time.Time
}

// due reports whether a file must be examined again, although it has not changed.
func (w *waiting) due(now time.Time) bool { return w.again.IsZero() || !now.Before(w.again) }

func lookOf(o storage.Object) discover.Look {
	return discover.Look{SizeBytes: o.SizeBytes, ModTimeNanos: o.Version.ModTimeNanos, Inode: o.Version.Inode}
}

// wait makes a file wait until it changes.
func (s *LiveIndex) wait(o storage.Object, w waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading[o.Path] == o {
		w.object = o
		s.waiting[o.Path] = &w
	}
}

// waitAgain makes a file wait that is not whole, and be tried again later. If admit is set, it
// reports whether the file has waited long enough to be admitted.
func (s *LiveIndex) waitAgain(o storage.Object, reason string, admit bool) (admitted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading[o.Path] != o {
		return false
	}
	w := s.waiting[o.Path]
	if w == nil {
		w = &waiting{}
		s.waiting[o.Path] = w
	}
	now := s.config.Now()
	first := w.damaged.See(lookOf(o), now)
	if w.object, w.reason, w.again = o, reason, w.damaged.Next(); admit {
		if w.damaged.Admit(now) {
			return true
		}
		w.again = earlier(w.again, w.damaged.AdmitAt())
	}
	if first && s.logged.allows(now) {
		s.config.Log.Warn("file can't be used yet and is tried again later", "file", o.Path, "reason", reason, "again", w.again.Sub(now))
	}
	return false
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// tooYoung reports whether the damage that an earlier run found in a file may be that of a file
// that was being written. mu must be held.
func (s *LiveIndex) tooYoung(k *known, now time.Time) bool {
	return k.damaged && k.state == remembered && now.Sub(time.Unix(0, max(k.changed, k.shard.ModTimeNanos))) < discover.AdmitAfter
}

// mostWaiting bounds the result of Waiting.
const mostWaiting = 1000

// Waiting returns the files that may become shards later, by path; if there are very many, some of
// them. Counts has their number.
func (s *LiveIndex) Waiting() []Waiting {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := make([]Waiting, 0, min(len(s.waiting)+s.counts.OtherKind+s.counts.Twice, mostWaiting))
	for path, w := range s.waiting {
		if len(list) == mostWaiting {
			break
		}
		list = append(list, Waiting{path, w.reason, w.again})
	}
	if s.counts.OtherKind+s.counts.Twice > 0 {
		list = s.appendIndexed(list)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Path < list[j].Path })
	return list
}

// appendIndexed appends the shards of other kinds, and the duplicates. mu must be held.
func (s *LiveIndex) appendIndexed(list []Waiting) []Waiting {
	for path, k := range s.known {
		if k.state != ofOtherKind && k.state != ofTwice {
			continue
		}
		if len(list) == mostWaiting {
			break
		}
		if k.state == ofTwice {
			list = append(list, Waiting{Path: path, Reason: s.twiceReason(k)})
			continue
		}
		reason := "its records are of a different kind from those of this run's shards"
		if k.kind != manyKind {
			kind := s.kinds[k.kind]
			from := differAt(s.kind, kind)
			reason = fmt.Sprintf("it has %s, and this run's shards have %s", kindText(kind, from), kindText(s.kind, from))
			if s.kind == "" {
				reason = fmt.Sprintf("it has %s, and a shard must be of one kind", kindText(kind, 0))
			}
		}
		list = append(list, Waiting{Path: path, Reason: reason})
	}
	return list
}

// firstPassed is the largest number of files that FirstPassed returns.
const firstPassed = 3

// FirstPassed returns the first files, by path, that were passed over, or left out by their names.
func (s *LiveIndex) FirstPassed() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var first []string
	add := func(path string) {
		at, _ := slices.BinarySearch(first, path)
		if at < firstPassed {
			first = slices.Insert(first, at, path)
			first = first[:min(len(first), firstPassed)]
		}
	}
	for path := range s.passed {
		add(path)
	}
	for path := range s.left {
		add(path)
	}
	return first
}

// verdicts returns a verdict for each file that is not a shard now. mu must be held.
func (s *LiveIndex) verdicts() (list []discover.Verdict) {
	for path := range s.passed {
		list = append(list, discover.Verdict{Path: path, Reason: discover.PassedOver})
	}
	for path, reason := range s.left {
		list = append(list, discover.Verdict{Path: path, Reason: reason})
	}
	for path, w := range s.waiting {
		list = append(list, discover.Verdict{Path: path, Reason: w.reason})
	}
	if s.counts.OtherKind+s.counts.Twice > 0 {
		for _, w := range s.appendIndexed(nil) {
			list = append(list, discover.Verdict{Path: w.Path, Reason: w.Reason})
		}
	}
	return list
}

// Due returns the files that must be passed to Index again, although they have not changed: after a
// minute, two, and so on up to an hour. next is when the next ones will be due; zero if there are
// none.
func (s *LiveIndex) Due(now time.Time) (due []storage.Object, next time.Time) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, w := range s.waiting {
		switch {
		case w.again.IsZero():
		case !now.Before(w.again):
			due = append(due, w.object)
		case next.IsZero() || w.again.Before(next):
			next = w.again
		}
	}
	return due, next
}

// reasonOf returns the text of a file's error, without the file's path.
func reasonOf(path string, err error) string {
	var refused *format.RefusedError
	if errors.As(err, &refused) {
		return refused.Error() + ": lsiofs can't read this; it may be incomplete, so it is tried again later"
	}
	return strings.TrimPrefix(err.Error(), path+": ")
}

// logBudget limits how much is logged about single files.
type logBudget struct {
	from time.Time
	used int
}

const (
	logEvery = time.Minute
	logMost  = 20 // in that time
)

// allows reports whether one more line may be logged.
func (b *logBudget) allows(now time.Time) bool {
	if now.Sub(b.from) >= logEvery {
		*b = logBudget{from: now}
	}
	b.used++
	return b.used <= logMost
}
