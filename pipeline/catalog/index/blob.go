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

var errBlob = errors.New("a shard's part contradicts its own counts")

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

// RecordsBefore returns how many records begin before a byte of the decoded shard.
func (b Blob) RecordsBefore(decodedBytes int64) uint64 {
	n := b.records()
	after := sort.Search(int(blockCount(n)), func(i int) bool {
		k := b.block(uint64(i), n)
		return k.offsetBytes >= decodedBytes
	})
	if after == 0 {
		return 0
	}
	k := b.block(uint64(after-1), n)
	place := sort.Search(int(k.Records), func(i int) bool { return k.Offset(uint64(i)) >= decodedBytes })
	return uint64(after-1)<<blockShift + uint64(place)
}

// Kind returns how a uniform format describes the shard's records.
func (b Blob) Kind() []byte {
	h := b.Header()
	return b[h.layout().kind:][:h.kindBytes]
}

// BlockRecords is the number of records of a block; the last one of a shard may have fewer.
const BlockRecords = 1 << blockShift

const (
	blockShift = 7
	blockBytes = 32 // of a block's head
)

// blockCount returns the number of blocks for that many records.
func blockCount(records uint64) uint64 {
	return records>>blockShift + (records&(BlockRecords-1)+BlockRecords-1)>>blockShift
}

// Block is a run of up to BlockRecords records of one shard. They are addressed by their place in
// it. The zero Block has no records.
type Block struct {
	Records uint64

	blob                Blob
	offsetBytes         int64 // of the first record in the decoded shard
	sizeBase, gapBase   int64 // smallest size and gap of the block
	sizesAt             uint64
	sizeWidth, gapWidth uint
}

// BlockOf returns the block of a record, and the record's place in it; records is the number of
// records of the shard. Blocks begin at records 0, BlockRecords, 2·BlockRecords …
func (b Blob) BlockOf(ordinal, records uint64) (k Block, place uint64) {
	return b.block(ordinal>>blockShift, records), ordinal & (BlockRecords - 1)
}

// block reads the head of block i; records is the number of records of the shard.
func (b Blob) block(i, records uint64) Block {
	p := b[blobHeaderBytes+i*blockBytes:][:blockBytes]
	where := binary.LittleEndian.Uint64(p[24:])
	return Block{
		Records:     min(BlockRecords, records-i<<blockShift),
		blob:        b,
		offsetBytes: int64(binary.LittleEndian.Uint64(p)),
		sizeBase:    int64(binary.LittleEndian.Uint64(p[8:])),
		gapBase:     int64(binary.LittleEndian.Uint64(p[16:])),
		sizesAt:     where >> 16, sizeWidth: uint(where >> 8 & 0xff), gapWidth: uint(where & 0xff),
	}
}

func (k *Block) gapsAt() uint64 { return k.sizesAt + bitsBytes(k.Records, k.sizeWidth) }

// Size returns the size in bytes of a record.
func (k *Block) Size(place uint64) int64 {
	return k.sizeBase + int64(bitsAt(k.blob, k.sizesAt, k.sizeWidth, place))
}

// Gap returns the space between a record and the next one, negative if they overlap.
func (k *Block) Gap(place uint64) int64 {
	return k.gapBase + int64(bitsAt(k.blob, k.gapsAt(), k.gapWidth, place))
}

// Offset returns where a record begins in the decoded shard. It sums over the records before it.
func (k *Block) Offset(place uint64) int64 {
	at := k.offsetBytes + int64(place)*(k.sizeBase+k.gapBase)
	at += int64(sumBits(k.blob, k.sizesAt, k.sizeWidth, place))
	return at + int64(sumBits(k.blob, k.gapsAt(), k.gapWidth, place))
}

// Sizes fills dst with the sizes of the block's records.
func (k *Block) Sizes(dst *[BlockRecords]int64) {
	addBits(dst[:k.Records], k.blob, k.sizesAt, k.sizeWidth, k.sizeBase)
}

// MayExceed reports, from the block's head alone, whether it can contain a record of more than
// sizeBytes.
func (k *Block) MayExceed(sizeBytes int64) bool {
	return k.sizeBase > sizeBytes || uint64(sizeBytes-k.sizeBase)>>k.sizeWidth == 0
}

