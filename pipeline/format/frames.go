package format

import (
	"fmt"
	"io"
	"sync"
)

// FrameCodec decodes and walks shards that consist of frames, for the codecs zstd and lz4. The
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
// The fields are what differs between the codecs: how headers are parsed, and the library. A
// FrameCodec is safe for concurrent use. It must not be copied, nor its fields changed, after its
// first use; it keeps unused decoders.
type FrameCodec struct {
	// Name is the codec's name: "lz4". OneFrame is a frame in messages: "an lz4 frame".
	Name, OneFrame string
	// HeaderBytes is the largest size of a frame's header.
	HeaderBytes int
	// Header parses as much of a frame's header as walking the frame needs. head is the next
	// HeaderBytes bytes of the file, or fewer at its end, but at least one. *h is zero before. An
	// error is damage; its text is the reason.
	Header func(h *FrameHeader, head []byte) error
	// BlockHeaderBytes is the size of a block's header.
	BlockHeaderBytes int
	// Block parses a block's header of BlockHeaderBytes. An error means that the frame's end can't
	// be found.
	Block func(head []byte) (FrameBlock, error)
	// Begins reports whether a frame begins with these BlockHeaderBytes; nil if no frame is
	// open-ended.
	Begins func(head []byte) bool
	// NewLibrary returns a FrameLibrary. Unused libraries are kept for the next decoder.
	NewLibrary func() (FrameLibrary, error)

	walks  sync.Pool // of *frameWalk, not in use; kept for their buffers
	states sync.Pool // of *frameState
}

