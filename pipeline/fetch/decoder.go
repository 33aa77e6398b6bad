package fetch

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/fetch/budget"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// decoder goes through a compressed shard once, forward, from the first byte of
// a member.
// It works while it has loads to bring, keeps on its way what else is wanted,
// and pauses where it is.
type decoder struct {
	shard   int
	parts   bool  // the shard is made of parts, which begin where the index has them
	decoded int64 // size of the decoded shard
	entry   unpack.Entry
	raw     *rawReader
	clock   atomic.Int64 // Fetcher.now when it last got on
	ledger  meter.Ledger // of its waits for storage

	// With Fetcher.mu held.
	running bool
	waits   bool    // for memory
	work    []*load // by place in the shard
	at      int64   // where it will be when it looks at work next
	piece   int     // the first piece that begins there or later
	used    uint64  // when it was paused
	held    int64
	own     int64 // bytes of the buffer that it decodes to; constant

	// The goroutine's that runs it, or, while it is paused, with mu held.
	pos     int64
	dec     unpack.Decoder
	member  bool  // inside of a member
	partEnd int64 // of a shard made of parts: where the member ends
	turn    int64 // where its turn on the processor began
	scratch []byte
	// tail are the bytes before pos with which the piece that follows begins,
	// where records overlap.
	tail []byte
}

const (
	// scratchBytes is what is passed over at a time.
	scratchBytes = 32 << 10
	// maxTurnBytes is what a decoder decodes at most before others have the
	// processor: some 20 ms of zstd, whose ordinary windows are below half of it.
	maxTurnBytes = 16 << 20
)

func newDecoder(f *Fetcher, shard int, entry unpack.Entry, own int64) *decoder {
	s := f.index.Shard(shard)
	d := &decoder{shard: shard, parts: s.Parts, decoded: s.DecodedBytes, entry: entry, at: entry.DecodedBytes, pos: entry.DecodedBytes, own: own}
	if d.piece = f.pieces.of(s.First); entry.DecodedBytes > 0 {
		end := f.pieces.of(s.First+s.Records-1) + 1
		d.piece += sort.Search(end-d.piece, func(i int) bool { return f.pieceStart(d.piece+i) >= entry.DecodedBytes })
	}
	d.raw = newRawReader(f, s, entry.RawBytes, &d.clock, &d.ledger)
	return d
}

// placeBefore is the last place at or before start where the decoder stands or
// will pass with something to bring.
func (d *decoder) placeBefore(start int64) (int64, bool) {
	if d.at > start {
		return 0, false
	}
	p := d.at
	for _, ld := range d.work {
		if ld.layout.reach <= start {
			p = max(p, ld.layout.reach)
		}
	}
	return p, true
}

func (d *decoder) add(ld *load) {
	i, _ := slices.BinarySearchFunc(d.work, ld.piece, func(x *load, piece int) int { return x.piece - piece })
	d.work = slices.Insert(d.work, i, ld)
}

// run brings the decoder's loads, one after the other, until there are no more.
func (f *Fetcher) run(d *decoder) {
	defer f.running.Done()
	f.meter.Queued[meter.Decompress].Add(1)
	defer f.meter.Queued[meter.Decompress].Add(-1)
	f.takeCore()
	defer f.giveCore()
	d.turn = d.pos
	for {
		f.mu.Lock()
		if f.closed {
			f.fail(d, nil, errClosed)
			f.mu.Unlock()
			return
		}
		ld, to := f.next(d)
		if ld == nil && to == d.pos {
			f.pause(d)
			f.mu.Unlock()
			return
		}
		d.at = to
		f.mu.Unlock()

		err := d.open(f)
		if err == nil && ld != nil {
			err = f.bring(d, ld)
		} else if err == nil {
			err = d.skip(to)
		}
		if err != nil {
			f.mu.Lock()
			f.fail(d, ld, err)
			f.mu.Unlock()
			return
		}
		f.yield(d)
	}
}

// yield lets others have the processor between two pieces, after a turn of twice
// the bytes that the decoder holds: what a window has left the processor's cache
// for comes in again once a turn. Seven decoders with windows of 8 MiB took
// twice the time in turns of a piece each.
func (f *Fetcher) yield(d *decoder) {
	if d.pos-d.turn < min(2*d.memory(), maxTurnBytes) {
		return
	}
	f.giveCore()
	f.takeCore()
	d.turn = d.pos
}