// checkBlocks checks that the packed sizes and gaps of all blocks are inside the blob.
func (b Blob) checkBlocks(h *Header, l *layout) error {
	dataEnd := l.data + h.dataBytes
	for i := range blockCount(h.Records) {
		k := b.block(i, h.Records)
		if k.sizeWidth > 64 || k.gapWidth > 64 || k.sizesAt < l.data || k.sizesAt > dataEnd {
			return errBlob
		}
		if k.gapsAt()+bitsBytes(k.Records-1, k.gapWidth) > dataEnd {
			return errBlob
		}
	}
	return nil
}

const (
	damageHeadBytes = 3 * 8 // before the reason
	maxReasonBytes  = 4096
)

// appendDamage appends a damage without its reason's length, because the reason is the last field
// of its part.
func appendDamage(dst []byte, d *format.CorruptError) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(d.Record))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(d.OffsetBytes))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(d.RawOffset))
	return append(dst, cutReason(d.Reason)...)
}

func cutReason(s string) string { return s[:min(len(s), maxReasonBytes)] }

func parseDamage(p []byte) *format.CorruptError {
	return &format.CorruptError{
		Record:      int64(binary.LittleEndian.Uint64(p)),
		OffsetBytes: int64(binary.LittleEndian.Uint64(p[8:])),
		RawOffset:   int64(binary.LittleEndian.Uint64(p[16:])),
		Reason:      string(p[damageHeadBytes:]),
	}
}

// appendLosses appends the damages of a shard that is made of parts, each with the name of its part
// and the reason, and then the reasons with their counts.
func appendLosses(dst []byte, l *format.Losses) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(l.First)))
	for _, d := range l.First {
		short := *d
		short.Reason = ""
		dst = appendText(appendText(appendDamage(dst, &short), d.Part), d.Reason)
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(l.Reasons)))
	for _, r := range l.Reasons {
		dst = appendText(binary.LittleEndian.AppendUint64(dst, r.Count), r.Text)
	}
	return dst
}

func appendText(dst []byte, s string) []byte {
	s = cutReason(s)
	return append(binary.LittleEndian.AppendUint32(dst, uint32(len(s))), s...)
}

// lossReader parses what appendLosses wrote. Invalid input sets bad.
type lossReader struct {
	rest []byte
	bad  bool
}

func (r *lossReader) take(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.bad = true
		return nil
	}
	p := r.rest[:n]
	r.rest = r.rest[n:]
	return p
}

func (r *lossReader) count() uint32 {
	if p := r.take(4); !r.bad {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

func (r *lossReader) text() string { return string(r.take(uint64(r.count()))) }

func (r *lossReader) losses() (l format.Losses) {
	for n := r.count(); n > 0 && !r.bad; n-- {
		p := r.take(damageHeadBytes)
		if r.bad {
			break
		}
		d := parseDamage(p)
		d.Part, d.Reason = r.text(), r.text()
		l.First = append(l.First, d)
	}
	for n := r.count(); n > 0 && !r.bad; n-- {
		p := r.take(8)
		if r.bad {
			break
		}
		l.Reasons = append(l.Reasons, format.Reason{Text: r.text(), Count: binary.LittleEndian.Uint64(p)})
	}
	r.bad = r.bad || len(r.rest) > 0 || len(l.First) == 0
	return l
}

// checkDamage reports whether a blob's damage can be parsed.
func checkDamage(p []byte, flags uint32) bool {
	if flags&flagParts == 0 {
		return len(p) >= damageHeadBytes
	}
	r := lossReader{rest: p}
	r.losses()
	return !r.bad
}

// Losses returns what was left out of the shard; it is empty if nothing was.
func (b Blob) Losses() format.Losses {
	h := b.Header()
	if h.flags&flagDamaged == 0 {
		return format.Losses{}
	}
	p := b[h.layout().damage:][:h.damageBytes]
	if h.flags&flagParts != 0 {
		r := lossReader{rest: p}
		return r.losses()
	}
	var l format.Losses
	l.Add(parseDamage(p))
	return l
}
