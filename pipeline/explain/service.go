package explain

import (
	"fmt"

	"github.com/dustin/go-humanize"
)

// Service is how a bucket or a web server has answered, as far as a verdict needs it.
type Service struct {
	Throttled uint64 // answers that said "slow down", of the window
	Requests  uint64 // answers of the window
	// FirstByteP50 and FirstByteP95 are how long the first bytes of the last answers took,
	// in seconds.
	FirstByteP50, FirstByteP95 float64
	Slots, InUse               int // requests that may be under way now, and that are
	Most                       int // that may ever be (--connections)
}

// Cause is why readers wait for a service.
type Cause string

const (
	CauseThrottled  Cause = "throttled"   // the service turns requests away
	CauseFirstBytes Cause = "first_bytes" // answers begin late
	CauseLink       Cause = "link"        // they begin in time: what is left is the bytes themselves
)

const (
	// slowFirstBytes is the median, in seconds, from which on first bytes are slow. S3's
	// usual ones take 25 to 30 ms, and fewer than one in 20 more than 200 ms.
	slowFirstBytes = 0.2
	// lateFirstBytes is the same of the slowest in 20: a reader that needs them in order
	// waits for those.
	lateFirstBytes = 1.0
	// connectionRate is what a connection usually transfers, in bytes a second: S3's give
	// 85 to 90 MB/s, web servers less. Where waiting for the first byte takes longer than
	// the transfer would at that rate, requests are too small for the link to count.
	connectionRate = 50e6
)

// Why says why readers wait for a service, and what helps. A service that throttles also
// answers late, so that is looked at first. bytesPerSecond is what comes from it.
func (s Service) Why(bytesPerSecond, seconds float64) (Cause, string) {
	switch {
	case s.Throttled > 0:
		return CauseThrottled, fmt.Sprintf("throttled, %s of %s requests in %.0f s were turned away; larger --chunk-bytes take fewer requests, and a disk cache saves them from the second epoch on",
			humanize.Comma(int64(s.Throttled)), humanize.Comma(int64(max(s.Requests, s.Throttled))), seconds)
	case s.FirstByteP50 >= slowFirstBytes || s.FirstByteP95 >= lateFirstBytes:
		text := fmt.Sprintf("slow first bytes, half of them after %.0f ms and more, one in 20 after %.0f ms and more", 1e3*s.FirstByteP50, 1e3*s.FirstByteP95)
		if s.most() {
			return CauseFirstBytes, text + s.more()
		}
		return CauseFirstBytes, text + "; lsiofs doctor URL looks at the service alone"
	}
	if s.full() && s.Requests > 0 {
		if bytes := bytesPerSecond * seconds / float64(s.Requests); s.FirstByteP50 >= bytes/connectionRate {
			text := fmt.Sprintf("slow first bytes, %.0f ms for requests that bring %s on average; larger --chunk-bytes take fewer and larger ones, if --memory or a disk cache holds them",
				1e3*s.FirstByteP50, humanize.IBytes(uint64(max(bytes, 0))))
			if s.most() {
				text += s.more()
			}
			return CauseFirstBytes, text
		}
	}
	text := "the link, which gives " + rate(bytesPerSecond)
	if s.most() {
		return CauseLink, text + s.more()
	}
	return CauseLink, text + fmt.Sprintf("; %d of %d possible requests are under way", s.InUse, s.Slots)
}

// full says that no more requests may be under way now, and most that no more ever may.
func (s Service) full() bool { return s.Slots > 0 && s.InUse >= s.Slots }
func (s Service) most() bool { return s.full() && s.Slots >= s.Most }

func (s Service) more() string {
	return fmt.Sprintf("; all %d requests at a time are under way: more --connections may help", s.Slots)
}
