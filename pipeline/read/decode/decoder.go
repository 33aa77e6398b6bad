package decode

import (
	"fmt"
	"io"
	"sort"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/meter"
)

// Decoder reads a compressed shard once, forward, starting at the first byte of a member or at a
// point inside one. A decoder that a Set runs itself works while it has loads, keeps other needed
// pieces that it passes, and then pauses where it is. A decoder that Through
// uses is run by its caller.
type Decoder struct {
	set     *Set
	shard   int
	parts   bool  // the shard consists of parts, which begin at the offsets in the index
	ranges  bool  // its codec is a format.RangeCodec
	decoded int64 // size of the decoded shard
	entry   format.Entry
	raw     *rawReader
	own     int64           // bytes of the buffer that it decodes into; constant
	clock   atomic.Int64    // the Set's now when it last made progress
	ledger  meter.WaitClock // of its waits for storage

	// With Set.mu held.
	running bool
	waits   bool    // for memory
	asking  bool    // about piece: loads of earlier pieces are refused
	work    []*Load // by place in the shard
	at      int64   // where it will be when it looks at work next
	piece   int     // the first piece that begins there or later
	held    int64
	// reopenBytes is what it costs to open another decoder in its place, while it is paused: the
	// bytes to decode from an entry to piece, openCostBytes, and the blocks of the file that are
	// read again.
	reopenBytes int64
	soon        int // while it is paused: the piece that was found to be needed last, or -1

	// Used by the goroutine that runs the decoder or, while it is paused, with Set.mu held.
	pos     int64
	dec     format.Decoder
	member  bool  // inside a member
	begun   int64 // where the member begins
	partEnd int64 // in a shard that consists of parts: where the member ends
	turn    int64 // where its turn on the core began
	// complaint is the number of skipped bytes to report in a warning; 0 means no warning.
	complaint int64
	scratch   []byte
	// tail holds the bytes before pos with which the next piece begins, if records overlap.
	tail []byte
}

const (
	// scratchBytes is how much is skipped at a time.
	scratchBytes = 32 << 10
	// maxTurnBytes is the most that a decoder decodes before it yields the core to others: about
	// 20 ms of zstd, whose ordinary windows are smaller than half of it.
	maxTurnBytes = 16 << 20
)

func (s *Set) newDecoder(shard int, entry format.Entry, own int64) *Decoder {
	x := s.o.Index.Shard(shard)
	d := &Decoder{set: s, shard: shard, parts: x.Parts, decoded: x.DecodedBytes, entry: entry, at: entry.DecodedBytes, pos: entry.DecodedBytes, own: own}
	if s.places != nil {
		first, last := s.places.PiecesOf(shard)
		if d.piece = first; entry.DecodedBytes > 0 {
			d.piece += sort.Search(last+1-first, func(i int) bool { return s.places.StartBytes(first+i) >= entry.DecodedBytes })
		}
	}
	d.raw = newRawReader(s, x, entry.RawBytes, &d.clock, &d.ledger)
	_, d.ranges = x.Codec.(format.RangeCodec)
	return d
}

// serves makes a load wait for d.
func (d *Decoder) serves(l *Load) {
	l.clock.Store(&d.clock)
	l.waits.Store(&d.ledger)
}

// open creates the codec's decoder, unless it exists already.
func (d *Decoder) open() error {
	if d.dec != nil {
		return nil
	}
	dec, err := d.newDecoder()
	if err != nil {
		return err
	}
	if p, ok := dec.(format.PointDecoder); ok && d.set.o.Index.Shard(d.shard).Points > 0 {
		p.Expect(func(memberBytes int64) (format.Point, bool) {
			return d.set.o.Index.NextPoint(d.shard, d.begun+memberBytes)
		})
	}
	if d.entry.Point > 0 {
		if _, err := dec.Next(); err != nil {
			dec.Close()
			return err
		}
		d.member = true
		if r, ok := dec.(format.RangeDecoder); ok {
			d.set.outlines.keep(d.shard, r.Outline())
		}
		if d.parts {
			d.partEnd = d.set.o.Index.Part(d.shard, d.pos).EndBytes
		}
	}
	d.set.mu.Lock()
	d.dec = dec
	d.set.mu.Unlock()
	return nil
}

// newDecoder returns a codec's decoder that starts at the entry.
func (d *Decoder) newDecoder() (format.Decoder, error) {
	index := d.set.o.Index
	codec := index.Shard(d.shard).Codec
	if r, ok := codec.(format.RangeCodec); ok {
		start := format.RangeStart{RawBytes: d.entry.RawBytes, Records: int64(index.RecordsBefore(d.shard, d.entry.DecodedBytes))}
		if d.entry.Point > 0 {
			p := index.Point(d.shard, d.entry.Point)
			start.RawBytes, start.State = p.MemberRawBytes, p.State
			d.begun = p.DecodedBytes - p.MemberBytes
		}
		start.Outline = d.set.outlines.of(d.shard)
		return r.NewRangeDecoder(d.raw, d.raw.object.SizeBytes, start), nil
	}
	if d.entry.Point == 0 {
		return codec.NewDecoder(d.raw, d.entry.RawBytes)
	}
	at, ok := codec.(format.PointCodec)
	if !ok {
		return nil, fmt.Errorf("the index has entry points inside members of %s, where decoding can't begin: lsiofs index --rebuild makes the index again", codec.Name())
	}
	p := index.Point(d.shard, d.entry.Point)
	d.begun = p.DecodedBytes - p.MemberBytes
	return at.NewDecoderAt(d.raw, p)
}

