package index

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"sort"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// Packer makes the blob of one shard from its records, in file order. Besides the packed records it
// holds only one block of extents. It is for one goroutine and one shard.
type Packer struct {
	keyed, compressed bool
	most              int // bytes that may be held

	h       Header
	blocks  []byte
	data    []byte
	keys    []byte
	growth  growthTable
	pending []format.Extent // the block being filled; Growth is nil
	values  [BlockRecords]uint64
}

// NewPacker returns a Packer for a shard; keyed is whether its format has keys, compressed whether
// the shard is compressed. It holds at most mostBytes until the shard is packed.
func NewPacker(keyed, compressed bool, mostBytes int64) *Packer {
	return &Packer{keyed: keyed, compressed: compressed, most: int(min(mostBytes, MaxPackedBytes)), pending: make([]format.Extent, 0, BlockRecords)}
}

// Records returns how many records were added.
func (p *Packer) Records() uint64 { return p.h.Records }

// HeldBytes returns approximately how much memory the packed records take.
func (p *Packer) HeldBytes() int64 { return int64(p.bytes()) }

// Restart drops every record.
func (p *Packer) Restart() {
	p.h = Header{}
	p.blocks, p.data, p.keys, p.pending = p.blocks[:0], p.data[:0], p.keys[:0], p.pending[:0]
	p.growth = growthTable{}
}

// Add adds the next record. A record that no shard can have is an error: it is a defect of the
// format, and must not reach a stored index. If a shard's blob gets too large, the error is an
// *format.RefusedError.
func (p *Packer) Add(e format.Extent) error {
	if e.OffsetBytes < 0 || e.SizeBytes < 0 || e.OffsetBytes > math.MaxInt64-e.SizeBytes ||
		p.h.StreamBytes > math.MaxInt64-e.SizeBytes {
		return fmt.Errorf("record %d at offset %d has %d bytes, more than an index can hold", p.h.Records, e.OffsetBytes, e.SizeBytes)
	}
	if e.Growth != nil {
		if len(e.Growth) != format.MaxDigits {
			return fmt.Errorf("record %d tells its growth for %d digits, not %d", p.h.Records, len(e.Growth), format.MaxDigits)
		}
		p.growth.add(p.h.Records, e.Growth)
		e.Growth = nil
	}
	if p.keyed {
		p.keys = binary.LittleEndian.AppendUint64(p.keys, e.KeyHash)
	}
	p.h.Records++
	p.h.StreamBytes += e.SizeBytes
	p.pending = append(p.pending, e)
	if len(p.pending) < BlockRecords {
		return nil
	}
	p.flush()
	if p.bytes() > p.most {
		return &format.RefusedError{OffsetBytes: e.OffsetBytes, Reason: fmt.Sprintf(
			"the first %d records take more than the %s of --memory that a shard's index may have: raise --memory, or split the shard", p.h.Records, humanize.IBytes(uint64(p.most)))}
	}
	return nil
}

// MaxPackedBytes bounds what is held of a shard until it is packed, however much memory is
// configured: 10⁸ records of tar, 10⁹ lines.
const MaxPackedBytes = 1 << 30

// bytes returns approximately how much is held.
func (p *Packer) bytes() int {
	return len(p.blocks) + len(p.data) + len(p.keys) + 2*len(p.growth.vectors) + 12*len(p.growth.ordinals)
}

// flush packs the pending block.
func (p *Packer) flush() {
	n := len(p.pending)
	if n == 0 {
		return
	}
	at := uint64(len(p.data))
	sizeBase, sizeWidth := p.pack(n, func(i int) int64 { return p.pending[i].SizeBytes })
	gapBase, gapWidth := p.pack(n-1, func(i int) int64 {
		e := p.pending[i]
		return p.pending[i+1].OffsetBytes - (e.OffsetBytes + e.SizeBytes)
	})
	b := binary.LittleEndian.AppendUint64(p.blocks, uint64(p.pending[0].OffsetBytes))
	b = binary.LittleEndian.AppendUint64(b, uint64(sizeBase))
	b = binary.LittleEndian.AppendUint64(b, uint64(gapBase))
	p.blocks = binary.LittleEndian.AppendUint64(b, at<<16|uint64(sizeWidth)<<8|uint64(gapWidth))
	p.pending = p.pending[:0]
}

// pack appends n values as differences from the smallest of them.
func (p *Packer) pack(n int, value func(int) int64) (base int64, bits uint) {
	if n == 0 {
		return 0, 0
	}
	base = value(0)
	for i := 1; i < n; i++ {
		base = min(base, value(i))
	}
	var all uint64
	for i := range n {
		p.values[i] = uint64(value(i)) - uint64(base)
		all |= p.values[i]
	}
	bits = width(all)
	p.data = appendBits(p.data, bits, p.values[:n])
	return base, bits
}

