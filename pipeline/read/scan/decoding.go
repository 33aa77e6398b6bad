package scan

import (
	"iter"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/decode"
)

// decoding is what decoders ask of a scanner, without a lock.
type decoding struct{ sc *Scanner }

var (
	_ decode.Work = decoding{}
	_ decode.Load = (*load)(nil)
)

// newDecoders makes the set of decoders, which is empty.
func (sc *Scanner) newDecoders() *decode.Set {
	return decode.NewSet(decode.Config{
		Index: sc.index, Pieces: sc.places, Submit: sc.submitRaw, Meter: sc.meter, Place: sc, Now: sc.now, Log: sc.log,
		Most: sc.config.Decoders, LimitBytes: sc.limits.DecoderBytes, BlockBytes: sc.limits.RawBlockBytes,
		Patience: sc.config.ReadTimeout, Hold: sc.budget.Charge, Dry: sc.config.Dry != nil,
	}, decoding{sc})
}

// assign gives a load to a decoder. It is called with mu held, so that the decoder
// does not hand it on before all is noted. false means that there is none to read
// ahead.
func (sc *Scanner) assign(ld *load, u budget.Urgency) bool {
	d := sc.decoders.Assign(ld.shard, ld, u)
	if d == nil {
		return false
	}
	ld.clock.Store(d.Clock())
	ld.decoder, ld.via = d, d.Waits()
	return true
}

// Room finds memory for a load that a decoder has come to.
func (w decoding) Room(l decode.Load) bool {
	sc, ld := w.sc, l.(*load)
	sc.mu.Lock()
	defer sc.mu.Unlock()
	u := budget.Prefetch
	if ld.Waited() {
		u = budget.Demand
	}
	if ld.seg, ld.off, ld.err = sc.cache.alloc(ld.layout.SizeBytes, u); ld.err != nil {
		sc.finishLocked(ld)
		return false
	}
	return true
}

// Passing makes a load of the piece that comes next, if some reader will
// come to it soon or all pieces fit into memory, it is not there yet and there
// is memory for it.
func (w decoding) Passing(d *decode.Decoder, piece int) decode.Load {
	sc := w.sc
	if !sc.wanted.Wanted(piece) && !(sc.config.HoldsAll && sc.places.Wants(piece)) {
		return nil
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.holds(piece) || sc.loads[piece] != nil {
		return nil
	}
	shard, l, some := sc.layoutOf(piece)
	if !some {
		return nil
	}
	ld := &load{piece: piece, shard: shard, layout: l, started: sc.now(), via: d.Waits(), done: make(chan struct{})}
	ld.clock.Store(d.Clock())
	var err error
	if ld.seg, ld.off, err = sc.cache.alloc(l.SizeBytes, budget.Opportunistic); err != nil {
		return nil
	}
	sc.loads[piece] = ld
	return ld
}

// Next is where a decoder goes on with a scan that sweeps: to the next piece that is
// wanted and not there.
func (w decoding) Next(shard, piece int) int {
	sc := w.sc
	if !sc.config.Sweeps {
		return -1
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	s := sc.index.Shard(shard)
	for ; piece < sc.pieces.Len() && sc.pieces.Starts[piece] < s.First+s.Records; piece++ {
		if sc.wanted.Wanted(piece) && !sc.holds(piece) && sc.loads[piece] == nil {
			return piece
		}
	}
	return -1
}

// Came hands on a load whose bytes are there.
func (w decoding) Came(l decode.Load) {
	ld := l.(*load)
	w.sc.addNewline(ld)
	w.sc.verify(ld)
	w.sc.finish(ld)
}

// Broken makes an error that a checksum showed the answer to every read of
// the shard: what it gave before can't be trusted.
func (w decoding) Broken(shard int, err error) {
	sc := w.sc
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.breakShard(shard, err)
}

func (sc *Scanner) breakShard(shard int, err error) {
	sc.broken[shard] = err
	s := sc.index.Shard(shard)
	if s.Records == 0 {
		return
	}
	for p := sc.pieces.Of(s.First); p < sc.pieces.Len() && sc.pieces.Starts[p] < s.First+s.Records; p++ {
		if e := sc.slots.at(p); e != nil {
			e.mem.Live.Add(-e.liveBytes())
			sc.slots.set(p, nil)
		}
	}
}

// Failed ends loads.
func (w decoding) Failed(loads []decode.Load, err error) {
	sc := w.sc
	sc.mu.Lock()
	defer sc.mu.Unlock()
	for _, l := range loads {
		ld := l.(*load)
		ld.err = err
		sc.finishLocked(ld)
	}
}

// Shrink has segments make room for what decoders hold.
func (w decoding) Shrink() {
	w.sc.mu.Lock()
	defer w.sc.mu.Unlock()
	w.sc.cache.shrink()
}

// Piece implements decode.Load, as do Bounds, Ranges and Memory.
func (ld *load) Piece() int { return ld.piece }

func (ld *load) Bounds() (start, end, reach int64) {
	return ld.layout.Start(), ld.layout.End(), ld.layout.ReachBytes
}

func (ld *load) Ranges() iter.Seq2[int64, int64] { return ld.layout.All() }

func (ld *load) Memory() []byte { return ld.seg.Bytes[ld.off:] }

// ordinal is that of a load's first record in its shard.
func (sc *Scanner) ordinal(ld *load) uint64 {
	return sc.pieces.Starts[ld.piece] - sc.index.Shard(ld.shard).First
}
