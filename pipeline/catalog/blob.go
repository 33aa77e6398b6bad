package catalog

import (
	"encoding/binary"
	"errors"
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
)

// Flags of a shard.
const (
	flagKeyed      = 1 << iota // key hashes follow
	flagCompressed             // members and entry bits follow
	flagDamaged                // something was left out; damage follows
	flagUnreadable             // could not be read: never used for a later run
	flagParts                  // members are parts: each begins an entry, and damage is a list
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
	if h.flags&flagDamaged != 0 && !checkDamage(b[l.damage:][:h.damageBytes], h.flags) {
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

// entry is the last member that begins at or before a byte of the decoded
// shard, or the first one of a shard of parts whose first ones were left out. See Catalog.Entry.
func (b blob) entry(decodedBytes int64) unpack.Entry {
	h := b.header()
	l := h.layout()
	m := sort.Search(int(h.members), func(i int) bool { return int64(b.word(l.members+uint64(i)*16)) > decodedBytes })
	if h.members == 0 {
		return unpack.Entry{}
	}
	at := l.members + uint64(max(m, 1)-1)*16
	return unpack.Entry{DecodedBytes: int64(b.word(at)), RawBytes: int64(b.word(at + 8))}
}

// kind is what a uniform format has said of the shard's records.
func (b blob) kind() []byte {
	h := b.header()
	return b[h.layout().kind:][:h.kindBytes]
}

// part is the part in which a byte of the decoded shard lies.
func (b blob) part(decoded int64) Part {
	h := b.header()
	l := h.layout()
	i := sort.Search(int(h.members), func(i int) bool { return int64(b.word(l.members+uint64(i)*16)) > decoded })
	p := Part{EndBytes: h.decodedBytes}
	if i < int(h.members) {
		p.EndBytes, p.EndRawBytes = int64(b.word(l.members+uint64(i)*16)), int64(b.word(l.members+uint64(i)*16+8))
	}
	if i > 0 {
		p.DecodedBytes, p.RawBytes = int64(b.word(l.members+uint64(i-1)*16)), int64(b.word(l.members+uint64(i-1)*16+8))
	}
	return p
}