// Finish returns the shard's blob. Damage is recorded as what was left out.
func (p *Packer) Finish(s format.Summary) (Blob, error) {
	p.flush()
	h := &p.h
	h.DecodedBytes = s.DecodedBytes
	h.EntryPoints = h.Records
	h.dataBytes = uint64(len(p.data))
	h.growthVectors, h.growthRecords = uint64(len(p.growth.index)), uint64(len(p.growth.ordinals))
	if p.keyed {
		h.flags |= flagKeyed
	}
	if p.compressed {
		h.flags |= flagCompressed
		h.Members, h.Points = uint64(len(s.Members)), uint64(len(s.Points))
		h.flags |= uint32(min((s.DecoderBytes+decoderUnit-1)/decoderUnit, mostDecoderUnits)) << decoderShift
		for _, x := range s.Points {
			h.flags |= flagPoints
			h.stateBytes += uint64(len(x.State))
		}
	}
	var damage []byte
	if s.Parts {
		h.flags |= flagParts
	}
	if lost := s.Lost(); len(lost.First) > 0 {
		h.flags |= flagDamaged
		if damage = appendDamage(nil, lost.First[0]); s.Parts {
			damage = appendLosses(nil, &lost)
		}
		h.damageBytes = uint64(len(damage))
	}
	if len(s.Kind) > format.MaxKindBytes {
		return nil, fmt.Errorf("the description of the records has %d bytes, more than an index can hold", len(s.Kind))
	}
	h.kindBytes = uint32(len(s.Kind))
	b, l := p.assemble(s.Members, damage)
	copy(b[l.kind:], s.Kind)
	if p.compressed {
		b.putPoints(&l, s.Points)
		n := h.Records
		if s.EveryRecord {
			markAll(b, &l, h)
		} else {
			n = markEntries(b, &l, h)
		}
		binary.LittleEndian.PutUint64(b[24:], n)
	}
	if err := b.check(); err != nil {
		return nil, fmt.Errorf("packing %d records: %w", h.Records, err)
	}
	return b, nil
}

// assemble writes all parts except the entry bits.
func (p *Packer) assemble(members []format.Member, damage []byte) (Blob, layout) {
	l := p.h.layout()
	b := make([]byte, l.end)
	p.h.append(b[:0])
	// The offsets of the data were relative to its beginning, which is known now.
	copy(b[l.blocks:], p.blocks)
	for i := range blockCount(p.h.Records) {
		where := b[l.blocks+i*blockBytes+24:]
		binary.LittleEndian.PutUint64(where, binary.LittleEndian.Uint64(where)+l.data<<16)
	}
	copy(b[l.keys:], p.keys)
	p.growth.put(b, &l)
	if p.compressed {
		for i, m := range members {
			binary.LittleEndian.PutUint64(b[l.members+16*uint64(i):], uint64(m.DecodedBytes))
			binary.LittleEndian.PutUint64(b[l.members+16*uint64(i)+8:], uint64(m.RawBytes))
		}
	}
	copy(b[l.damage:], damage)
	copy(b[l.data:], p.data)
	return b, l
}

// markAll sets the bits of all records.
func markAll(b Blob, l *layout, h *Header) {
	for o := uint64(0); o < h.Records; o += 64 {
		w := ^uint64(0)
		if left := h.Records - o; left < 64 {
			w = 1<<left - 1
		}
		binary.LittleEndian.PutUint64(b[l.entries+o>>3:], w)
	}
}

// markEntries sets the bit of the first record, and of each record that begins where a member does,
// or that is the first one left of a part. It returns the number of bits set.
func markEntries(b Blob, l *layout, h *Header) uint64 {
	var n, m uint64
	parts := h.flags&flagParts != 0
	for first := uint64(0); first < h.Records; first += BlockRecords {
		k, _ := b.BlockOf(first, h.Records)
		at := k.offsetBytes
		for j := range k.Records {
			begins := false
			for m < h.Members && int64(b.word(l.members+16*m)) < at {
				m++
				begins = parts
			}
			if m < h.Members && int64(b.word(l.members+16*m)) == at {
				begins = true
				if parts {
					m++
				}
			}
			if o := first + j; begins || o == 0 {
				w := b[l.entries+o>>6<<3:]
				binary.LittleEndian.PutUint64(w, binary.LittleEndian.Uint64(w)|1<<(o&63))
				n++
			}
			if j+1 < k.Records {
				at += k.Size(j) + k.Gap(j)
			}
		}
	}
	return n
}

