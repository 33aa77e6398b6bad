package discover

import (
	"slices"
	"strings"
	"time"
)

// Look is the state of a file at one look.
type Look struct {
	SizeBytes    int64
	ModTimeNanos int64
	Inode        uint64
	// Written means that a process has it open for writing, Unknown that this can't be determined
	// on its file system.
	Written, Unknown bool
}

// same reports whether a file may be unchanged between two looks.
func (l Look) same(other Look) bool {
	return l.SizeBytes == other.SizeBytes && l.ModTimeNanos == other.ModTimeNanos && l.Inode == other.Inode
}

const (
	// settleLooks is the time between two equal looks after which a file that no process writes is
	// settled.
	settleLooks = time.Second
	// DefaultSettle and NetworkSettle are how long a file must stay unchanged if it is unknown
	// whether a process is writing it. On network file systems, attributes of files can be up to a
	// minute old.
	DefaultSettle = 30 * time.Second
	NetworkSettle = 70 * time.Second
)

// Settling tracks the files that are not settled yet. It must not be used concurrently. The zero
// value, with Quiet set, tracks none.
type Settling struct {
	// Quiet is how long a file must stay unchanged if it is unknown whether a process is writing
	// it.
	Quiet time.Duration
	files map[string]*settlingFile
}

type settlingFile struct {
	look  Look
	since time.Time // when it last changed
	free  time.Time // since when no process writes it; zero: one does, or that is unknown
}

// See records a look at a file, and reports whether it is settled: then it is no longer tracked. If
// not, the next look should be after wait.
func (s *Settling) See(path string, l Look, now time.Time) (settled bool, wait time.Duration) {
	f := s.files[path]
	if f == nil || !f.look.same(l) {
		if s.files == nil {
			s.files = map[string]*settlingFile{}
		}
		f = &settlingFile{since: now}
		s.files[path] = f
	}
	f.look = l
	switch {
	case l.Written || l.Unknown:
		f.free = time.Time{}
	case f.free.IsZero():
		f.free = now
	}
	left := settleLooks
	switch {
	case l.Written:
		return false, left
	case l.Unknown:
		left = f.since.Add(s.Quiet).Sub(now)
	default:
		left = f.free.Add(settleLooks).Sub(now)
	}
	if left > 0 {
		return false, left
	}
	s.Forget(path)
	return true, 0
}

// Forget stops tracking a file that no longer exists.
func (s *Settling) Forget(path string) {
	if delete(s.files, path); len(s.files) == 0 {
		s.files = nil // a map never shrinks
	}
}

// Len returns the number of files tracked.
func (s *Settling) Len() int { return len(s.files) }

const (
	firstRetry = time.Minute
	lastRetry  = time.Hour
	// AdmitAfter is how long a damaged file must stay unchanged before it is assumed to be final.
	AdmitAfter = 10 * time.Minute
)

// Damaged is a settled file that could not be indexed: it may not be complete yet.
type Damaged struct {
	look  Look
	since time.Time
	again time.Time
	wait  time.Duration
	tries int
}

// See records that a file in the state of l was damaged, and reports whether that should be logged:
// once for each state of a file.
func (d *Damaged) See(l Look, now time.Time) (first bool) {
	if first = d.tries == 0 || !d.look.same(l); first {
		*d = Damaged{look: l, since: now}
	}
	d.tries++
	d.wait = min(max(2*d.wait, firstRetry), lastRetry)
	d.again = now.Add(d.wait)
	return first
}

// Again reports whether indexing a file should be tried again: it has changed, or some time has
// passed: a minute, then two, and so on up to an hour.
func (d *Damaged) Again(l Look, now time.Time) bool { return !d.look.same(l) || !now.Before(d.again) }

// Next returns when indexing an unchanged file should be tried again.
func (d *Damaged) Next() time.Time { return d.again }

// AdmitAt returns when a damaged file will have been unchanged for AdmitAfter.
func (d *Damaged) AdmitAt() time.Time { return d.since.Add(AdmitAfter) }

// Admit reports whether a file has been unchanged for so long that its damaged records may be
// skipped, if the user allows that.
func (d *Damaged) Admit(now time.Time) bool { return now.Sub(d.since) >= AdmitAfter }

// UnfinishedReason is why a file that is not Finished is left out.
const UnfinishedReason = "its name is that of a file that is being written"

// unfinished are the suffixes that programs add to the names of files while they write them.
var unfinished = []string{".tmp", ".part", ".partial", "~", "._COPYING_"}

// Finished reports whether a file of that name may be a shard: its name does not mark it as being
// written.
func Finished(name string) bool {
	return !slices.ContainsFunc(unfinished, func(end string) bool { return strings.HasSuffix(name, end) })
}
