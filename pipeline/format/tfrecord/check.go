package tfrecord

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// check checks a frame whose bytes are passed in pieces.
type check struct {
	size, at int64
	head     [headBytes]byte
	tail     [crcBytes]byte
	sum      uint32 // of the data so far
}

var _ format.Check = (*check)(nil)

// Begin implements format.Check.
func (c *check) Begin(sizeBytes int64) { c.size, c.at, c.sum = sizeBytes, 0, 0 }

// Add implements format.Check.
func (c *check) Add(piece []byte) {
	if c.size < frameBytes {
		return
	}
	if c.at < headBytes {
		n := copy(c.head[c.at:], piece)
		piece, c.at = piece[n:], c.at+int64(n)
	}
	end := c.size - crcBytes // of the data
	if n := min(end-c.at, int64(len(piece))); n > 0 {
		c.sum = crc32.Update(c.sum, castagnoli, piece[:n])
		piece, c.at = piece[n:], c.at+n
	}
	if c.at >= end {
		c.at += int64(copy(c.tail[c.at-end:], piece))
	}
}

// End implements format.Check.
func (c *check) End() error {
	switch {
	case c.size < frameBytes:
		return format.RecordDamage(fmt.Sprintf("%d bytes are too few for a record", c.size))
	case !lengthHolds(c.head[:]) || binary.LittleEndian.Uint64(c.head[:]) != uint64(c.size-frameBytes):
		return format.RecordDamage("the record's length has changed since it was indexed")
	case mask(c.sum) != binary.LittleEndian.Uint32(c.tail[:]):
		return format.RecordDamage("the data's crc32c does not match")
	}
	return nil
}
