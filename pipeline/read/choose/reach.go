package choose

import "time"

// How far readers look ahead where they are told by --lookahead auto, all of them
// together: what they read in LookaheadTime, within bounds. A request in a thousand takes
// seconds, and its hedge some hundred milliseconds: with 1.3 s ahead nothing waits for it.
const (
	LeastLookahead = 128 << 20
	MostLookahead  = 2 << 30
	LookaheadTime  = 2 * time.Second
)

// Reach is how far one of some readers looks ahead: its part of what was asked for, or, if
// that is 0, so much as it reads at its rate in LookaheadTime.
func Reach(askedBytes int64, bytesPerSecond float64, readers int64) int64 {
	readers = max(readers, 1)
	if askedBytes > 0 {
		return max(askedBytes/readers, 1)
	}
	rate := int64(min(bytesPerSecond*LookaheadTime.Seconds(), MostLookahead))
	return max(min(max(rate, LeastLookahead/readers), MostLookahead/readers), 1)
}
