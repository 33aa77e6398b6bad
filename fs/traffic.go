package fs

import (
	"sync"
	"sync/atomic"
	"time"
)

// traffic counts what clients have been sent, since the mount and since the last look.
type traffic struct {
	bytes, reads atomic.Int64

	mu       sync.Mutex
	last     time.Time
	lastSent int64
}

func (t *traffic) sent(n int64) {
	t.bytes.Add(n)
	t.reads.Add(1)
}

// rates are in bytes per second.
type rates struct {
	SinceMount float64 `json:"since_mount"`
	SinceLast  float64 `json:"since_last_status"`
}

// look returns the rates at now, and begins a new interval.
func (t *traffic) look(started, now time.Time) rates {
	sent := t.bytes.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	since, before := t.last, t.lastSent
	if since.IsZero() {
		since = started
	}
	t.last, t.lastSent = now, sent
	return rates{SinceMount: perSecond(sent, now.Sub(started)), SinceLast: perSecond(sent-before, now.Sub(since))}
}

func perSecond(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}
