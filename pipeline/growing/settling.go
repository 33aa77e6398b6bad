package growing

import (
	"time"
)

// Look is what was seen of a file.
type Look struct {
	SizeBytes    int64
	ModTimeNanos int64
	Inode        uint64
	// Written says that somebody has it open for writing, Unknown that this can't be
	// told there.
	Written, Unknown bool
}

// same says whether a file may be the one that it was.
func (l Look) same(other Look) bool {
	return l.SizeBytes == other.SizeBytes && l.ModTimeNanos == other.ModTimeNanos && l.Inode == other.Inode
}

const (
	// settleLooks is how far apart two equal looks are at a file that nobody writes.
	settleLooks = time.Second
	// DefaultSettle and NetworkSettle are for how long a file has to stay as it is where
	// it can't be told whether somebody writes it. Attributes of files on network file
	// systems are up to a minute old.
	DefaultSettle = 30 * time.Second
	NetworkSettle = 70 * time.Second
)

// Settling follows the files that are not settled yet. It is not for concurrent use. The
// zero value, with Quiet set, follows none.
type Settling struct {
	// Quiet is for how long a file has to stay as it is, where it can't be told whether
	// somebody writes it.
	Quiet time.Duration
	files map[string]*settlingFile
}

type settlingFile struct {
	look  Look
	since time.Time // it has been as it is
	free  time.Time // nobody has written it since; zero: somebody did, or it can't be told
}

// See takes in a look at a file, and says whether it is settled: then it is not followed
// any more. Where it is not, wait is when it should be looked at again.
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

// Forget ends with a file that is not there any more.
func (s *Settling) Forget(path string) {
	if delete(s.files, path); len(s.files) == 0 {
		s.files = nil // a map keeps the room for as many as it has ever had
	}
}

// Len is how many files are followed.
func (s *Settling) Len() int { return len(s.files) }

const (
	firstRetry = time.Minute
	lastRetry  = time.Hour
	// AdmitAfter is how long a damaged file stays as it is before it is taken for one
	// that will not change.
	AdmitAfter = 10 * time.Minute
)

// Damaged is a settled file that could not be indexed: it may not be whole yet.
type Damaged struct {
	look  Look
	since time.Time
	again time.Time
	wait  time.Duration
	tries int
}

// See takes in that a file, as a look has it, was damaged, and says whether that is to be
// told: it is told once for each state that a file is in.
func (d *Damaged) See(l Look, now time.Time) (first bool) {
	if first = d.tries == 0 || !d.look.same(l); first {
		*d = Damaged{look: l, since: now}
	}
	d.tries++
	d.wait = min(max(2*d.wait, firstRetry), lastRetry)
	d.again = now.Add(d.wait)
	return first
}

// Again says whether a file is to be looked into once more: it has changed, or some time
// has passed: a minute, two, and so on up to an hour.
func (d *Damaged) Again(l Look, now time.Time) bool { return !d.look.same(l) || !now.Before(d.again) }

// Next is when a file is to be looked into once more that does not change.
func (d *Damaged) Next() time.Time { return d.again }

// AdmitAt is when a damaged file that stays as it is has done so for long enough.
func (d *Damaged) AdmitAt() time.Time { return d.since.Add(AdmitAfter) }

// Admit says whether a file has been as it is for so long that its damage is left out,
// where the user wants that.
func (d *Damaged) Admit(now time.Time) bool { return now.Sub(d.since) >= AdmitAfter }
