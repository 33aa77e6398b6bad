package lz4

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// maxHeaderBytes is the size of a frame's header that has all there can be.
const maxHeaderBytes = 19

// The bits of a header's flags.
const (
	flagDictionary = 1 << iota
	_
	flagContentSum
	flagContentSize
	flagBlockSum
	flagIndependent
)

// header is what a frame says of itself.
type header struct {
	size       int64 // of the header
	blockBytes int64 // of the largest block, decoded
	linked     bool  // blocks need those before them
	blockSum   bool
	contentSum bool
}

// parseHeader reads as much of a header as is needed to find the frame's end;
// its checksum is looked at when the frame is decoded.
func parseHeader(head []byte) (header, error) {
	if len(head) < 7 {
		return header{}, errCutHeader
	}
	flags, block := head[4], head[5]>>4&7
	h := header{size: 7, linked: flags&flagIndependent == 0, blockSum: flags&flagBlockSum != 0, contentSum: flags&flagContentSum != 0}
	if block < 4 {
		return header{}, fmt.Errorf("the lz4 frame's header is invalid: a size of blocks of %d", block)
	}
	h.blockBytes = 1 << (8 + 2*block) // 64 KiB, 256 KiB, 1 MiB, 4 MiB
	if flags&flagContentSize != 0 {
		h.size += 8
	}
	if flags&flagDictionary != 0 {
		h.size += 4
	}
	if int64(len(head)) < h.size {
		return header{}, errCutHeader
	}
	if flags&flagDictionary != 0 {
		return header{}, fmt.Errorf("the lz4 frame needs dictionary %d: compress without one", binary.LittleEndian.Uint32(head[h.size-5:]))
	}
	return h, nil
}

// memory is about what decoding takes: a block as it is in the file and one
// decoded; of linked ones also those before it, up to 128 KiB or a block, and
// the memory that they outgrow.
func (h *header) memory() int64 {
	if h.linked {
		return 2*h.blockBytes + 3*max(h.blockBytes, 128<<10)
	}
	return 2 * h.blockBytes
}

var errCutHeader = errors.New("the file ends inside the header of an lz4 frame")

// frame gives the raw bytes of one frame, and io.EOF behind its last.
type frame struct {
	raw        *unpack.Raw
	left       int64 // bytes up to the next block's size, the checksum or the end
	linked     bool
	blockSum   bool // four bytes follow each block
	contentSum bool // four bytes follow the end mark
	last       bool // the end mark has been seen
	done       bool
	cut        bool // the file ends inside the frame
}

func (f *frame) Read(p []byte) (int, error) {
	for f.left == 0 {
		if err := f.advance(); err != nil {
			return 0, err
		}
	}
	n, err := f.raw.ReadPart(p, &f.left)
	f.cut = f.cut || err == io.ErrUnexpectedEOF
	return n, err
}

// storedBlock is the bit of a block's size that says that it is not compressed.
const storedBlock = 1 << 31

// advance finds how many bytes come before the next place to look at.
func (f *frame) advance() error {
	if f.last {
		f.done = true
		return io.EOF
	}
	size, err := f.raw.Buffer().Peek(4)
	if len(size) < 4 {
		f.cut = err == io.EOF
		return io.ErrUnexpectedEOF
	}
	n := int64(binary.LittleEndian.Uint32(size) &^ storedBlock)
	sum := f.blockSum
	if binary.LittleEndian.Uint32(size) == 0 {
		f.last, sum = true, f.contentSum
	}
	f.left = 4 + n
	if sum {
		f.left += 4
	}
	return nil
}
