package fetch

import (
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/fetch/budget"
)

// decoders are those that stand somewhere in a compressed shard, at work or
// paused. Everything is guarded by Fetcher.mu.
type decoders struct {
	all     map[*decoder]struct{}
	byShard map[int][]*decoder // but those that fill the spool
	held    int64              // bytes of memory
	garbage int64              // bytes that closed ones have left to the collector
	// collecting says that somebody collects. changed is closed, and another
	// one made, when memory may have become free, if waiting decoders wait.
	collecting bool
	waiting    int
	changed    chan struct{}
	tick       uint64
	// passed counts, for each shard, the bytes that were decoded to get past
	// them; warned is set once that has been complained about.
	passed map[int]int64
	warned bool
}

// openCostBytes is about what opening a decoder costs, in decoded bytes.
const openCostBytes = 64 << 10

// assign gives a load to the decoder that comes to its piece soonest: one that
// stands or will pass before it, or a new one at the last member that begins there.
func (f *Fetcher) assign(ld *load, u budget.Urgency) bool {
	start := ld.layout.start()
	var best *decoder
	var at int64
	for _, d := range f.decoders.byShard[ld.shard] {
		if p, ok := d.placeBefore(start); ok && (best == nil || p > at) {
			best, at = d, p
		}
	}
	entry := f.index.Entry(ld.shard, start)
	if best == nil || start-at > start-entry.DecodedBytes+openCostBytes {
		full := len(f.decoders.all) >= f.config.Decoders || len(f.decoders.all) > 0 && f.decoders.held >= f.limits.decoder
		if full && !f.closeOldest() && u != budget.Demanded {
			return false
		}
		best = newDecoder(f, ld.shard, entry, scratchBytes)
		f.decoders.byShard[ld.shard] = append(f.decoders.byShard[ld.shard], best)
		f.decoders.all[best] = struct{}{}
		f.holdDecoder(best, best.memory())
	}
	ld.clock, ld.decoder, ld.via = &best.clock, best, &best.ledger
	best.add(ld)
	if !best.running {
		best.running = true
		best.clock.Store(f.now())
		f.running.Add(1)
		go f.run(best)
	}
	return true
}

// ordinal is that of a load's first record in its shard.
func (f *Fetcher) ordinal(ld *load) uint64 {
	return f.pieces.starts[ld.piece] - f.index.Shard(ld.shard).First
}

// holdDecoder notes how much memory a decoder holds; segments make room for it.
func (f *Fetcher) holdDecoder(d *decoder, bytes int64) {
	f.decoders.held += bytes - d.held
	d.held = bytes
	f.makeBudget()
}

// makeBudget leaves segments what decoders and the spool's tables don't hold, and
// half of all at least.
func (f *Fetcher) makeBudget() {
	held := f.decoders.held
	if f.spool != nil {
		held += f.spool.tables
	}
	f.cache.budget = max(f.limits.cache-held, f.limits.cache/2)
}

// pause is called when a decoder has nothing to do.
func (f *Fetcher) pause(d *decoder) {
	d.running = false
	f.wakeDecoders()
	f.decoders.tick++
	d.used = f.decoders.tick
	if d.parts && !d.member {
		f.remove(d) // the next part can be entered as well by another
		return
	}
	s := f.index.Shard(d.shard)
	if from, end := f.pieces.starts[d.piece], s.First+s.Records; from >= end || f.part.Count(from, end) == 0 {
		f.remove(d) // nothing follows that it could bring
		return
	}
	for len(f.decoders.all) > f.config.Decoders || f.decoders.held > f.limits.decoder && len(f.decoders.all) > 1 {
		if !f.closeOldest() {
			return
		}
	}
}

// closeOldest closes the decoder that has been paused the longest.
func (f *Fetcher) closeOldest() bool {
	var oldest *decoder
	for _, list := range f.decoders.byShard {
		for _, d := range list {
			if !d.running && (oldest == nil || d.used < oldest.used) {
				oldest = d
			}
		}
	}
	if oldest == nil {
		return false
	}
	f.remove(oldest)
	return true
}

// remove forgets a decoder and frees what it holds.
func (f *Fetcher) remove(d *decoder) {
	list := slices.DeleteFunc(f.decoders.byShard[d.shard], func(x *decoder) bool { return x == d })
	if len(list) == 0 {
		delete(f.decoders.byShard, d.shard)
	} else {
		f.decoders.byShard[d.shard] = list
	}
	delete(f.decoders.all, d)
	if d.dec != nil {
		d.dec.Close()
		d.dec = nil
	}
	d.raw.release()
	if !d.parts { // theirs are small, and used again
		f.discard(d.held)
	}
	f.holdDecoder(d, 0)
	f.wakeDecoders()
}

func (f *Fetcher) closeDecoders() {
	for f.closeOldest() {
	}
}

// breakShard makes an error that a checksum showed the answer to every read of
// the shard: what it gave before can't be trusted.
func (f *Fetcher) breakShard(shard int, err error) {
	f.broken[shard] = err
	s := f.index.Shard(shard)
	if s.Records == 0 {
		return
	}
	for p := f.pieces.of(s.First); p < f.pieces.len() && f.pieces.starts[p] < s.First+s.Records; p++ {
		if e := f.slots.at(p); e != nil {
			e.mem.Live.Add(-e.liveBytes())
			f.slots.set(p, nil)
		}
	}
}

// notePassed counts bytes that were decoded for nothing, and says so once.
func (f *Fetcher) notePassed(shard int, bytes int64) {
	d := &f.decoders
	d.passed[shard] += bytes
	s := f.index.Shard(shard)
	if !d.warned && d.passed[shard] > slowPasses*max(s.DecodedBytes, slowBytes) {
		d.warned = true
		f.log.Warn("reading is slow: a compressed shard of few gzip members, zstd or lz4 frames is decoded again and again, because the order jumps about in it; use the reservoir shuffle, more memory, or uncompressed shards",
			"shard", s.Object.Path, "decoded_bytes", s.DecodedBytes, "passed_over_bytes", d.passed[shard])
	}
}

const (
	slowPasses = 4
	slowBytes  = 1 << 20
)