// bring decodes a load's piece into the load's memory.
func (d *Decoder) bring(l *Load) error {
	end, reach := l.Layout.End(), l.Layout.ReachBytes
	if d.parts {
		d.raw.until = d.set.o.Index.Part(d.shard, end-1).EndRawBytes
	}
	mem := l.Memory
	to := int64(0)
	for _, r := range l.Layout.Ranges {
		if err := d.skip(r.OffsetBytes); err != nil {
			return err
		}
		p := mem[to : to+r.SizeBytes]
		if overlap := d.pos - r.OffsetBytes; overlap > int64(len(d.tail)) {
			return fmt.Errorf("a decoder is at offset %d, past what it has to decode from %d on: a defect of lsiofs, please report it", d.pos, r.OffsetBytes)
		} else if overlap > 0 {
			p = p[copy(p, d.tail[int64(len(d.tail))-overlap:]):]
		}
		if err := d.fill(p); err != nil {
			return err
		}
		to += r.SizeBytes
	}
	d.tail = append(d.tail[:0], mem[to-(end-reach):to]...)
	return d.checkEnd(l)
}

// checkEnd lets the codec verify its checksum before the piece is passed on, if the piece is
// followed by the end of a member, by a point, or by the end of the needed part of the shard. In a
// shard that consists of parts, other records may follow the piece's last record in its part.
func (d *Decoder) checkEnd(l *Load) error {
	next, entry := l.Piece+1, format.Entry{DecodedBytes: d.decoded}
	if x := d.set; x.places.AnyFrom(d.shard, next) {
		entry = x.o.Index.Entry(d.shard, x.places.StartBytes(next))
	}
	end := entry.DecodedBytes
	if d.parts { // the bytes after the part are not needed for this
		if !d.ranges && d.member && end >= d.partEnd {
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
	if entry.Point > 0 {
		return d.atPoint()
	}
	return d.endMember()
}

// atPoint lets the codec verify its checksum at a point.
func (d *Decoder) atPoint() error {
	if p, ok := d.dec.(format.PointDecoder); ok && d.pos > d.entry.DecodedBytes {
		return p.AtPoint()
	}
	return nil
}

// beginMember moves on to the next member. Parts that are not in the index, such as damaged games,
// are skipped. A part that does not begin where the index has it means that the shard has changed.
func (d *Decoder) beginMember() error {
	var part catalog.Part
	if d.parts {
		part = d.set.o.Index.Part(d.shard, d.pos)
	}
	d.begun = d.pos
	for {
		raw, err := d.dec.Next()
		if r, ok := d.dec.(format.RangeDecoder); ok && err == nil {
			d.set.outlines.keep(d.shard, r.Outline())
		}
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

// endMember lets the codec verify its checksum at the end of a member.
func (d *Decoder) endMember() error {
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

func (d *Decoder) unexpected(what string) error {
	return &format.CorruptError{Record: -1, OffsetBytes: d.pos, RawOffset: -1,
		Reason: fmt.Sprintf("the decoded shard %s here, unlike when it was indexed", what)}
}

// fill reads exactly len(p) bytes, across members.
func (d *Decoder) fill(p []byte) error {
	for len(p) > 0 {
		if !d.member {
			if err := d.beginMember(); err != nil {
				return err
			}
			d.set.makeRoom(d)
		}
		most := len(p)
		if d.parts {
			most = int(min(int64(most), d.partEnd-d.pos))
		}
		n, err := d.dec.Read(p[:most])
		d.pos += int64(n)
		d.set.decoded.Add(uint64(n))
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

// checkPart checks that a part ends at the offset in the index, once the decoder is there.
func (d *Decoder) checkPart() error {
	switch {
	case !d.parts:
	case d.pos == d.partEnd:
		return d.endMember()
	case !d.member:
		return d.unexpected("has a part that ends")
	}
	return nil
}

// skip decodes and drops everything before to.
func (d *Decoder) skip(to int64) error {
	if to > d.pos {
		d.tail = d.tail[:0] // it no longer directly precedes pos
		if d.scratch == nil {
			d.scratch = make([]byte, scratchBytes)
		}
	}
	for d.pos < to {
		if err := d.fill(d.scratch[:min(to-d.pos, scratchBytes)]); err != nil {
			return err
		}
	}
	return nil
}
