package fetch

import (
	"fmt"

	"github.com/zeebo/xxh3"
)

// blockBytes is how large a block of a spooled shard is at most. Its checksum costs
// 8 bytes of memory: a spool of 100 GB costs 12 MiB, and 8 bytes a piece.
const blockBytes = 64 << 10

// sumBlock is what is checked at a time of a spooled shard. Blocks begin where pieces do,
// and every blockBytes from there on, so that a piece is read whole and nothing
// beside it, but for a block at most where records overlap:
//
//	shard    │ head │ piece 0              │ piece 1    │ piece 2 … behind it │
//	blocks          │ 64 KiB │ 64 KiB │    │            │ 64 KiB │            │
//
// What comes before the first piece is never read back.
type sumBlock struct {
	off, end int64 // in the decoded shard
	sum      int   // its place in spooled.sums

	piece       int   // in which it begins
	from, to    int64 // of that piece, up to the next one or the shard's end
	first, last int   // pieces of the shard
	decoded     int64 // size of the shard
}

// blockAt is the block that has the byte at off of a shard, which lies in the piece
// or behind it. At the shard's end there is none: its off and end are the end.
func (f *Fetcher) blockAt(shard, piece int, off int64) sumBlock {
	s := f.index.Shard(shard)
	b := sumBlock{piece: piece, first: f.pieces.of(s.First), last: f.pieces.of(s.First + s.Records - 1), decoded: s.DecodedBytes}
	b.from = f.pieceStart(piece)
	b.to = f.pieceEnd(&b)
	f.place(&b, off)
	return b
}

// after is the block behind b.
func (f *Fetcher) after(b sumBlock) sumBlock {
	f.place(&b, b.end)
	return b
}

// place moves b to the block that has the byte at off, which is not before b's piece.
func (f *Fetcher) place(b *sumBlock, off int64) {
	for off >= b.to && b.piece < b.last {
		b.piece++
		b.from = b.to
		b.to = f.pieceEnd(b)
	}
	if off >= b.decoded {
		b.off, b.end = b.decoded, b.decoded
		return
	}
	n := (off - b.from) / blockBytes
	b.off = b.from + n*blockBytes
	b.end = min(b.off+blockBytes, b.to)
	// No two blocks have one place: a piece of n blocks is longer than n-1 times
	// blockBytes, and there is one place more for each piece.
	b.sum = int(b.from/blockBytes+n) + b.piece - b.first
}

// pieceEnd is where the piece behind that of b begins, or the shard ends.
func (f *Fetcher) pieceEnd(b *sumBlock) int64 {
	if b.piece == b.last {
		return b.decoded
	}
	return f.pieceStart(b.piece + 1)
}

// blocks is how many places a shard's sums have.
func (f *Fetcher) blocks(shard int) int {
	s := f.index.Shard(shard)
	return int(s.DecodedBytes/blockBytes) + f.pieces.of(s.First+s.Records-1) - f.pieces.of(s.First) + 1
}

// summer takes the checksums of a shard's blocks from what is decoded, before it is
// written.
type summer struct {
	fetcher *Fetcher
	sums    []uint64
	block   sumBlock
	begun   xxh3.Hasher // of the bytes of block that were there
	at      int64       // how far it has come
	begin   int64       // of the first block
}

func (f *Fetcher) newSummer(s *spooled) *summer {
	first := f.pieces.of(f.index.Shard(s.shard).First)
	m := &summer{fetcher: f, sums: s.sums, begin: f.pieceStart(first)}
	m.block = f.blockAt(s.shard, first, m.begin)
	return m
}

// add takes the bytes that come next.
func (m *summer) add(p []byte) {
	if head := min(m.begin-m.at, int64(len(p))); head > 0 {
		m.at, p = m.at+head, p[head:]
	}
	for len(p) > 0 && m.at < m.block.end {
		n := min(m.block.end-m.at, int64(len(p)))
		_, _ = m.begun.Write(p[:n]) // it gives no errors
		if m.at, p = m.at+n, p[n:]; m.at == m.block.end {
			m.sums[m.block.sum] = m.begun.Sum64()
			m.begun.Reset()
			m.block = m.fetcher.after(m.block)
		}
	}
}

// readBack compares what a load has read from the spool with what was written there.
func (f *Fetcher) readBack(ld *load) error {
	mem := ld.seg.Bytes[ld.off:]
	b := f.blockAt(ld.shard, ld.piece, ld.layout.start())
	for _, r := range ld.layout.ranges {
		for at := r.off; at < r.off+r.size; at = b.end {
			f.place(&b, at)
			n := b.end - b.off
			if xxh3.Hash(mem[:n]) != ld.spooled.sums[b.sum] {
				return fmt.Errorf("bytes [%d, %d) of the decoded shard are others than were written", b.off, b.end)
			}
			mem = mem[n:]
		}
	}
	return nil
}

// widener makes ranges of a piece of a spooled shard whole blocks. They are asked
// about in order.
type widener struct {
	fetcher *Fetcher // nil where the shard is not spooled
	block   sumBlock
}

func (f *Fetcher) newWidener(shard, piece int) widener {
	if !f.spools(shard) {
		return widener{}
	}
	return widener{fetcher: f, block: f.blockAt(shard, piece, f.pieceStart(piece))}
}

// from is where the byte at off is read from.
func (w *widener) from(off int64) int64 {
	if w.fetcher == nil {
		return off
	}
	w.fetcher.place(&w.block, off)
	return w.block.off
}

// to is up to where the byte before end is read: a last line's newline may lie behind
// the shard.
func (w *widener) to(end int64) int64 {
	if w.fetcher == nil {
		return end
	}
	w.fetcher.place(&w.block, end-1)
	return max(end, w.block.end)
}
