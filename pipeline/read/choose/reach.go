package choose

import "time"

// How far all readers together look ahead under --lookahead auto: what they read in LookaheadTime,
// within these limits. One request in a thousand takes seconds, and its hedge a few hundred
// milliseconds: with 1.3 s ahead no reader waits for it.
const (
	LeastLookahead = 128 << 20
	MostLookahead  = 2 << 30
	LookaheadTime  = 2 * time.Second
)

// Reach returns how far one of several readers looks ahead: its share of what was asked for or, if
// that is 0, what it reads at its rate in LookaheadTime.
func Reach(askedBytes int64, bytesPerSecond float64, readers int64) int64 {
	readers = max(readers, 1)
	if askedBytes > 0 {
		return max(askedBytes/readers, 1)
	}
	rate := int64(min(bytesPerSecond*LookaheadTime.Seconds(), MostLookahead))
	return max(min(max(rate, LeastLookahead/readers), MostLookahead/readers), 1)
}
