package index

import (
	"encoding/binary"
	"errors"
	"sort"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// Blob is one shard's packed index, wherever it is stored: in the heap, a journal, or a sealed
// index. doc.go has the layout. It is immutable, and valid as long as the Image or the Build from
// which it comes.
//
// Ordinals are those of the shard's records, from 0; an ordinal out of range panics. Byte offsets
// are those of the decoded shard.
type Blob []byte

const (
	blobHeaderBytes = 10 * 8
	growthBytes     = format.MaxDigits * 8
)

// Flags of a shard.
const (
	flagKeyed      = 1 << iota // key hashes follow
	flagCompressed             // members and entry bits follow
	flagDamaged                // something was left out; damage follows
	flagUnreadable             // set by earlier versions: the shard could not be read; such a blob is not used
	flagParts                  // members are parts: each begins an entry, and damage is a list
	flagPoints                 // points follow at the end
)

// The upper half of the flags is the memory of a decoder, in units, rounded up.
const (
	decoderShift     = 16
	mostDecoderUnits = 1<<16 - 1
	decoderUnit      = 64 << 10
)

// Header is the beginning of a blob.
type Header struct {
	Records      uint64
	DecodedBytes int64
	StreamBytes  int64  // sum of the records' sizes
	EntryPoints  uint64 // records at which reading can start
	Members      uint64 // of a compressed shard: places where decoding can start
	Points       uint64 // others, inside members
	DecoderBytes int64  // approximate peak memory of its decoder; 0: unknown

	flags         uint32
	kindBytes     uint32 // of the kind, without padding
	growthVectors uint64
	growthRecords uint64
	damageBytes   uint64 // of the damage part, without padding
	dataBytes     uint64 // of the packed sizes and gaps, without padding
	stateBytes    uint64 // of the decoders' states at points, without padding
}

// Compressed reports whether the shard is compressed, so that it has members and Entries.
func (h *Header) Compressed() bool { return h.flags&flagCompressed != 0 }

// Parts reports whether the shard is made of parts: each member is one, and the first record in it
// is an entry point.
func (h *Header) Parts() bool { return h.flags&flagParts != 0 }

// Damaged reports whether something was left out; Blob.Losses has the details.
func (h *Header) Damaged() bool { return h.flags&flagDamaged != 0 }

// Unreadable reports whether an earlier version could not read the shard, and left it out.
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

// StreamBytes returns the StreamBytes of the blob's header.
func (b Blob) StreamBytes() int64 { return int64(b.word(16)) }

// layout is the offset of each part of the blob.
type layout struct {
	blocks, keys, vectors, growthOrdinals, growthIndexes, members, entries, kind, damage, data, points, states, counts, end uint64
}

func pad8(n uint64) uint64 { return (n + 7) &^ 7 }

// layout requires that the header's counts were checked to be small enough.
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

// check validates everything on which an accessor later relies, so that none can read outside the
// blob, whatever its content.
func (b Blob) check() error {
	if len(b) < blobHeaderBytes || b.word(32)&flagPoints != 0 && len(b) < blobHeaderBytes+pointCountsBytes {
		return errBlob
	}
	h := b.Header()
	size := uint64(len(b))
	// Each count is first bounded by itself, so that no sum below can overflow.
	if blockCount(h.Records) > size/blockBytes || h.Members > size/16 || h.growthVectors > size/growthBytes ||
		h.growthRecords > size/12 || uint64(h.kindBytes) > size || h.damageBytes > size || h.dataBytes > size || h.keyCount() > size/8 ||
		h.Points > size/storedPointBytes || h.stateBytes > size {
		return errBlob
	}
	l := h.layout()
	if l.end != size || h.DecodedBytes < 0 || h.StreamBytes < 0 {
		return errBlob
	}
	if h.Parts() && !h.Compressed() { // the entry bits also mark the parts
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

// Size returns the size in bytes of a record. It reads the block's head and one packed size.
func (b Blob) Size(ordinal uint64) int64 {
	head := b[blobHeaderBytes+ordinal>>blockShift*blockBytes:]
	where := binary.LittleEndian.Uint64(head[24:])
	return int64(binary.LittleEndian.Uint64(head[8:]) + bitsAt(b, where>>16, uint(where>>8&0xff), ordinal&(BlockRecords-1)))
}

// KeyHash returns the hash of a record's key; records is the number of records of the shard. The
// blob must be keyed: Image.Keyed.
func (b Blob) KeyHash(ordinal, records uint64) uint64 {
	return b.word(blobHeaderBytes + blockCount(records)*blockBytes + 8*ordinal)
}

// Growth returns by how many bytes a record grows under the equal-key rule at a position with that
// many decimal digits, at least 1.
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

// Entries returns the entry points' bits. They must not be read if the shard is not compressed.
func (b Blob) Entries() Entries {
	h := b.Header()
	return Entries{b, h.layout().entries}
}

// Word returns the bits of records 64·i … 64·i+63, lowest first.
func (e Entries) Word(i uint64) uint64 { return e.blob.word(e.at + i<<3) }

// Has reports whether a record is an entry point.
func (e Entries) Has(ordinal uint64) bool { return e.Word(ordinal>>6)>>(ordinal&63)&1 != 0 }

// membersUpTo returns how many members begin at or before a byte.
func (b Blob) membersUpTo(h *Header, l *layout, decodedBytes int64) uint64 {
	return uint64(sort.Search(int(h.Members), func(i int) bool { return b.member(l, uint64(i)).DecodedBytes > decodedBytes }))
}

func (b Blob) member(l *layout, i uint64) format.Entry {
	at := l.members + 16*i
	return format.Entry{DecodedBytes: int64(b.word(at)), RawBytes: int64(b.word(at + 8))}
}

// Entry returns the last member or point that begins at or before a byte of a compressed shard, or
// the first member if the shard is made of parts and its first parts were left out. If several
// members begin at the same place, because all but the last are empty, it is the last one.
func (b Blob) Entry(decodedBytes int64) format.Entry {
	h := b.Header()
	if h.Members == 0 {
		return format.Entry{}
	}
	l := h.layout()
	e := b.member(&l, max(b.membersUpTo(&h, &l, decodedBytes), 1)-1)
	if n := b.pointsUpTo(&h, &l, decodedBytes); n > 0 {
		if p := b.point(&l, n-1); p.DecodedBytes > e.DecodedBytes {
			return format.Entry{RawBytes: p.RawBytes(), DecodedBytes: p.DecodedBytes, Point: int(n)}
		}
	}
	return e
}

// Part returns the part that contains a byte of a shard that is made of parts: where it begins, and
// where the next part that was kept begins. After the last one, end is the end of the decoded
// shard, and 0 in the file.
func (b Blob) Part(decodedBytes int64) (begin, end format.Entry) {
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

// Kind returns how a uniform format describes the shard's records.
func (b Blob) Kind() []byte {
	h := b.Header()
	return b[h.layout().kind:][:h.kindBytes]
}
