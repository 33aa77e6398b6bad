package remote

import "time"

// Bounds and steps of slots.
const (
	fewestSlots  = 4
	firstSlots   = 16
	restAfterCut = 10 * time.Second // no fill for so long after a throttle
	growAgain    = 5 * time.Second  // after a growth that brought nothing
	// doubtful is after how many seconds in a row a growth has brought nothing. The rate of
	// one second is lower than that before also by chance: what else the machine, the
	// network or a reader does.
	doubtful = 2
)

// slots says how many requests may be under way. It grows while that brings more, and
// halves when the service says that it has too much to do. It is plain arithmetic: the
// engine calls it under its lock.
//
//	×2     at first, after a second in which 90 % were used and more waited, until that
//	       brings less than half as much again, or a throttle
//	+25 %  from then on, after such a second; taken back after two more of them if bytes a
//	       second have not grown by 5 % in either, and then not tried for 5 s
//	×2     after any second without a throttle, up to half of what there were before
//	       throttling began; +25 % from there up to that
//	−50 %  at most once a second, after 429, 503 or SlowDown
type slots struct {
	limit, most int

	cut    time.Time // the last halving; zero: none
	before int       // the limit before the first of some halvings

	second      time.Time // begin of the second that is looked at
	bytes       int64     // that came in it
	looks, full int       // completions in it, and those with no slot free and reads that waited
	rate        float64   // bytes a second, in the last second

	tried    int       // the limit before the last growth, while it is not known what that brings; 0: it is
	base     float64   // the rate before it
	doubts   int       // seconds since it in which the rate was no higher
	known    bool      // about how many are of use: growth is no doubling any more
	notUntil time.Time // the next growth
}

func newSlots(most int) slots {
	return slots{limit: min(firstSlots, most), most: most}
}

// throttled is called for each answer that says so.
func (s *slots) throttled(now time.Time) {
	if !s.cut.IsZero() && now.Sub(s.cut) < time.Second {
		return
	}
	if s.cut.IsZero() || now.Sub(s.cut) >= restAfterCut || s.limit*2 > s.before {
		s.before = s.limit // else it is the same storm
	}
	s.cut, s.tried, s.known = now, 0, true
	s.limit = max(s.limit/2, min(fewestSlots, s.most))
}

// resting says that the service was throttled so shortly ago that only what somebody
// is going to wait for is read.
func (s *slots) resting(now time.Time) bool {
	return !s.cut.IsZero() && now.Sub(s.cut) < restAfterCut
}

// completed is called when a request is, with how many were used and waited before
// that, and how many bytes it gave.
func (s *slots) completed(now time.Time, used, waiting int, bytes int64) {
	if s.second.IsZero() {
		s.second = now
	}
	s.bytes += bytes
	s.looks++
	if used*10 >= s.limit*9 && waiting > 0 {
		s.full++
	}
	passed := now.Sub(s.second)
	if passed < time.Second {
		return
	}
	s.rate = float64(s.bytes) / passed.Seconds()
	switch {
	case s.cut.After(s.second) || s.bytes == 0:
	case s.limit*4 <= s.before:
		s.limit = min(s.limit*2, s.most)
	case s.limit < s.before:
		s.limit = min(s.limit+max(s.limit/4, 1), s.before)
	case s.full*10 >= s.looks*9:
		s.adjust(now)
	default:
		s.tried = 0 // it was not for slots that no more came
	}
	s.second, s.bytes, s.looks, s.full = now, 0, 0, 0
}

// adjust is called after a second in which slots were what there was too little of.
func (s *slots) adjust(now time.Time) {
	switch {
	case s.tried == 0:
	case s.rate < s.base*1.05:
		if s.doubts++; s.doubts >= doubtful {
			s.limit, s.tried, s.known, s.notUntil = s.tried, 0, true, now.Add(growAgain)
		}
		return
	case s.rate < s.base*1.5:
		s.known = true
	}
	if s.tried = 0; now.Before(s.notUntil) || s.limit == s.most {
		return
	}
	s.tried, s.base, s.doubts = s.limit, s.rate, 0
	step := s.limit
	if s.known {
		step = max(s.limit/4, 1)
	}
	s.limit = min(s.limit+step, s.most)
}