// next decides, with mu held, what the decoder does from where it stands:
// bring a load, whose memory is then there, and be at its end; or pass over
// what nobody wants, to some place. With neither it is to pause.
func (f *Fetcher) next(d *decoder) (*load, int64) {
	for len(d.work) > 0 {
		ld := d.work[0]
		if d.piece < ld.piece {
			if passing := f.keepInPassing(d); passing != nil {
				return passing, passing.layout.reach
			}
			// Piece by piece, so that loads in between can still be given to it.
			d.piece++
			if to := f.pieceStart(d.piece); to > d.pos {
				f.notePassed(d.shard, to-d.pos)
				return nil, to
			}
			continue
		}
		d.work = d.work[1:]
		d.piece = ld.piece + 1
		u := budget.Ahead
		if ld.waiters > 0 {
			u = budget.Demanded
		}
		if ld.seg, ld.off, ld.err = f.cache.alloc(ld.layout.size, u); ld.err != nil {
			f.finishLocked(ld)
			continue
		}
		return ld, ld.layout.reach
	}
	return f.sweepOn(d)
}

// sweepOn is next where nobody waits for a load of the decoder: with a scan that
// sweeps it goes on to the next piece that is wanted and not there, while there
// is memory.
func (f *Fetcher) sweepOn(d *decoder) (*load, int64) {
	if !f.looking.sweeps {
		return nil, d.pos
	}
	s := f.index.Shard(d.shard)
	for piece := d.piece; piece < f.pieces.len() && f.pieces.starts[piece] < s.First+s.Records; piece++ {
		if f.wanted[piece].Load() <= 0 || f.slots.at(piece) != nil || f.loads[piece] != nil {
			continue
		}
		if to := f.pieceStart(piece); piece > d.piece && to > d.pos {
			d.piece = piece
			f.notePassed(d.shard, to-d.pos)
			return nil, to
		}
		d.piece = piece
		if passing := f.keepInPassing(d); passing != nil {
			return passing, passing.layout.reach
		}
		break
	}
	return nil, d.pos
}

// keepInPassing makes a load of the piece that comes next, if some reader will
// come to it soon or all pieces fit into memory, it is not there yet and there
// is memory for it.
func (f *Fetcher) keepInPassing(d *decoder) *load {
	if f.wanted[d.piece].Load() <= 0 && !(f.holdsAll && f.wants(d.piece)) || f.slots.at(d.piece) != nil || f.loads[d.piece] != nil {
		return nil
	}
	shard, l := f.layoutOf(d.piece)
	ld := &load{piece: d.piece, shard: shard, layout: l, started: f.now(), clock: &d.clock, via: &d.ledger, done: make(chan struct{})}
	var err error
	if ld.seg, ld.off, err = f.cache.alloc(l.size, budget.InPassing); err != nil {
		return nil
	}
	f.loads[d.piece] = ld
	d.piece++
	return ld
}

// pieceStart is where a piece begins in its decoded shard.
func (f *Fetcher) pieceStart(piece int) int64 {
	var x [1]catalog.Extent
	f.index.Extents(f.pieces.starts[piece:piece+1], x[:])
	return x[0].OffsetBytes
}

// open makes the decoder, where there is none yet.
func (d *decoder) open(f *Fetcher) error {
	if d.dec != nil {
		return nil
	}
	dec, err := f.index.Shard(d.shard).Codec.NewDecoder(d.raw, d.entry.RawBytes)
	if err != nil {
		return err
	}
	f.mu.Lock()
	d.dec = dec
	f.mu.Unlock()
	return nil
}

// bring decodes a load's piece to its memory.
func (f *Fetcher) bring(d *decoder, ld *load) error {
	to := ld.off
	if d.parts {
		d.raw.until = f.index.Part(d.shard, ld.layout.end()-1).EndRawBytes
	}
	for _, r := range ld.layout.ranges {
		if err := d.skip(r.off); err != nil {
			return err
		}
		mem := ld.seg.Bytes[to : to+r.size]
		if overlap := d.pos - r.off; overlap > 0 {
			mem = mem[copy(mem, d.tail[int64(len(d.tail))-overlap:]):]
		}
		if err := d.fill(mem); err != nil {
			return err
		}
		to += r.size
	}
	d.tail = append(d.tail[:0], ld.seg.Bytes[to-(ld.layout.end()-ld.layout.reach):to]...)
	if err := d.checkEnd(f, ld); err != nil {
		return err
	}
	ld.addNewline()
	f.verify(ld)
	f.mu.Lock()
	f.holdDecoder(d, d.memory())
	f.finishLocked(ld)
	f.mu.Unlock()
	return nil
}