// growthTable holds the distinct growth vectors of a shard, and the vector of each record that has
// one: few records do, and vectors repeat.
type growthTable struct {
	index    map[[format.MaxDigits]int64]uint32
	vectors  []byte
	ordinals []uint64
	which    []uint32
}

func (t *growthTable) add(ordinal uint64, growth []int64) {
	v := [format.MaxDigits]int64(growth)
	i, ok := t.index[v]
	if !ok {
		if t.index == nil {
			t.index = map[[format.MaxDigits]int64]uint32{}
		}
		i = uint32(len(t.index))
		t.index[v] = i
		for _, g := range growth {
			t.vectors = binary.LittleEndian.AppendUint64(t.vectors, uint64(g))
		}
	}
	t.ordinals = append(t.ordinals, ordinal)
	t.which = append(t.which, i)
}

func (t *growthTable) put(b []byte, l *layout) {
	copy(b[l.vectors:], t.vectors)
	for i, o := range t.ordinals {
		binary.LittleEndian.PutUint64(b[l.growthOrdinals+8*uint64(i):], o)
		binary.LittleEndian.PutUint32(b[l.growthIndexes+4*uint64(i):], t.which[i])
	}
}

// Bit fields: value i of an area of width w occupies bits [i·w, (i+1)·w), counted from the lowest
// bit of the area's first byte. Areas begin at a byte.

// appendBits appends the lowest width bits of each value to dst.
func appendBits(dst []byte, width uint, values []uint64) []byte {
	if width == 0 {
		return dst
	}
	var acc uint64 // bits not written yet, fewer than 8 between values
	var held uint
	for _, v := range values {
		acc |= v << held
		n := held + width
		if n < 64 {
			held = n
		} else {
			dst = binary.LittleEndian.AppendUint64(dst, acc)
			acc, held = 0, n-64
			if held > 0 {
				acc = v >> (width - held)
			}
		}
		for held >= 8 {
			dst = append(dst, byte(acc))
			acc >>= 8
			held -= 8
		}
	}
	if held > 0 {
		dst = append(dst, byte(acc))
	}
	return dst
}

// bitsBytes returns the size in bytes of an area of n values.
func bitsBytes(n uint64, width uint) uint64 { return (n*uint64(width) + 7) / 8 }

// bitsAt returns value i of the area that begins at byte from of b. It panics if the value is
// outside b.
func bitsAt(b []byte, from uint64, width uint, i uint64) uint64 {
	bit := i * uint64(width)
	at, shift := from+bit>>3, uint(bit&7)
	if at+8 > uint64(len(b)) || shift+width > 64 {
		return bitsAtEdge(b, at, shift, width)
	}
	return binary.LittleEndian.Uint64(b[at:]) >> shift & (1<<width - 1)
}

// bitsAtEdge is bitsAt for values with fewer than 8 bytes left to load, or that span 9 bytes.
func bitsAtEdge(b []byte, at uint64, shift, width uint) uint64 {
	need := (uint64(shift+width) + 7) / 8
	var buf [9]byte
	copy(buf[:], b[at:at+need])
	v := binary.LittleEndian.Uint64(buf[:]) >> shift
	if shift+width > 64 {
		v |= uint64(buf[8]) << (64 - shift)
	}
	return v & (1<<width - 1)
}

// sumBits returns the sum of values [0, n) of an area, processing several per load.
func sumBits(b []byte, from uint64, width uint, n uint64) (sum uint64) {
	if width == 0 {
		return 0
	}
	var i uint64
	if width <= 28 { // at least two in the 57 bits that every load provides
		per, mask := uint64(57/width), uint64(1)<<width-1
		for ; i+per <= n; i += per {
			bit := i * uint64(width)
			at := from + bit>>3
			if at+8 > uint64(len(b)) {
				break
			}
			v := binary.LittleEndian.Uint64(b[at:]) >> (bit & 7)
			for range per {
				sum += v & mask
				v >>= width
			}
		}
	}
	for ; i < n; i++ {
		sum += bitsAt(b, from, width, i)
	}
	return sum
}

// addBits sets dst to base plus values [0, len(dst)) of an area.
func addBits(dst []int64, b []byte, from uint64, width uint, base int64) {
	i, n := 0, len(dst)
	if width > 0 && width <= 28 {
		per, mask := int(57/width), uint64(1)<<width-1
		for ; i+per <= n; i += per {
			bit := uint64(i) * uint64(width)
			at := from + bit>>3
			if at+8 > uint64(len(b)) {
				break
			}
			v := binary.LittleEndian.Uint64(b[at:]) >> (bit & 7)
			for k := range dst[i : i+per] {
				dst[i+k] = base + int64(v&mask)
				v >>= width
			}
		}
	}
	for ; i < n; i++ {
		dst[i] = base + int64(bitsAt(b, from, width, uint64(i)))
	}
}

