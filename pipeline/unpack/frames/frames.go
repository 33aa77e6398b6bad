// Package frames walks and decodes shards that are made of frames, for the codecs
// zstd and lz4. Both have frames of the same build, in other bytes:
//
//	shard: frame  frame  …, with skippable frames anywhere between
//	frame: header, blocks: header, bytes [checksum]; a checksum where the header says so
//	skippable frame: 184D2A5x, u32le size, bytes
//
// A block's header tells its size, and whether it is the last. So where a frame
// ends is found by walking the headers of blocks as bytes pass through, and what
// decodes is shown one frame at a time.
//
// What is a codec's own is in its Codec: how it reads headers, and its library.
package frames

import (
	"io"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// Codec is what is one codec's own, and what it reuses. It is safe for concurrent
// use. It is not to be copied, nor are its fields to be changed once it is in use.
type Codec struct {
	// Name is the codec's: "lz4". OneFrame is a frame in messages: "an lz4 frame".
	Name, OneFrame string
	// HeaderBytes is the size of a frame's header that has all there can be.
	HeaderBytes int
	// Header reads a header, or as much of it as is needed to walk the frame, from
	// the bytes that follow in the file: HeaderBytes, or one and more at its end.
	// *h is zero before. An error is damage; its text is the reason.
	Header func(h *Header, head []byte) error
	// BlockHeaderBytes is the size of a block's header.
	BlockHeaderBytes int
	// Block reads a block's header, of BlockHeaderBytes. An error says that the
	// frame's end can't be told.
	Block func(head []byte) (Block, error)
	// NewLibrary makes a Library. Those that are not in use are kept for the next
	// decoder.
	NewLibrary func() (Library, error)

	walks  sync.Pool // of *walk: not in use; kept for their buffers
	states sync.Pool // of *state
}

// Header is what a frame says of itself. Sizes are in bytes.
type Header struct {
	SizeBytes  int64 // of the header; of a skippable frame: of all of it
	Skippable  bool  // the fields below are of no use
	BlockBytes int64 // of the largest block, decoded
	// MemoryBytes is about what decoding the frame takes beside the raw bytes.
	MemoryBytes int64
	Linked      bool // blocks need those before them
	BlockSum    bool // four bytes follow each block but the last
	ContentSum  bool // four bytes follow the last block
}

// Block is what the header of a block says.
type Block struct {
	SizeBytes int64 // behind its header, without a checksum
	Last      bool  // it ends the frame
}

// Library decodes the bytes of one frame after the other. It is not for concurrent
// use.
type Library interface {
	// Open begins a frame. raw gives the frame's bytes, and io.EOF behind them.
	Open(raw io.Reader, h *Header) error
	// Read reads the decoded bytes, and gives io.EOF at the frame's end, once it
	// has seen that of raw too.
	Read(p []byte) (int, error)
	// Damage is what an error of Read says of the frame; "" for one that it has no
	// words for.
	Damage(err error) string
	// MemoryBytes is about how much it holds.
	MemoryBytes() int64
	// Release lets go of the frame. It says whether another decoder may use the
	// library; where not, it is closed.
	Release() (reusable bool)
}

// NewDecoder makes a decoder of raw from the first byte of a frame on. Errors are
// those of NewLibrary.
func (c *Codec) NewDecoder(raw io.Reader, rawOffset int64) (unpack.Decoder, error) {
	s, ok := c.states.Get().(*state)
	if !ok {
		library, err := c.NewLibrary()
		if err != nil {
			return nil, err
		}
		s = &state{walk: walk{codec: c}, library: library}
	}
	s.raw.Reset(raw, rawOffset)
	return &decoder{state: s, codec: c}, nil
}

// NewWalk makes a walk of raw from the first byte of a frame on.
func (c *Codec) NewWalk(raw io.Reader, rawOffset int64) unpack.Walk {
	w, ok := c.walks.Get().(*walk)
	if !ok {
		w = &walk{codec: c}
	}
	w.raw.Reset(raw, rawOffset)
	return w
}
