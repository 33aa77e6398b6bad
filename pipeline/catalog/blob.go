package catalog

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"sort"

	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// blob is the packed form of one shard's index, at whatever place it lies: in
// the heap, a journal, a sealed index. doc.go has the layout.
type blob []byte

const (
	blockRecords    = 128 // records of a block; the last of a shard may have fewer
	blockShift      = 7
	blockBytes      = 32
	blobHeaderBytes = 10 * 8
	growthBytes     = unpack.MaxDigits * 8
	damageBytes     = 3 * 8 // before the reason
	maxReasonBytes  = 4096
)

// Flags of a shard.
const (
	flagKeyed      = 1 << iota // key hashes follow
	flagCompressed             // members and entry bits follow
	flagDamaged                // something was left out; damage follows
	flagUnreadable             // could not be read: never used for a later run
)

// blobHeader is what a blob begins with.
type blobHeader struct {
	records       uint64
	decodedBytes  int64
	streamBytes   int64 // sum of the records' sizes
	entryPoints   uint64
	flags         uint32
	kindBytes     uint32 // of the kind, without padding
	members       uint64
	growthVectors uint64
	growthRecords uint64
	damageBytes   uint64 // of the damage part, without padding
	dataBytes     uint64 // of the packed sizes and gaps, without padding
}

func (h *blobHeader) append(dst []byte) []byte {
	for _, v := range []uint64{h.records, uint64(h.decodedBytes), uint64(h.streamBytes), h.entryPoints,
		uint64(h.kindBytes)<<32 | uint64(h.flags),
		h.members, h.growthVectors, h.growthRecords, h.damageBytes, h.dataBytes} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	return dst
}

func (b blob) word(at uint64) uint64 { return binary.LittleEndian.Uint64(b[at:]) }

func (b blob) header() blobHeader {
	return blobHeader{b.word(0), int64(b.word(8)), int64(b.word(16)), b.word(24),
		uint32(b.word(32)), uint32(b.word(32) >> 32), b.word(40), b.word(48), b.word(56), b.word(64), b.word(72)}
}

// layout says at which byte of the blob each part begins.
type layout struct {
	blocks, keys, vectors, growthOrdinals, growthIndexes, members, entries, kind, damage, data, end uint64
}

func pad8(n uint64) uint64 { return (n + 7) &^ 7 }

func blockCount(records uint64) uint64 {
	return records>>blockShift + (records&(blockRecords-1)+blockRecords-1)>>blockShift
}

// layout is for headers whose counts were checked to be small enough.
func (h *blobHeader) layout() layout {
	var l layout
	at := uint64(blobHeaderBytes)
	part := func(n uint64) uint64 { from := at; at += pad8(n); return from }
	l.blocks = part(blockCount(h.records) * blockBytes)
	l.keys = part(h.keyCount() * 8)
	l.vectors = part(h.growthVectors * growthBytes)
	l.growthOrdinals = part(h.growthRecords * 8)
	l.growthIndexes = part(h.growthRecords * 4)
	l.members = part(h.members * 16)
	l.entries = part(h.entryWords() * 8)
	l.kind = part(uint64(h.kindBytes))
	l.damage = part(h.damageBytes)
	l.data = part(h.dataBytes)
	l.end = at
	return l
}

func (h *blobHeader) keyCount() uint64 {
	if h.flags&flagKeyed == 0 {
		return 0
	}
	return h.records
}

func (h *blobHeader) entryWords() uint64 {
	if h.flags&flagCompressed == 0 {
		return 0
	}
	return (h.records + 63) / 64
}

var errBlob = errors.New("a shard's part does not fit its own counts")

