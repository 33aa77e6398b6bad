package fetch

import (
	"iter"

	"github.com/lsiofs/lsiofs/pipeline/fetch/budget"
	"github.com/lsiofs/lsiofs/pipeline/fetch/decode"
)

// decoding is what decoders ask of a fetcher, without a lock.
type decoding struct{ f *Fetcher }

var (
	_ decode.Work = decoding{}
	_ decode.Load = (*load)(nil)
)

// newDecoders makes the set of decoders, which is empty.
func (f *Fetcher) newDecoders() *decode.Set {
	return decode.NewSet(decode.Config{
		Index: f.index, Pieces: f.places, Submit: f.submitReads, Meter: f.meter, Place: f, Now: f.now, Log: f.log,
		Most: f.config.Decoders, LimitBytes: f.limits.DecoderBytes, BlockBytes: f.limits.RawBlockBytes,
		Patience: f.config.ReadTimeout, Hold: f.budget.Charge,
	}, decoding{f})
}

// assign gives a load to a decoder. It is called with mu held, so that the decoder
// does not hand it on before all is noted. false means that there is none to read
// ahead.
func (f *Fetcher) assign(ld *load, u budget.Urgency) bool {
	d := f.decoders.Assign(ld.shard, ld, u)
	if d == nil {
		return false
	}
	ld.clock, ld.decoder, ld.via = d.Clock(), d, d.Waits()
	return true
}

// Room finds memory for a load that a decoder has come to.
func (w decoding) Room(l decode.Load) bool {
	f, ld := w.f, l.(*load)
	f.mu.Lock()
	defer f.mu.Unlock()
	u := budget.Ahead
	if ld.Waited() {
		u = budget.Demanded
	}
	if ld.seg, ld.off, ld.err = f.cache.alloc(ld.layout.size, u); ld.err != nil {
		f.finishLocked(ld)
		return false
	}
	return true
}

// Passing makes a load of the piece that comes next, if some reader will
// come to it soon or all pieces fit into memory, it is not there yet and there
// is memory for it.
func (w decoding) Passing(d *decode.Decoder, piece int) decode.Load {
	f := w.f
	if !f.wanted.Wanted(piece) && !(f.holdsAll && f.wants(piece)) {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.slots.at(piece) != nil || f.loads[piece] != nil {
		return nil
	}
	shard, l := f.layoutOf(piece)
	ld := &load{piece: piece, shard: shard, layout: l, started: f.now(), clock: d.Clock(), via: d.Waits(), done: make(chan struct{})}
	var err error
	if ld.seg, ld.off, err = f.cache.alloc(l.size, budget.InPassing); err != nil {
		return nil
	}
	f.loads[piece] = ld
	return ld
}

// Next is where a decoder goes on with a scan that sweeps: to the next piece that is
// wanted and not there.
func (w decoding) Next(shard, piece int) int {
	f := w.f
	if !f.sweeps {
		return -1
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.index.Shard(shard)
	for ; piece < f.pieces.Len() && f.pieces.Starts[piece] < s.First+s.Records; piece++ {
		if f.wanted.Wanted(piece) && f.slots.at(piece) == nil && f.loads[piece] == nil {
			return piece
		}
	}
	return -1
}

// Came hands on a load whose bytes are there.
func (w decoding) Came(l decode.Load) {
	ld := l.(*load)
	ld.addNewline()
	w.f.verify(ld)
	w.f.finish(ld)
}

// Broken makes an error that a checksum showed the answer to every read of
// the shard: what it gave before can't be trusted.
func (w decoding) Broken(shard int, err error) {
	f := w.f
	f.mu.Lock()
	defer f.mu.Unlock()
	f.breakShard(shard, err)
}

func (f *Fetcher) breakShard(shard int, err error) {
	f.broken[shard] = err
	s := f.index.Shard(shard)
	if s.Records == 0 {
		return
	}
	for p := f.pieces.Of(s.First); p < f.pieces.Len() && f.pieces.Starts[p] < s.First+s.Records; p++ {
		if e := f.slots.at(p); e != nil {
			e.mem.Live.Add(-e.liveBytes())
			f.slots.set(p, nil)
		}
	}
}

// Failed ends loads.
func (w decoding) Failed(loads []decode.Load, err error) {
	f := w.f
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range loads {
		ld := l.(*load)
		ld.err = err
		f.finishLocked(ld)
	}
}

// Shrink has segments make room for what decoders hold.
func (w decoding) Shrink() {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	w.f.cache.shrink()
}

// Piece implements decode.Load, as do Bounds, Ranges and Memory.
func (ld *load) Piece() int { return ld.piece }

func (ld *load) Bounds() (start, end, reach int64) {
	return ld.layout.start(), ld.layout.end(), ld.layout.reach
}

func (ld *load) Ranges() iter.Seq2[int64, int64] { return ld.layout.all() }

func (ld *load) Memory() []byte { return ld.seg.Bytes[ld.off:] }

// ordinal is that of a load's first record in its shard.
func (f *Fetcher) ordinal(ld *load) uint64 {
	return f.pieces.Starts[ld.piece] - f.index.Shard(ld.shard).First
}