// checkEnd lets the codec look at its checksum, where a member ends behind a
// piece, or the shard, as far as anything of it is wanted, before the piece is
// handed on. Behind the piece's last record of the part there may be others.
func (d *decoder) checkEnd(f *Fetcher, ld *load) error {
	s := f.index.Shard(d.shard)
	next := f.pieces.starts[ld.piece+1]
	end := d.decoded
	if f.part.Count(next, s.First+s.Records) > 0 {
		end = f.index.Entry(d.shard, f.pieceStart(ld.piece+1)).DecodedBytes
	}
	if d.parts { // what lies behind the part is of no use to it
		if d.member && end >= d.partEnd {
			return d.skip(d.partEnd)
		}
		return nil
	}
	if end < d.pos {
		return nil
	}
	if err := d.skip(end); err != nil {
		return err
	}
	return d.endMember()
}

// beginMember goes on to the next member. Parts that are not in the index, such as
// damaged games, are passed over; what does not begin where the index has it has
// changed.
func (d *decoder) beginMember() error {
	var part catalog.Part
	if d.parts {
		part = d.raw.f.index.Part(d.shard, d.pos)
	}
	for {
		raw, err := d.dec.Next()
		switch {
		case err == io.EOF:
			return d.unexpected("ends")
		case err != nil:
			return err
		case d.parts && raw < part.RawBytes:
			continue
		case d.parts && (raw > part.RawBytes || d.pos != part.DecodedBytes):
			return d.unexpected("has another part")
		}
		d.member, d.partEnd = true, part.EndBytes
		return nil
	}
}

// endMember lets the codec look at its checksum, where a member ends.
func (d *decoder) endMember() error {
	var one [1]byte
	for d.member {
		n, err := d.dec.Read(one[:])
		if n > 0 {
			return d.unexpected("goes on")
		}
		if err == io.EOF {
			d.member = false
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) unexpected(what string) error {
	return &unpack.CorruptError{Record: -1, OffsetBytes: d.pos, RawOffset: -1,
		Reason: fmt.Sprintf("the decoded shard %s here, which it did not when it was indexed", what)}
}

// fill reads exactly len(p) bytes, across members.
func (d *decoder) fill(p []byte) error {
	for len(p) > 0 {
		if !d.member {
			if err := d.beginMember(); err != nil {
				return err
			}
			d.raw.f.makeRoom(d)
		}
		most := len(p)
		if d.parts {
			most = int(min(int64(most), d.partEnd-d.pos))
		}
		n, err := d.dec.Read(p[:most])
		d.pos += int64(n)
		d.raw.f.counts.decoded.Add(uint64(n))
		p = p[n:]
		if err == io.EOF {
			d.member = false
		} else if err != nil {
			return err
		}
		if err := d.checkPart(); err != nil {
			return err
		}
	}
	return nil
}

// checkPart checks that a part ends where the index says, once it has come there.
func (d *decoder) checkPart() error {
	switch {
	case !d.parts:
	case d.pos == d.partEnd:
		return d.endMember()
	case !d.member:
		return d.unexpected("has a part that ends")
	}
	return nil
}

// skip passes over everything before to.
func (d *decoder) skip(to int64) error {
	if to > d.pos && d.scratch == nil {
		d.scratch = make([]byte, scratchBytes)
	}
	for d.pos < to {
		if err := d.fill(d.scratch[:min(to-d.pos, scratchBytes)]); err != nil {
			return err
		}
	}
	return nil
}

// fail ends a decoder and all its loads, with mu held.
func (f *Fetcher) fail(d *decoder, ld *load, err error) {
	if _, ok := errors.AsType[*unpack.CorruptError](err); ok {
		f.breakShard(d.shard, err)
	}
	work := d.work
	if ld != nil {
		work = append([]*load{ld}, work...)
	}
	d.work = nil
	for _, ld := range work {
		ld.err = err
		f.finishLocked(ld)
	}
	d.running = false
	f.remove(d)
}
