package lz4

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

const (
	frameMagic     = 0x184d2204
	legacyMagic    = 0x184c2102
	skippableMagic = 0x184d2a50 // to …5f
)

// walk goes from frame to frame through a file. It is an unpack.Walk, and what a
// decoder reads through.
type walk struct {
	raw    unpack.Raw
	member int64 // first byte of the current frame
	frame  frame
}

// begin goes on to the frame that follows, passing over skippable ones. What is
// left of the frame before has been read.
func (w *walk) begin() error {
	for {
		w.member = w.raw.OffsetBytes()
		head, err := w.raw.Buffer().Peek(maxHeaderBytes)
		switch {
		case w.raw.Failure() != nil:
			return w.raw.Failure()
		case len(head) == 0:
			return err
		case len(head) < 4:
			return w.damage("the file ends inside the header of an lz4 frame")
		}
		switch magic := binary.LittleEndian.Uint32(head); {
		case magic == frameMagic:
			return w.open(head)
		case magic == legacyMagic:
			return w.damage("a frame of the legacy lz4 format: compress again with lz4 1.4 or later, without -l")
		case magic&^0xf != skippableMagic:
			return w.damage("neither an lz4 frame nor a skippable one")
		case len(head) < 8:
			return w.damage("the file ends inside the header of a skippable lz4 frame")
		}
		if err := w.skip(8 + int64(binary.LittleEndian.Uint32(head[4:]))); err != nil {
			return err
		}
	}
}

func (w *walk) skip(n int64) error {
	err := w.raw.Skip(n)
	if err != nil && w.raw.Failure() == nil {
		return w.damage("the file ends inside a skippable lz4 frame")
	}
	return err
}

// open begins the frame whose first bytes are head.
func (w *walk) open(head []byte) error {
	h, err := parseHeader(head)
	if err != nil {
		return w.damage(err.Error())
	}
	w.frame = frame{raw: &w.raw, left: h.size, linked: h.linked, blockSum: h.blockSum, contentSum: h.contentSum,
		memory: h.memory(), blockBytes: h.blockBytes}
	return nil
}

func (w *walk) damage(reason string) error {
	return &unpack.CorruptError{Record: -1, RawOffset: w.member, Reason: reason}
}

// walks are not in use; kept for their buffers.
var walks = sync.Pool{New: func() any { return new(walk) }}

// Next implements unpack.Walk.
func (w *walk) Next() (int64, error) {
	err := w.begin()
	return w.member, err
}

// Read implements unpack.Walk.
func (w *walk) Read(p []byte) (int, error) { return w.frame.Read(p) }

// Raw implements unpack.Walk.
func (w *walk) Raw() *unpack.Raw { return &w.raw }

// DecodedBytes implements unpack.Walk.
func (w *walk) DecodedBytes() int64 { return w.frame.blocks * w.frame.blockBytes }

// DecoderBytes implements unpack.Walk.
func (w *walk) DecoderBytes() int64 { return w.frame.memory + w.raw.MemoryBytes() }

// Close implements unpack.Walk.
func (w *walk) Close() {
	w.raw.Release()
	w.frame = frame{}
	walks.Put(w)
}

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
	blockSum   bool  // four bytes follow each block
	contentSum bool  // four bytes follow the end mark
	memory     int64 // that decoding it takes
	blockBytes int64 // of the largest block, decoded
	blocks     int64 // seen
	last       bool  // the end mark has been seen
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
	f.blocks++
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
