package index

import "encoding/binary"

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