// check looks at everything that an accessor would later rely on, so that none
// can leave the blob, whatever is in it.
func (b blob) check() error {
	if len(b) < blobHeaderBytes {
		return errBlob
	}
	h := b.header()
	size := uint64(len(b))
	// Each count is bounded by itself first: then no sum below can overflow.
	if blockCount(h.records) > size/blockBytes || h.members > size/16 || h.growthVectors > size/growthBytes ||
		h.growthRecords > size/12 || uint64(h.kindBytes) > size || h.damageBytes > size || h.dataBytes > size || h.keyCount() > size/8 {
		return errBlob
	}
	l := h.layout()
	if l.end != size || h.decodedBytes < 0 || h.streamBytes < 0 {
		return errBlob
	}
	if h.flags&flagDamaged != 0 && h.damageBytes < damageBytes {
		return errBlob
	}
	if err := b.checkBlocks(&h, &l); err != nil {
		return err
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

func (b blob) checkBlocks(h *blobHeader, l *layout) error {
	dataEnd := l.data + h.dataBytes
	left := h.records
	for i := range blockCount(h.records) {
		n := min(left, blockRecords)
		left -= n
		k := b.block(i, n)
		if k.sizeWidth > 64 || k.gapWidth > 64 || k.sizesAt < l.data || k.sizesAt > dataEnd {
			return errBlob
		}
		if k.gapsAt()+bitsBytes(n-1, k.gapWidth) > dataEnd {
			return errBlob
		}
	}
	return nil
}

// block is the head of up to 128 records of one shard, and where their packed
// sizes and gaps lie.
type block struct {
	records             uint64
	offsetBytes         int64 // of the first record in the decoded shard
	sizeBase, gapBase   int64 // smallest size and gap of the block
	sizesAt             uint64
	sizeWidth, gapWidth uint
}

// block reads the head of block i, which has n records.
func (b blob) block(i, n uint64) block {
	p := b[blobHeaderBytes+i*blockBytes:][:blockBytes]
	where := binary.LittleEndian.Uint64(p[24:])
	return block{
		records:     n,
		offsetBytes: int64(binary.LittleEndian.Uint64(p)),
		sizeBase:    int64(binary.LittleEndian.Uint64(p[8:])),
		gapBase:     int64(binary.LittleEndian.Uint64(p[16:])),
		sizesAt:     where >> 16, sizeWidth: uint(where >> 8 & 0xff), gapWidth: uint(where & 0xff),
	}
}

func (k *block) gapsAt() uint64 { return k.sizesAt + bitsBytes(k.records, k.sizeWidth) }

func (k *block) size(b blob, i uint64) int64 {
	return k.sizeBase + int64(bitsAt(b, k.sizesAt, k.sizeWidth, i))
}

// gap is the space between record i of the block and the one after it.
func (k *block) gap(b blob, i uint64) int64 {
	return k.gapBase + int64(bitsAt(b, k.gapsAt(), k.gapWidth, i))
}

// offset is where record i of the block begins: a sum over those before it.
func (k *block) offset(b blob, i uint64) int64 {
	at := k.offsetBytes + int64(i)*(k.sizeBase+k.gapBase)
	at += int64(sumBits(b, k.sizesAt, k.sizeWidth, i))
	return at + int64(sumBits(b, k.gapsAt(), k.gapWidth, i))
}

// sizes fills dst with the sizes of the block's records.
func (k *block) sizes(b blob, dst *[blockRecords]int64) {
	addBits(dst[:k.records], b, k.sizesAt, k.sizeWidth, k.sizeBase)
}

// blockOf is the block of the record with that ordinal, of a shard of so many
// records, and the record's place in it.
func (b blob) blockOf(ordinal, records uint64) (block, uint64) {
	i := ordinal >> blockShift
	return b.block(i, min(blockRecords, records-i<<blockShift)), ordinal & (blockRecords - 1)
}

// growth is the growth vector of a record, as bytes, or nil.
func (b blob) growth(ordinal uint64) []byte {
	h := b.header()
	if h.growthRecords == 0 {
		return nil
	}
	l := h.layout()
	n := int(h.growthRecords)
	i := sort.Search(n, func(i int) bool { return b.word(l.growthOrdinals+8*uint64(i)) >= ordinal })
	if i == n || b.word(l.growthOrdinals+8*uint64(i)) != ordinal {
		return nil
	}
	v := uint64(binary.LittleEndian.Uint32(b[l.growthIndexes+4*uint64(i):]))
	return b[l.vectors+v*growthBytes:][:growthBytes]
}

// isEntry says whether a record of a compressed shard is an entry point.
func (b blob) isEntry(l *layout, ordinal uint64) bool {
	return b.word(l.entries+ordinal>>6<<3)>>(ordinal&63)&1 != 0
}

// entry is the last entry point at or before ordinal. See Catalog.Entry.
func (b blob) entry(ordinal uint64) Entry {
	h := b.header()
	if h.records == 0 {
		return Entry{}
	}
	l := h.layout()
	ordinal = min(ordinal, h.records-1)
	w := ordinal >> 6
	set := b.word(l.entries+w<<3) << (63 - ordinal&63) >> (63 - ordinal&63)
	for set == 0 && w > 0 {
		w--
		set = b.word(l.entries + w<<3)
	}
	if set == 0 {
		return Entry{}
	}
	first := w<<6 + uint64(bits.Len64(set)) - 1
	k, i := b.blockOf(first, h.records)
	decoded := k.offset(b, i)
	m := sort.Search(int(h.members), func(i int) bool { return int64(b.word(l.members+uint64(i)*16)) > decoded })
	if m == 0 || int64(b.word(l.members+uint64(m-1)*16)) != decoded {
		return Entry{} // the first record, behind a mark or blank lines
	}
	return Entry{Ordinal: first, DecodedBytes: decoded, RawBytes: int64(b.word(l.members + uint64(m-1)*16 + 8))}
}

// kind is what a uniform format has said of the shard's records.
func (b blob) kind() []byte {
	h := b.header()
	return b[h.layout().kind:][:h.kindBytes]
}

// damage is what was left out of the shard, or nil.
func (b blob) damage() *unpack.CorruptError {
	h := b.header()
	if h.flags&flagDamaged == 0 {
		return nil
	}
	p := b[h.layout().damage:][:h.damageBytes]
	return &unpack.CorruptError{
		Record:      int64(binary.LittleEndian.Uint64(p)),
		OffsetBytes: int64(binary.LittleEndian.Uint64(p[8:])),
		RawOffset:   int64(binary.LittleEndian.Uint64(p[16:])),
		Reason:      string(p[damageBytes:]),
	}
}
