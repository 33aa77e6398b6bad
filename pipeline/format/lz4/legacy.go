package lz4

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/pierrec/lz4/v4"

	"github.com/lsiofs/lsiofs/pipeline/format/frames"
)

const (
	// legacyBlockBytes is the size of a decoded block of a legacy frame; the last one may be
	// smaller.
	legacyBlockBytes = 8 << 20
	// legacyMostBytes is the largest size of a block in the file.
	legacyMostBytes = legacyBlockBytes + legacyBlockBytes/255 + 16
)

// begins reports whether a frame begins with four bytes: none of the magic numbers is a valid block
// size.
func begins(head []byte) bool {
	switch magic := binary.LittleEndian.Uint32(head); magic {
	case frameMagic, legacyMagic:
		return true
	default:
		return magic&^0xf == skippableMagic
	}
}

func legacyHeader(h *frames.Header) {
	h.SizeBytes, h.BlockBytes, h.OpenEnded = 4, legacyBlockBytes, true
	h.MemoryBytes = legacyBlockBytes + legacyMostBytes
}

// legacy decodes a legacy frame. The library decodes these frames, too, but allows a block to refer
// to the previous one.
type legacy struct {
	raw            io.Reader
	block, decoded []byte // as in the file, and decoded bytes not read yet
	buffer         []byte
}

// open begins a frame.
func (l *legacy) open(raw io.Reader) error {
	l.raw, l.decoded = raw, nil
	_, err := io.CopyN(io.Discard, raw, 4) // its magic number
	return err
}

func (l *legacy) Read(p []byte) (int, error) {
	for len(l.decoded) == 0 {
		if err := l.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, l.decoded)
	l.decoded = l.decoded[n:]
	return n, nil
}

// next decodes a block. At the frame's end it returns io.EOF.
func (l *legacy) next() error {
	var head [4]byte
	if _, err := io.ReadFull(l.raw, head[:]); err != nil {
		return err
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size > legacyMostBytes {
		return fmt.Errorf("a block has %d bytes, which is too large", size)
	}
	if l.buffer == nil {
		l.buffer, l.block = make([]byte, legacyBlockBytes), make([]byte, legacyMostBytes)
	}
	if _, err := io.ReadFull(l.raw, l.block[:size]); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	n, err := lz4.UncompressBlock(l.block[:size], l.buffer)
	if err != nil {
		return err
	}
	l.decoded = l.buffer[:n]
	return nil
}
