// Package frames walks and decodes shards that consist of frames, for the codecs zstd and lz4. The
// frames of both have the same structure, with different bytes:
//
//	shard: frame  frame  …, with skippable frames anywhere between
//	frame: header, blocks: header, bytes [checksum]; a checksum if the header announces it
//	skippable frame: 184D2A5x, u32le size, bytes
//
// A block's header contains its size, and whether it is the last; frames of lz4's legacy format end
// where another one begins. So the end of a frame is found by walking the block headers as bytes
// pass through, and the decoding library gets one frame at a time.
//
// The differences between the codecs are in Codec: how headers are parsed, and the library.
package frames

import (
	"io"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// Codec is what differs between the codecs, together with their reusable decoders. It is safe for
// concurrent use. It must not be copied, nor its fields changed, after its first use.
type Codec struct {
	// Name is the codec's name: "lz4". OneFrame is a frame in messages: "an lz4 frame".
	Name, OneFrame string
	// HeaderBytes is the largest size of a frame's header.
	HeaderBytes int
	// Header parses as much of a frame's header as walking the frame needs. head is the next
	// HeaderBytes bytes of the file, or fewer at its end, but at least one. *h is zero before. An
	// error is damage; its text is the reason.
	Header func(h *Header, head []byte) error
	// BlockHeaderBytes is the size of a block's header.
	BlockHeaderBytes int
	// Block parses a block's header of BlockHeaderBytes. An error means that the frame's end can't
	// be found.
	Block func(head []byte) (Block, error)
	// Begins reports whether a frame begins with these BlockHeaderBytes; nil if no frame is
	// open-ended.
	Begins func(head []byte) bool
	// NewLibrary returns a Library. Unused libraries are kept for the next decoder.
	NewLibrary func() (Library, error)

	walks  sync.Pool // of *walk, not in use; kept for their buffers
	states sync.Pool // of *state
}

// Header is the parsed header of a frame. Sizes are in bytes.
type Header struct {
	SizeBytes  int64 // of the header; for a skippable frame, of the whole frame
	Skippable  bool  // if true, the fields below are meaningless
	BlockBytes int64 // of the largest block, decoded
	// MemoryBytes is approximately how much memory decoding the frame takes besides the raw bytes.
	MemoryBytes int64
	Linked      bool // blocks depend on earlier blocks
	BlockSum    bool // four bytes follow each block except the last
	ContentSum  bool // four bytes follow the last block
	// OpenEnded means that no block is marked as the last: the frame ends where another one begins,
	// or with the file.
	OpenEnded bool
}

// Block is the parsed header of a block.
type Block struct {
	SizeBytes int64 // after its header, without the checksum
	Last      bool  // it ends the frame
}

// Library decodes frames, one after another. It is not safe for concurrent use.
type Library interface {
	// Open begins a frame. raw returns the frame's bytes, and then io.EOF.
	Open(raw io.Reader, h *Header) error
	// Read reads the decoded bytes. It returns io.EOF at the frame's end, after raw has returned
	// io.EOF too.
	Read(p []byte) (int, error)
	// Damage returns what an error of Read means for the frame; "" if it has no description.
	Damage(err error) string
	// MemoryBytes returns approximately how much memory it holds.
	MemoryBytes() int64
	// Release drops the frame. It reports whether another decoder may use the library; if not, the
	// library has been closed.
	Release() (reusable bool)
}

// NewDecoder returns a decoder of raw, which begins at a frame's first byte. Errors are those of
// NewLibrary.
func (c *Codec) NewDecoder(raw io.Reader, rawOffset int64) (format.Decoder, error) {
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

// NewWalk returns a walk of raw, which begins at a frame's first byte.
func (c *Codec) NewWalk(raw io.Reader, rawOffset int64) format.Walk {
	w, ok := c.walks.Get().(*walk)
	if !ok {
		w = &walk{codec: c}
	}
	w.raw.Reset(raw, rawOffset)
	return w
}
