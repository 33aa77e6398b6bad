package fs

import (
	"log/slog"
	"sync"
	"time"
)

// refusals keeps why the last checkpoint was refused, for status: a writer only gets an errno, and
// some shells ignore even that.
type refusals struct {
	mu   sync.Mutex
	last refusal
	all  uint64
}

type refusal struct {
	Time   time.Time `json:"time"`
	Reason string    `json:"reason"`
	// Restored is set if a restore has succeeded since.
	Restored bool `json:"restored_since"`
}

func (r *refusals) note(log *slog.Logger, err error) {
	r.mu.Lock()
	again := r.last.Reason == err.Error()
	r.last = refusal{Time: time.Now(), Reason: err.Error()}
	r.all++
	r.mu.Unlock()
	if !again {
		log.Warn("checkpoint not restored", "reason", err)
	}
}

// settled records that a restore has succeeded.
func (r *refusals) settled() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last.Restored = true
}

// snapshot returns the last refusal, nil if there was none, and the number of refusals.
func (r *refusals) snapshot() (*refusal, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == 0 {
		return nil, 0
	}
	last := r.last
	return &last, r.all
}
