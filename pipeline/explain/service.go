package explain

import (
	"fmt"

	"github.com/dustin/go-humanize"
)

// Service has the statistics of a bucket or a web server that a verdict needs.
type Service struct {
	Throttled uint64 // "slow down" responses in the window
	Requests  uint64 // responses in the window
	// FirstByteP50 and FirstByteP95 are the times to first byte of the latest responses, in
	// seconds.
	FirstByteP50, FirstByteP95 float64
	Slots, InUse               int // allowed concurrent requests now, and those in use
	Most                       int // upper limit of Slots (--connections)
}

// Cause is why readers wait for a service.
type Cause string

const (
	CauseThrottled  Cause = "throttled"   // the service rejects requests
	CauseFirstBytes Cause = "first_bytes" // responses start late
	CauseLink       Cause = "link"        // responses start in time: the transfer itself is slow
)

const (
	// slowFirstBytes is the median time to first byte, in seconds, from which it is slow. For S3,
	// 25 to 30 ms are usual, and fewer than one in 20 take more than 200 ms.
	slowFirstBytes = 0.2
	// lateFirstBytes is the same for the slowest in 20: a reader that needs the responses in order
	// waits for those.
	lateFirstBytes = 1.0
	// connectionRate is the usual transfer rate of a connection, in bytes per second: S3 reaches 85
	// to 90 MB/s, web servers less. If the time to first byte is longer than the transfer at that
	// rate, requests are so small that the link does not matter.
	connectionRate = 50e6
)

// Why returns why readers wait for a service, and text that includes what helps. A service that
// throttles also responds late, so throttling is checked first. bytesPerSecond is the rate at which
// data arrives.
func (s Service) Why(bytesPerSecond, seconds float64) (Cause, string) {
	switch {
	case s.Throttled > 0:
		return CauseThrottled, fmt.Sprintf("throttled, %s of %s requests in %.0f s were rejected; larger --chunk-bytes need fewer requests, and a disk cache saves them from the second epoch on",
			humanize.Comma(int64(s.Throttled)), humanize.Comma(int64(max(s.Requests, s.Throttled))), seconds)
	case s.FirstByteP50 >= slowFirstBytes || s.FirstByteP95 >= lateFirstBytes:
		text := fmt.Sprintf("slow first bytes, median %.0f ms, 95th percentile %.0f ms", 1e3*s.FirstByteP50, 1e3*s.FirstByteP95)
		if s.most() {
			return CauseFirstBytes, text + s.more()
		}
		return CauseFirstBytes, text + "; lsiofs doctor URL checks the service alone"
	}
	if s.full() && s.Requests > 0 {
		if bytes := bytesPerSecond * seconds / float64(s.Requests); s.FirstByteP50 >= bytes/connectionRate {
			text := fmt.Sprintf("slow first bytes, %.0f ms for requests of %s on average; larger --chunk-bytes make fewer and larger requests, if --memory or a disk cache can hold the chunks",
				1e3*s.FirstByteP50, humanize.IBytes(uint64(max(bytes, 0))))
			if s.most() {
				text += s.more()
			}
			return CauseFirstBytes, text
		}
	}
	text := "the network, at " + rate(bytesPerSecond)
	if s.most() {
		return CauseLink, text + s.more()
	}
	return CauseLink, text + fmt.Sprintf("; %d of %d possible requests are in flight", s.InUse, s.Slots)
}

// full reports whether no more requests may be in flight now, and most whether no more ever may.
func (s Service) full() bool { return s.Slots > 0 && s.InUse >= s.Slots }
func (s Service) most() bool { return s.full() && s.Slots >= s.Most }

func (s Service) more() string {
	return fmt.Sprintf("; all %d possible requests are in flight: more --connections may help", s.Slots)
}
