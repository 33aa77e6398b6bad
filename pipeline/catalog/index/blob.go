package index

import (
	"encoding/binary"
	"errors"
	"sort"

	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// Blob is one shard's index, packed, at whatever place it lies: in the heap, a
// journal, a sealed index. doc.go has the layout. It is not changed by anybody, and
// lives as long as the Image or the Build that gave it.
//
// Ordinals are those of the shard's records, from 0; one that the shard does not
// have panics. Bytes are those of the decoded shard.
type Blob []byte

const (
	blobHeaderBytes = 10 * 8
	growthBytes     = unpack.MaxDigits * 8
)

// Flags of a shard.
const (
	flagKeyed      = 1 << iota // key hashes follow
	flagCompressed             // members and entry bits follow
	flagDamaged                // something was left out; damage follows
	flagUnreadable             // of earlier versions: it could not be read, and is not used
	flagParts                  // members are parts: each begins an entry, and damage is a list
	flagPoints                 // points follow at its end
)

// The upper half of the flags is the memory of a decoder, in units, rounded up.
const (
	decoderShift     = 16
	mostDecoderUnits = 1<<16 - 1
	decoderUnit      = 64 << 10
)

// Header is what a blob begins with.
type Header struct {
	Records      uint64
	DecodedBytes int64
	StreamBytes  int64  // sum of the records' sizes
	EntryPoints  uint64 // records at which reading can start
	Members      uint64 // of a compressed shard: places where decoding can start
	Points       uint64 // others, inside of members
	DecoderBytes int64  // about what a decoder of it holds at most; 0: not known

	flags         uint32
	kindBytes     uint32 // of the kind, without padding
	growthVectors uint64
	growthRecords uint64
	damageBytes   uint64 // of the damage part, without padding
	dataBytes     uint64 // of the packed sizes and gaps, without padding
	stateBytes    uint64 // of what decoders need at points, without padding
}

// Compressed says whether the shard is, so that it has members and Entries.
func (h *Header) Compressed() bool { return h.flags&flagCompressed != 0 }

// Parts says whether the shard is made of parts: each member is one, and a record in
// it is an entry point.
func (h *Header) Parts() bool { return h.flags&flagParts != 0 }

// Damaged says whether something was left out: Blob.Losses has it.
func (h *Header) Damaged() bool { return h.flags&flagDamaged != 0 }

// Unreadable says whether an earlier version could not read the shard, and left it out.
func (h *Header) Unreadable() bool { return h.flags&flagUnreadable != 0 }

func (h *Header) append(dst []byte) []byte {
	for _, v := range []uint64{h.Records, uint64(h.DecodedBytes), uint64(h.StreamBytes), h.EntryPoints,
		uint64(h.kindBytes)<<32 | uint64(h.flags),
		h.Members, h.growthVectors, h.growthRecords, h.damageBytes, h.dataBytes} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	return dst
}

func (b Blob) word(at uint64) uint64 { return binary.LittleEndian.Uint64(b[at:]) }

// Header reads the blob's header.
func (b Blob) Header() Header {
	h := Header{
		Records: b.word(0), DecodedBytes: int64(b.word(8)), StreamBytes: int64(b.word(16)), EntryPoints: b.word(24), Members: b.word(40),
		flags: uint32(b.word(32)), kindBytes: uint32(b.word(32) >> 32),
		DecoderBytes:  int64(b.word(32)>>decoderShift&mostDecoderUnits) * decoderUnit,
		growthVectors: b.word(48), growthRecords: b.word(56), damageBytes: b.word(64), dataBytes: b.word(72),
	}
	if h.flags&flagPoints != 0 {
		counts := uint64(len(b)) - pointCountsBytes
		h.Points, h.stateBytes = b.word(counts), b.word(counts+8)
	}
	return h
}

func (b Blob) records() uint64 { return b.word(0) }

// StreamBytes is that of the blob's header.
func (b Blob) StreamBytes() int64 { return int64(b.word(16)) }

// layout says at which byte of the blob each part begins.
type layout struct {
	blocks, keys, vectors, growthOrdinals, growthIndexes, members, entries, kind, damage, data, points, states, counts, end uint64
}

func pad8(n uint64) uint64 { return (n + 7) &^ 7 }

// layout is for headers whose counts were checked to be small enough.
func (h *Header) layout() layout {
	var l layout
	at := uint64(blobHeaderBytes)
	part := func(n uint64) uint64 { from := at; at += pad8(n); return from }
	l.blocks = part(blockCount(h.Records) * blockBytes)
	l.keys = part(h.keyCount() * 8)
	l.vectors = part(h.growthVectors * growthBytes)
	l.growthOrdinals = part(h.growthRecords * 8)
	l.growthIndexes = part(h.growthRecords * 4)
	l.members = part(h.Members * 16)
	l.entries = part(h.entryWords() * 8)
	l.kind = part(uint64(h.kindBytes))
	l.damage = part(h.damageBytes)
	l.data = part(h.dataBytes)
	l.points = part(h.Points * storedPointBytes)
	l.states = part(h.stateBytes)
	if l.counts = at; h.flags&flagPoints != 0 {
		part(pointCountsBytes)
	}
	l.end = at
	return l
}

func (h *Header) keyCount() uint64 {
	if h.flags&flagKeyed == 0 {
		return 0
	}
	return h.Records
}

func (h *Header) entryWords() uint64 {
	if h.flags&flagCompressed == 0 {
		return 0
	}
	return (h.Records + 63) / 64
}

var errBlob = errors.New("a shard's part does not fit its own counts")

// check looks at everything that an accessor would later rely on, so that none
// can leave the blob, whatever is in it.
func (b Blob) check() error {
	if len(b) < blobHeaderBytes || b.word(32)&flagPoints != 0 && len(b) < blobHeaderBytes+pointCountsBytes {
		return errBlob
	}
	h := b.Header()
	size := uint64(len(b))
	// Each count is bounded by itself first: then no sum below can overflow.
	if blockCount(h.Records) > size/blockBytes || h.Members > size/16 || h.growthVectors > size/growthBytes ||
		h.growthRecords > size/12 || uint64(h.kindBytes) > size || h.damageBytes > size || h.dataBytes > size || h.keyCount() > size/8 ||
		h.Points > size/storedPointBytes || h.stateBytes > size {
		return errBlob
	}
	l := h.layout()
	if l.end != size || h.DecodedBytes < 0 || h.StreamBytes < 0 {
		return errBlob
	}
	if h.Parts() && !h.Compressed() { // the bits of its parts are those of its entries
		return errBlob
	}
	if h.flags&flagDamaged != 0 && !checkDamage(b[l.damage:][:h.damageBytes], h.flags) {
		return errBlob
	}
	if err := b.checkBlocks(&h, &l); err != nil {
		return err
	}
	if !b.checkPoints(&h, &l) {
		return errBlob
	}
	for i := range h.growthRecords {
		if uint64(binary.LittleEndian.Uint32(b[l.growthIndexes+4*i:])) >= h.growthVectors {
			return errBlob
		}
	}
	// The first record is always an entry.
	if h.entryWords() > 0 && b.word(l.entries)&1 == 0 {
		return errBlob
	}
	return nil
}

// Size is the size in bytes of a record: one look at its block's head and one at the
// packed sizes.
func (b Blob) Size(ordinal uint64) int64 {
	head := b[blobHeaderBytes+ordinal>>blockShift*blockBytes:]
	where := binary.LittleEndian.Uint64(head[24:])
	return int64(binary.LittleEndian.Uint64(head[8:]) + bitsAt(b, where>>16, uint(where>>8&0xff), ordinal&(BlockRecords-1)))
}

// KeyHash is the hash of a record's key, of a shard of so many records. The blob has
// to be keyed: Image.Keyed.
func (b Blob) KeyHash(ordinal, records uint64) uint64 {
	return b.word(blobHeaderBytes + blockCount(records)*blockBytes + 8*ordinal)
}

// Growth is by how many bytes a record grows under the equal-key rule at a position
// of so many decimal digits, at least 1.
func (b Blob) Growth(ordinal uint64, digits int) int64 {
	h := b.Header()
	if h.growthRecords == 0 {
		return 0
	}
	l := h.layout()
	n := int(h.growthRecords)
	i := sort.Search(n, func(i int) bool { return b.word(l.growthOrdinals+8*uint64(i)) >= ordinal })
	if i == n || b.word(l.growthOrdinals+8*uint64(i)) != ordinal {
		return 0
	}
	v := uint64(binary.LittleEndian.Uint32(b[l.growthIndexes+4*uint64(i):]))
	return int64(b.word(l.vectors + v*growthBytes + 8*uint64(digits-1)))
}

// Entries are the entry points of a compressed shard, a bit for each record.
type Entries struct {
	blob Blob
	at   uint64
}

// Entries finds the entry points' bits. None may be asked of a shard that is not
// compressed.
func (b Blob) Entries() Entries {
	h := b.Header()
	return Entries{b, h.layout().entries}
}

// Word has the bits of records 64·i … 64·i+63, lowest first.
func (e Entries) Word(i uint64) uint64 { return e.blob.word(e.at + i<<3) }

// Has says whether a record is an entry point.
func (e Entries) Has(ordinal uint64) bool { return e.Word(ordinal>>6)>>(ordinal&63)&1 != 0 }

// membersUpTo is how many members begin at or before a byte.
func (b Blob) membersUpTo(h *Header, l *layout, decodedBytes int64) uint64 {
	return uint64(sort.Search(int(h.Members), func(i int) bool { return b.member(l, uint64(i)).DecodedBytes > decodedBytes }))
}

func (b Blob) member(l *layout, i uint64) unpack.Entry {
	at := l.members + 16*i
	return unpack.Entry{DecodedBytes: int64(b.word(at)), RawBytes: int64(b.word(at + 8))}
}

// Entry is the last member or point that begins at or before a byte of a compressed shard, or
// the first member of a shard of parts whose first ones were left out. Of members that
// begin at one place, for all but the last are empty, it is the last.
func (b Blob) Entry(decodedBytes int64) unpack.Entry {
	h := b.Header()
	if h.Members == 0 {
		return unpack.Entry{}
	}
	l := h.layout()
	e := b.member(&l, max(b.membersUpTo(&h, &l, decodedBytes), 1)-1)
	if n := b.pointsUpTo(&h, &l, decodedBytes); n > 0 {
		if p := b.point(&l, n-1); p.DecodedBytes > e.DecodedBytes {
			return unpack.Entry{RawBytes: p.RawBytes(), DecodedBytes: p.DecodedBytes, Point: int(n)}
		}
	}
	return e
}

// Part is the part in which a byte lies of a shard that is made of parts: where it
// begins, and where the next one does that is kept. Behind the last one that is the
// end of the decoded shard, and 0 in the file.
func (b Blob) Part(decodedBytes int64) (begin, end unpack.Entry) {
	h := b.Header()
	l := h.layout()
	i := b.membersUpTo(&h, &l, decodedBytes)
	end.DecodedBytes = h.DecodedBytes
	if i < h.Members {
		end = b.member(&l, i)
	}
	if i > 0 {
		begin = b.member(&l, i-1)
	}
	return begin, end
}

// Kind is what a uniform format has said of the shard's records.
func (b Blob) Kind() []byte {
	h := b.Header()
	return b[h.layout().kind:][:h.kindBytes]
}
