// Package frames walks and decodes shards that are made of frames, for the codecs zstd
// and lz4. The frames of both have the same structure, with different bytes:
//
//	shard: frame  frame  …, with skippable frames anywhere between
//	frame: header, blocks: header, bytes [checksum]; a checksum where the header says so
//	skippable frame: 184D2A5x, u32le size, bytes
//
// A block's header gives its size, and says whether it is the last; frames of lz4's legacy format
// end where another one begins. So the end of a
// frame is found by walking the block headers as bytes pass through, and the decoding
// library sees one frame at a time.
//
// What differs between the codecs is in Codec: how headers are read, and the library.
package frames

import (
	"io"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// Codec is what differs between the codecs, and what a codec reuses. It is safe for
// concurrent use. It must not be copied, nor its fields be changed, once it is in use.
type Codec struct {
	// Name is the codec's name: "lz4". OneFrame names a frame in messages: "an lz4
	// frame".
	Name, OneFrame string
	// HeaderBytes is the largest size of a frame's header.
	HeaderBytes int
	// Header reads as much of a frame's header as walking the frame needs. head is the
	// next HeaderBytes bytes of the file, or fewer at its end, but at least one. *h is
	// zero before. An error is damage; its text is the reason.
	Header func(h *Header, head []byte) error
	// BlockHeaderBytes is the size of a block's header.
	BlockHeaderBytes int
	// Block reads a block's header of BlockHeaderBytes. An error means that the frame's
	// end can't be found.
	Block func(head []byte) (Block, error)
	// Begins reports whether a frame begins with these BlockHeaderBytes; nil where no frame is
	// open-ended.
	Begins func(head []byte) bool
	// NewLibrary makes a Library. Unused libraries are kept for the next decoder.
	NewLibrary func() (Library, error)

	walks  sync.Pool // of *walk: not in use; kept for their buffers
	states sync.Pool // of *state
}

// Header is what a frame's header says. Sizes are in bytes.
type Header struct {
	SizeBytes  int64 // of the header; for a skippable frame, of all of it
	Skippable  bool  // if true, the fields below are meaningless
	BlockBytes int64 // of the largest block, decoded
	// MemoryBytes is about how much memory decoding the frame takes besides the raw
	// bytes.
	MemoryBytes int64
	Linked      bool // blocks depend on earlier blocks
	BlockSum    bool // four bytes follow each block but the last
	ContentSum  bool // four bytes follow the last block
	// OpenEnded says that no block is marked as the last: the frame ends where another one
	// begins, or with the file.
	OpenEnded bool
}

// Block is what a block's header says.
type Block struct {
	SizeBytes int64 // after its header, without the checksum
	Last      bool  // it ends the frame
}

// Library decodes frames, one after the other. It is not for concurrent use.
type Library interface {
	// Open begins a frame. raw gives the frame's bytes, and then io.EOF.
	Open(raw io.Reader, h *Header) error
	// Read reads the decoded bytes. It gives io.EOF at the frame's end, after raw has
	// given io.EOF too.
	Read(p []byte) (int, error)
	// Damage says what an error of Read means for the frame; "" if it has no words for
	// it.
	Damage(err error) string
	// MemoryBytes is about how much memory it holds.
	MemoryBytes() int64
	// Release drops the frame. It returns whether another decoder may use the library;
	// if not, the library has been closed.
	Release() (reusable bool)
}

// NewDecoder makes a decoder of raw, which begins at a frame's first byte. Errors are
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

// NewWalk makes a walk of raw, which begins at a frame's first byte.
func (c *Codec) NewWalk(raw io.Reader, rawOffset int64) unpack.Walk {
	w, ok := c.walks.Get().(*walk)
	if !ok {
		w = &walk{codec: c}
	}
	w.raw.Reset(raw, rawOffset)
	return w
}
