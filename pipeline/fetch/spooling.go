package fetch

import (
	"errors"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/fetch/budget"
	"github.com/lsiofs/lsiofs/pipeline/fetch/decode"
	"github.com/lsiofs/lsiofs/pipeline/fetch/piece"
	"github.com/lsiofs/lsiofs/pipeline/fetch/spool"
	"github.com/lsiofs/lsiofs/pipeline/fetch/strategy"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// spooling is what a spool asks of a fetcher, and tells it, without a lock of its own.
type spooling struct{ f *Fetcher }

var (
	_ spool.Owner    = spooling{}
	_ spool.Shards   = (*piece.Places)(nil)
	_ decode.Pieces  = (*piece.Places)(nil)
	_ spool.Decoders = spoolDecoders{}
	_ spool.Load     = (*load)(nil)
)

// startSpool makes the spool of a file. The decoders are there.
func (f *Fetcher) startSpool(file *spool.File) *spool.Spool {
	return spool.New(spool.Config{
		Shards: f.places, Decoders: spoolDecoders{f.decoders}, Engine: f.config.Spool.Engine, Meter: f.meter, Now: f.now, Log: f.log,
		Most:   int(min(max(f.limits.DecoderBytes/strategy.DecoderBytes, 1), int64(f.config.Decoders))),
		Charge: f.budget.Charge,
	}, file, spooling{f})
}

// spoolDecoders are a set's, for shards that are decoded whole.
type spoolDecoders struct{ *decode.Set }

func (d spoolDecoders) Whole(shard int, bufferBytes int64, clock *atomic.Int64, waits *meter.Ledger) spool.Decoder {
	return d.Set.Whole(shard, bufferBytes, clock, waits)
}

func (d spoolDecoders) End(x spool.Decoder) { d.Set.End(x.(*decode.Decoder)) }

// spools says whether a shard is of those that are read through the spool, as far
// as that works: see spool.Losses.
func (f *Fetcher) spools(shard int) bool {
	return f.choice.Spools(shard)
}

// assignSpool lets a load be read from the spool as soon as its bytes are
// there. false means that there is no room to read ahead. It is called with mu held.
func (f *Fetcher) assignSpool(ld *load, u budget.Urgency) bool {
	ld.clock = f.spool.Clock(ld.shard)
	asked, place, waits := f.spool.Ask(ld, u)
	f.cache.shrink() // for the tables of a shard that was admitted
	switch asked {
	case spool.Refused:
		return false
	case spool.Waits:
		ld.via = waits
		return true
	}
	if ld.seg, ld.off, ld.err = f.cache.alloc(ld.layout.size, u); ld.err != nil {
		f.newsOfSpool(f.spool.Leave(place))
		return ld.err != budget.ErrNoRoom
	}
	f.readSpooled(place, ld)
	return true
}

// News carries out what has become of loads.
func (w spooling) News(n spool.News) {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	w.f.newsOfSpool(n)
}

// newsOfSpool is News with mu held.
func (f *Fetcher) newsOfSpool(n spool.News) {
	if _, ok := errors.AsType[*unpack.CorruptError](n.Err); ok {
		f.breakShard(n.Shard, n.Err)
	}
	for _, l := range n.Failed {
		ld := l.(*load)
		ld.err = n.Err
		f.finishLocked(ld)
	}
	for _, l := range n.Without {
		f.assign(l.(*load), budget.Demanded)
	}
	f.cache.shrink()
	for _, x := range n.There {
		ld := x.Load.(*load)
		u := budget.Ahead
		if ld.Waited() {
			u = budget.Demanded
		}
		if ld.seg, ld.off, ld.err = f.cache.alloc(ld.layout.size, u); ld.err != nil {
			f.finishLocked(ld)
			f.newsOfSpool(f.spool.Leave(x.Place))
			continue
		}
		f.readSpooled(x.Place, ld)
	}
}

// readSpooled reads a load, whose memory is there, from the spool.
func (f *Fetcher) readSpooled(s *spool.Place, ld *load) {
	ld.spooled = s
	ld.pending.Store(1)
	ld.stage.Store(isQueued)
	f.running.Add(1)
	f.spool.Read(s, spool.Reading{Ranges: ld.layout.all(), Memory: ld.Memory(), Wanted: ld.begin, Done: func(err error) {
		if err != nil {
			ld.failed.CompareAndSwap(nil, &err)
		}
		ld.pending.Store(0)
		f.arrived(ld)
	}})
}

// WantedSoon looks at atomic counts alone.
func (w spooling) WantedSoon(shard int, missing bool) bool {
	f := w.f
	x := f.index.Shard(shard)
	for piece := f.pieces.Of(x.First); piece < f.pieces.Len() && f.pieces.Starts[piece] < x.First+x.Records; piece++ {
		if f.wanted.Wanted(piece) && !(missing && f.slots.at(piece) != nil) {
			return true
		}
	}
	return false
}

// lostInSpool is called when a load was read from the spool and is not what was written
// there, or could not be read. The shard leaves the spool, and the load is brought
// from the dataset: through the spool once more at most, so it ends.
func (f *Fetcher) lostInSpool(ld *load, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, other := range f.spool.Lost(ld.spooled, why) {
		f.bringAgain(other.(*load))
	}
	ld.seg.Pins.Unpin()
	ld.seg, ld.spooled = nil, nil
	ld.failed.Store(nil)
	ld.stage.Store(hasBegun)
	f.bringAgain(ld)
	ld.damaged = true
	f.newsOfSpool(f.spool.Admit())
}

// bringAgain gives a load of a shard that was dropped to those who can bring it. What
// was read ahead, and nobody waits for, is left to who comes to it.
func (f *Fetcher) bringAgain(ld *load) {
	switch {
	case f.closed:
		ld.err = errClosed
	case !ld.Waited():
		ld.err = errCalledOff
	case ld.damaged || f.spool.Avoids(ld.shard):
		f.assign(ld, budget.Demanded)
	default:
		f.assignSpool(ld, budget.Demanded)
	}
	if ld.err != nil {
		f.finishLocked(ld)
	}
}

// closeSpool ends what nobody brings any more, and frees the file. It is called
// with mu held when nothing runs.
func (f *Fetcher) closeSpool() error {
	if f.spool == nil {
		return nil
	}
	left, err := f.spool.Close()
	for _, l := range left {
		ld := l.(*load)
		ld.err = errClosed
		f.finishLocked(ld)
	}
	return err
}

// Shard implements spool.Load.
func (ld *load) Shard() int { return ld.shard }

// Waited says whether a reader waits for the load. It takes no lock.
func (ld *load) Waited() bool { return ld.waiters.Load() > 0 }