// width returns the number of bits that v needs.
func width(v uint64) uint { return uint(bits.Len64(v)) }

// storedPointBytes is the size of a point without its state: offset in the decoded shard, in the
// file in bits, u32 checksum, u32 size of its state, and the state's offset among the states.
const storedPointBytes = 4 * 8

// pointCountsBytes is the size of the counts at the end of a blob with points.
const pointCountsBytes = 2 * 8

// point returns the i-th point, without its state and its member.
func (b Blob) point(l *layout, i uint64) format.Point {
	at := l.points + storedPointBytes*i
	return format.Point{DecodedBytes: int64(b.word(at)), RawBits: int64(b.word(at + 8)), CRC32: uint32(b.word(at + 16))}
}

// stateOf returns the location of the state of the i-th point.
func (b Blob) stateOf(l *layout, i uint64) (from, size uint64) {
	at := l.points + storedPointBytes*i
	return b.word(at + 24), b.word(at+16) >> 32
}

// pointsUpTo returns how many points are at or before a byte.
func (b Blob) pointsUpTo(h *Header, l *layout, decodedBytes int64) uint64 {
	return uint64(sort.Search(int(h.Points), func(i int) bool { return b.point(l, uint64(i)).DecodedBytes > decodedBytes }))
}

// Point returns a point by its number, from 1, as in an Entry of this blob. Its State is a slice of
// the blob.
func (b Blob) Point(number int) format.Point {
	h := b.Header()
	l := h.layout()
	p := b.placed(&h, &l, uint64(number)-1)
	from, size := b.stateOf(&l, uint64(number)-1)
	p.State = b[l.states+from:][:size:size]
	return p
}

// NextPoint returns the first point after a byte of the decoded shard, without its State; false if
// there is none.
func (b Blob) NextPoint(decodedBytes int64) (format.Point, bool) {
	h := b.Header()
	l := h.layout()
	i := b.pointsUpTo(&h, &l, decodedBytes)
	if i == h.Points {
		return format.Point{}, false
	}
	return b.placed(&h, &l, i), true
}

// PointBytes returns how many bytes of the blob points take.
func (b Blob) PointBytes() int64 {
	h := b.Header()
	return int64(h.Points*storedPointBytes + h.stateBytes)
}

// placed returns the i-th point, with its member.
func (b Blob) placed(h *Header, l *layout, i uint64) format.Point {
	p := b.point(l, i)
	member := b.member(l, b.membersUpTo(h, l, p.DecodedBytes)-1)
	p.MemberBytes, p.MemberRawBytes = p.DecodedBytes-member.DecodedBytes, member.RawBytes
	return p
}

// checkPoints reports whether the points are in order, each in a member, and their states inside
// the blob.
func (b Blob) checkPoints(h *Header, l *layout) bool {
	decoded, raw, states := int64(-1), int64(-1), uint64(0)
	for i := range h.Points {
		p := b.point(l, i)
		from, size := b.stateOf(l, i)
		if p.DecodedBytes <= decoded || p.RawBits <= raw || p.DecodedBytes > h.DecodedBytes ||
			from != states || size > format.MaxStateBytes || size > h.stateBytes-states || b.membersUpTo(h, l, p.DecodedBytes) == 0 {
			return false
		}
		decoded, raw, states = p.DecodedBytes, p.RawBits, states+size
	}
	return states == h.stateBytes && (h.Points > 0) == (h.flags&flagPoints != 0)
}

// putPoints writes points to their parts.
func (b Blob) putPoints(l *layout, points []format.Point) {
	if len(points) == 0 {
		return
	}
	states := uint64(0)
	for i, p := range points {
		at := b[l.points+storedPointBytes*uint64(i):]
		binary.LittleEndian.PutUint64(at, uint64(p.DecodedBytes))
		binary.LittleEndian.PutUint64(at[8:], uint64(p.RawBits))
		binary.LittleEndian.PutUint64(at[16:], uint64(len(p.State))<<32|uint64(p.CRC32))
		binary.LittleEndian.PutUint64(at[24:], states)
		copy(b[l.states+states:], p.State)
		states += uint64(len(p.State))
	}
	binary.LittleEndian.PutUint64(b[l.counts:], uint64(len(points)))
	binary.LittleEndian.PutUint64(b[l.counts+8:], states)
}
