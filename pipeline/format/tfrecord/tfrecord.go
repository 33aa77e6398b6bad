// Package tfrecord finds the frames of a TFRecord file.
//
//	frame: u64le n │ u32le masked crc32c of those 8 bytes │ n bytes │ u32le masked crc32c of them
//	mask:  rotate right by 15, add 0xa282ead8
//
// A record is one whole frame. Index verifies the checksum of the length, Verify also that of the
// data. Specification: tensorflow/core/lib/io/record_writer.h.
package tfrecord

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/bits"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// Format is the format.Format of TFRecord.
type Format struct{}

var (
	_ format.Format   = Format{}
	_ format.Verifier = Format{}
)

const (
	lengthBytes = 8
	crcBytes    = 4
	headBytes   = lengthBytes + crcBytes
	frameBytes  = headBytes + crcBytes // of a frame without data
	maskDelta   = 0xa282ead8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Name returns "tfrecord".
func (Format) Name() string { return "tfrecord" }

// StreamExtension returns ".tfrecord".
func (Format) StreamExtension(string) string { return ".tfrecord" }

// EmptyShards implements format.Emptyable.
func (Format) EmptyShards() {}

// Sniff reports whether the checksum of the first length is correct.
func (Format) Sniff(head []byte) bool {
	return len(head) >= headBytes && lengthHolds(head)
}

// Index implements format.Format. It reads only the lengths.
func (Format) Index(ctx context.Context, src format.Source, emit func(format.Extent) error) error {
	for record := int64(0); ; record++ {
		if record%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		at := src.OffsetBytes()
		head, err := src.Window(headBytes)
		switch {
		case err == io.EOF && len(head) == 0:
			return nil
		case err == io.EOF:
			return format.Corrupt(record, at, "the file ends inside a record's length, after %d of its %d bytes", len(head), headBytes)
		case err != nil:
			return err
		case !lengthHolds(head):
			return format.Corrupt(record, at, "the length's crc32c does not match")
		}
		n := binary.LittleEndian.Uint64(head)
		if n > math.MaxInt64-frameBytes {
			return format.Corrupt(record, at, "the record's length, %d bytes, is too large", n)
		}
		if err := pass(src, int64(n)); errors.Is(err, io.ErrUnexpectedEOF) {
			return format.Corrupt(record, at, "the file ends inside the record, which has %d bytes of data", n)
		} else if err != nil {
			return err
		}
		if err := emit(format.Extent{OffsetBytes: at, SizeBytes: frameBytes + int64(n)}); err != nil {
			return err
		}
	}
}

// pass consumes a frame with n bytes of data.
func pass(src format.Source, n int64) error {
	if err := src.Discard(headBytes); err != nil {
		return err
	}
	return src.Discard(n + crcBytes)
}

// Verify implements format.Verifier: it verifies both checksums of a whole frame.
func (Format) Verify(record []byte) error {
	var c check
	c.Begin(int64(len(record)))
	c.Add(record)
	return c.End()
}

// NewCheck implements format.Verifier.
func (Format) NewCheck() format.Check { return &check{} }

func lengthHolds(head []byte) bool {
	return masked(head[:lengthBytes]) == binary.LittleEndian.Uint32(head[lengthBytes:])
}

func masked(p []byte) uint32 { return mask(crc32.Checksum(p, castagnoli)) }

func mask(sum uint32) uint32 { return bits.RotateLeft32(sum, -15) + maskDelta }

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

// AppendFrame appends a frame with this data.
func AppendFrame(dst, data []byte) []byte {
	at := len(dst)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(len(data)))
	dst = binary.LittleEndian.AppendUint32(dst, masked(dst[at:]))
	dst = append(dst, data...)
	return binary.LittleEndian.AppendUint32(dst, masked(data))
}

// Data returns the data of a frame that Verify accepts, as a slice of it.
func Data(frame []byte) []byte { return frame[headBytes : len(frame)-crcBytes] }
