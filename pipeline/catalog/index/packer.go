package index

import (
	"encoding/binary"
	"fmt"
	"math"

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
		n := markEntries(b, &l, h)
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
