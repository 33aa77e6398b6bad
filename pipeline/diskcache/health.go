package diskcache

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// pause is how long nothing is written after the disk was full.
const pause = 30 * time.Second

// health is what a cache may be used for. Its faults never become a reader's.
type health struct {
	clock Clock
	log   *slog.Logger
	dir   string
	off   atomic.Bool
	full  atomic.Int64 // nothing is written until then, in unix nanoseconds

	mu     sync.Mutex
	reason string
}

func (h *health) init(clock Clock, log *slog.Logger, dir string) {
	h.clock, h.log, h.dir = clock, log, dir
}

// writes reports whether pages may be written now.
func (h *health) writes() bool {
	until := h.full.Load()
	return !h.off.Load() && (until == 0 || h.clock.Now().UnixNano() >= until)
}

// passing are errors that do not concern the cache as a whole: the object that they are about is
// read below this time.
var passing = [...]error{
	errAbsent, errBusy, errNotOur, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN, unix.EFBIG, unix.EEXIST, unix.EINTR, unix.EOPNOTSUPP,
}

// failed notes an error; what names the operation.
func (h *health) failed(what string, err error) {
	for _, p := range passing {
		if errors.Is(err, p) {
			return
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		now := h.clock.Now()
		if now.UnixNano() < h.full.Load() {
			return
		}
		h.full.Store(now.Add(pause).UnixNano())
		h.reason = "cache full by others: " + err.Error()
		h.log.Warn("the cache's disk is full: nothing is added to the cache for 30 s", "dir", h.dir, "what", what, "err", err)
		return
	}
	if h.off.Swap(true) {
		return
	}
	h.reason = what + ": " + err.Error()
	h.log.Error("this mount stops using the cache, and reads everything from where the dataset is; mount again when the disk of the cache works", "dir", h.dir, "what", what, "err", err)
}

func (s *Storage) failed(what string, err error) { s.health.failed(what, err) }

// state returns the state in a word, and the reason.
func (h *health) state() (state, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.off.Load():
		return "off", h.reason
	case h.clock.Now().UnixNano() < h.full.Load():
		return "full", h.reason
	}
	return "on", ""
}
