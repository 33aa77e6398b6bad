package spool

import (
	"fmt"
	"iter"

	"github.com/zeebo/xxh3"
)

// BlockBytes is how large a block of a spooled shard is at most. Its checksum costs
// 8 bytes of memory: a spool of 100 GB costs 12 MiB, and 8 bytes a piece.
const BlockBytes = 64 << 10

// Pieces says where the pieces of shards lie. It is safe for concurrent use.
type Pieces interface {
	// PiecesOf gives the first and the last piece of a shard, which has records.
	PiecesOf(shard int) (first, last int)
	// StartBytes is where a piece begins in its decoded shard.
	StartBytes(piece int) int64
	// DecodedBytes is the size of a decoded shard.
	DecodedBytes(shard int) int64
}

// block is what is checked at a time of a spooled shard. Blocks begin where pieces do,
// and every BlockBytes from there on, so that a piece is read whole and nothing
// beside it, but for a block at most where records overlap:
//
//	shard    │ head │ piece 0              │ piece 1    │ piece 2 … behind it │
//	blocks          │ 64 KiB │ 64 KiB │    │            │ 64 KiB │            │
//
// What comes before the first piece is never read back.
type block struct {
	off, end int64 // in the decoded shard
	sum      int   // the place of its checksum

	pieces      Pieces
	piece       int   // in which it begins
	from, to    int64 // of that piece, up to the next one or the shard's end
	first, last int   // pieces of the shard
	decoded     int64 // size of the shard
}

// blockAt is the block that has the byte at off of a shard, which lies in the piece
// or behind it. At the shard's end there is none: its off and end are the end.
func blockAt(p Pieces, shard, piece int, off int64) block {
	b := block{pieces: p, piece: piece, decoded: p.DecodedBytes(shard)}
	b.first, b.last = p.PiecesOf(shard)
	b.from = p.StartBytes(piece)
	b.to = b.pieceEnd()
	b.moveTo(off)
	return b
}

// next moves to the block behind b.
func (b *block) next() { b.moveTo(b.end) }

// moveTo moves b to the block that has the byte at off, which is not before b's piece.
func (b *block) moveTo(off int64) {
	for off >= b.to && b.piece < b.last {
		b.piece++
		b.from = b.to
		b.to = b.pieceEnd()
	}
	if off >= b.decoded {
		b.off, b.end = b.decoded, b.decoded
		return
	}
	n := (off - b.from) / BlockBytes
	b.off = b.from + n*BlockBytes
	b.end = min(b.off+BlockBytes, b.to)
	// No two blocks have one place: a piece of n blocks is longer than n-1 times
	// BlockBytes, and there is one place more for each piece.
	b.sum = int(b.from/BlockBytes+n) + b.piece - b.first
}

// pieceEnd is where the piece behind that of b begins, or the shard ends.
func (b *block) pieceEnd() int64 {
	if b.piece == b.last {
		return b.decoded
	}
	return b.pieces.StartBytes(b.piece + 1)
}

// Sums is how many checksums a shard has, at most.
func Sums(p Pieces, shard int) int {
	first, last := p.PiecesOf(shard)
	return int(p.DecodedBytes(shard)/BlockBytes) + last - first + 1
}

// Summer takes the checksums of a shard's blocks from what is decoded, before it is
// written. It is not for concurrent use.
type Summer struct {
	sums  []uint64
	block block
	begun xxh3.Hasher // of the bytes of block that were there
	at    int64       // how far it has come
	begin int64       // of the first block
}

// NewSummer fills sums, of which there are Sums.
func NewSummer(p Pieces, shard int, sums []uint64) *Summer {
	first, _ := p.PiecesOf(shard)
	m := &Summer{sums: sums, begin: p.StartBytes(first)}
	m.block = blockAt(p, shard, first, m.begin)
	return m
}

// Add takes the bytes that come next.
func (m *Summer) Add(p []byte) {
	if head := min(m.begin-m.at, int64(len(p))); head > 0 {
		m.at, p = m.at+head, p[head:]
	}
	for len(p) > 0 && m.at < m.block.end {
		n := min(m.block.end-m.at, int64(len(p)))
		_, _ = m.begun.Write(p[:n]) // it gives no errors
		if m.at, p = m.at+n, p[n:]; m.at == m.block.end {
			m.sums[m.block.sum] = m.begun.Sum64()
			m.begun.Reset()
			m.block.next()
		}
	}
}

// Compare holds what was read of a piece of a shard against the checksums of what was
// written. mem has the ranges (offset and size in the decoded shard, each of whole
// blocks, ascending) one behind the other.
func Compare(p Pieces, shard, piece int, sums []uint64, ranges iter.Seq2[int64, int64], mem []byte) error {
	var b block
	begun := false
	for off, size := range ranges {
		if !begun {
			b, begun = blockAt(p, shard, piece, off), true
		}
		for at := off; at < off+size; at = b.end {
			b.moveTo(at)
			n := b.end - b.off
			if xxh3.Hash(mem[:n]) != sums[b.sum] {
				return fmt.Errorf("bytes [%d, %d) of the decoded shard are others than were written", b.off, b.end)
			}
			mem = mem[n:]
		}
	}
	return nil
}

// Widener makes ranges of a piece of a spooled shard whole blocks. The zero value,
// for a shard that is not spooled, leaves them as they are. It is asked in order.
type Widener struct{ block block }

// NewWidener is for the ranges of a piece.
func NewWidener(p Pieces, shard, piece int) Widener {
	return Widener{blockAt(p, shard, piece, p.StartBytes(piece))}
}

// From is where the byte at off is read from.
func (w *Widener) From(off int64) int64 {
	if w.block.pieces == nil {
		return off
	}
	w.block.moveTo(off)
	return w.block.off
}

// To is up to where the byte before end is read: a last line's newline may lie behind
// the shard.
func (w *Widener) To(end int64) int64 {
	if w.block.pieces == nil {
		return end
	}
	w.block.moveTo(end - 1)
	return max(end, w.block.end)
}
