package scan

import "github.com/lsiofs/lsiofs/pipeline/read/budget"

var _ budget.Member = (*Scanner)(nil)

// Allow implements budget.Member. At Options.MemoryBytes, all limits are those of Options.Survey.Limits.
func (sc *Scanner) Allow(bytes int64) {
	l := &sc.limits
	cache := l.CacheBytes
	if bytes < sc.o.MemoryBytes {
		beside := sc.o.MemoryBytes - l.CacheBytes // tables, and segments to copy into
		cache = max(bytes-beside, min(bytes/2, cache))
	}
	share := float64(cache) / float64(max(l.CacheBytes, 1))
	sc.budget.Allow(cache)
	sc.decoders.Allow(int64(float64(l.DecoderBytes) * share))
	sc.maps.Allow(min(bytes, sc.o.MemoryBytes), cache/4)
	sc.loanSegments.Store(max(int64(float64(l.LoanSegments)*share), 1))
}

// Held implements budget.Member.
func (sc *Scanner) Held() int64 { return sc.budget.Held() + sc.TableBytes() }

// Lent implements budget.Member.
func (sc *Scanner) Lent() int64 { return int64(sc.counts.bytesOut.Load()) }

// Readers implements budget.Member.
func (sc *Scanner) Readers() int64 { return sc.open.Load() }

// Shrink implements budget.Member: it closes idle decoders, drops pieces, and unmaps mapped ones.
// If Scanner.mu is held, dropping pieces is left to the next load that needs memory.
func (sc *Scanner) Shrink() {
	sc.decoders.Trim()
	if sc.mu.TryLock() {
		if !sc.closed {
			sc.cache.shrink()
		}
		sc.mu.Unlock()
	}
	sc.maps.Shrink()
}

// ShrinkDisk implements budget.Member: if there are no readers, the spool drops its shards and
// shortens its file.
func (sc *Scanner) ShrinkDisk() {
	if sc.spool != nil && sc.open.Load() == 0 {
		sc.spool.Shrink()
	}
}