// FrameHeader is the parsed header of a frame. Sizes are in bytes.
type FrameHeader struct {
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

// FrameBlock is the parsed header of a block.
type FrameBlock struct {
	SizeBytes int64 // after its header, without the checksum
	Last      bool  // it ends the frame
}

// FrameLibrary decodes frames, one after another. It is not safe for concurrent use.
type FrameLibrary interface {
	// Open begins a frame. raw returns the frame's bytes, and then io.EOF.
	Open(raw io.Reader, h *FrameHeader) error
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
func (c *FrameCodec) NewDecoder(raw io.Reader, rawOffset int64) (Decoder, error) {
	s, ok := c.states.Get().(*frameState)
	if !ok {
		library, err := c.NewLibrary()
		if err != nil {
			return nil, err
		}
		s = &frameState{frameWalk: frameWalk{codec: c}, library: library}
	}
	s.raw.Reset(raw, rawOffset)
	return &frameDecoder{frameState: s, codec: c}, nil
}

// NewWalk returns a walk of raw, which begins at a frame's first byte.
func (c *FrameCodec) NewWalk(raw io.Reader, rawOffset int64) Walk {
	w, ok := c.walks.Get().(*frameWalk)
	if !ok {
		w = &frameWalk{codec: c}
	}
	w.raw.Reset(raw, rawOffset)
	return w
}

// frameState is what a decoder reuses: its buffers and tables take longer to allocate than many a
// small shard takes to decode. Idle ones are freed by the garbage collector; those in use are
// bounded by their owner.
type frameState struct {
	frameWalk
	library FrameLibrary
}

type frameDecoder struct {
	*frameState             // nil after Close
	codec       *FrameCodec // set even after Close
	inFrame     bool
	err         error
}

// Next implements Decoder.
func (d *frameDecoder) Next() (int64, error) {
	if d.err == nil && d.inFrame {
		_, d.err = io.Copy(io.Discard, frameReader{d})
	}
	if d.err != nil {
		return 0, d.err
	}
	d.err = d.begin()
	return d.member, d.err
}

// begin opens the next frame.
func (d *frameDecoder) begin() error {
	if err := d.frameWalk.begin(); err != nil {
		return err
	}
	if err := d.library.Open(&d.frame, &d.frame.header); err != nil {
		return err
	}
	d.inFrame = true
	return nil
}

// Read implements Decoder.
func (d *frameDecoder) Read(p []byte) (int, error) {
	if d.err != nil {
		return 0, d.err
	}
	if !d.inFrame {
		return 0, io.EOF
	}
	n, err := d.library.Read(p)
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF && d.frame.done:
		d.inFrame = false
		return n, io.EOF
	}
	d.err = d.explain(err)
	return n, d.err
}

// explain distinguishes read failures from damage.
func (d *frameDecoder) explain(err error) error {
	switch {
	case d.raw.Failure() != nil:
		return d.raw.Failure()
	case d.frame.cut || err == io.EOF:
		return d.damage("the file ends inside " + d.codec.OneFrame)
	}
	if reason := d.library.Damage(err); reason != "" {
		return d.damage(reason)
	}
	return d.damage(fmt.Sprintf("the %s frame can't be decoded: %v", d.codec.Name, err))
}

// MemoryBytes implements Decoder.
func (d *frameDecoder) MemoryBytes() int64 { return d.library.MemoryBytes() + d.raw.MemoryBytes() }

// MemberBytes implements Measured.
func (d *frameDecoder) MemberBytes() int64 { return d.frameWalk.DecoderBytes() }

// Close implements Decoder.
func (d *frameDecoder) Close() {
	s := d.frameState
	if s == nil {
		return
	}
	d.frameState, d.err, d.inFrame = nil, closedFrames{d.codec}, false
	if !s.library.Release() {
		return
	}
	s.release()
	s.codec.states.Put(s)
}

// closedFrames is returned by a closed decoder.
type closedFrames struct{ codec *FrameCodec }

func (e closedFrames) Error() string { return e.codec.Name + " decoder is closed" }

// frameReader reads what is left of the current frame.
type frameReader struct{ d *frameDecoder }

func (f frameReader) Read(p []byte) (int, error) { return f.d.Read(p) }

// frameWalk moves from frame to frame through a file. It is a Walk, and a decoder reads through
// it.
type frameWalk struct {
	codec  *FrameCodec
	raw    Raw
	member int64 // first byte of the current frame
	frame  rawFrame
}

// begin moves to the next frame, skipping skippable ones. The previous frame must have been read to
// its end.
func (w *frameWalk) begin() error {
	for {
		w.member = w.raw.OffsetBytes()
		head, err := w.raw.Buffer().Peek(w.codec.HeaderBytes)
		switch {
		case w.raw.Failure() != nil:
			return w.raw.Failure()
		case len(head) == 0:
			return err
		}
		w.frame = rawFrame{codec: w.codec, raw: &w.raw}
		h := &w.frame.header
		if err := w.codec.Header(h, head); err != nil {
			return w.damage(err.Error())
		}
		if !h.Skippable {
			w.frame.left = h.SizeBytes
			return nil
		}
		if err := w.skip(h.SizeBytes); err != nil {
			return err
		}
	}
}

func (w *frameWalk) skip(n int64) error {
	err := w.raw.Skip(n)
	if err != nil && w.raw.Failure() == nil {
		return w.damage("the file ends inside a skippable " + w.codec.Name + " frame")
	}
	return err
}

func (w *frameWalk) damage(reason string) error {
	return &CorruptError{Record: -1, RawOffset: w.member, Reason: reason}
}

// release drops the reference to the file.
func (w *frameWalk) release() {
	w.raw.Release()
	w.frame = rawFrame{}
}

// Next implements Walk.
func (w *frameWalk) Next() (int64, error) {
	err := w.begin()
	return w.member, err
}

// Read implements Walk.
func (w *frameWalk) Read(p []byte) (int, error) { return w.frame.Read(p) }

// Raw implements Walk.
func (w *frameWalk) Raw() *Raw { return &w.raw }

// DecodedBytes implements Walk.
func (w *frameWalk) DecodedBytes() int64 { return w.frame.blocks * w.frame.header.BlockBytes }

// DecoderBytes implements Walk.
func (w *frameWalk) DecoderBytes() int64 { return w.frame.header.MemoryBytes + w.raw.MemoryBytes() }

// Close implements Walk.
func (w *frameWalk) Close() {
	w.release()
	w.codec.walks.Put(w)
}

// rawFrame returns the raw bytes of one frame, and io.EOF after the last.
type rawFrame struct {
	codec  *FrameCodec
	raw    *Raw
	header FrameHeader
	left   int64 // bytes up to the next block's header or the end
	blocks int64 // seen
	last   bool  // the last block's header has been read
	done   bool
	cut    bool // the file ends inside the frame
}

func (f *rawFrame) Read(p []byte) (int, error) {
	for f.left == 0 {
		if err := f.advance(); err != nil {
			return 0, err
		}
	}
	n, err := f.raw.ReadPart(p, &f.left)
	f.cut = f.cut || err == io.ErrUnexpectedEOF
	return n, err
}

// advance determines how many bytes come before the next place to inspect.
func (f *rawFrame) advance() error {
	if f.last {
		f.done = true
		return io.EOF
	}
	size := f.codec.BlockHeaderBytes
	head, err := f.raw.Buffer().Peek(size)
	if f.header.OpenEnded && (len(head) == 0 && err == io.EOF || len(head) == size && f.codec.Begins(head)) {
		f.done = true
		return io.EOF
	}
	if len(head) < size {
		f.cut = err == io.EOF
		return io.ErrUnexpectedEOF
	}
	block, err := f.codec.Block(head)
	if err != nil {
		return err
	}
	f.blocks++
	sum := f.header.BlockSum
	if block.Last && !f.header.OpenEnded {
		f.last, sum = true, f.header.ContentSum
	}
	f.left = int64(size) + block.SizeBytes
	if sum {
		f.left += 4
	}
	return nil
}
