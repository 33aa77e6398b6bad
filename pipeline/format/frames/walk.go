package frames

import (
	"io"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// walk moves from frame to frame through a file. It is a format.Walk, and a decoder reads through
// it.
type walk struct {
	codec  *Codec
	raw    format.Raw
	member int64 // first byte of the current frame
	frame  frame
}

// begin moves to the next frame, skipping skippable ones. The previous frame must have been read to
// its end.
func (w *walk) begin() error {
	for {
		w.member = w.raw.OffsetBytes()
		head, err := w.raw.Buffer().Peek(w.codec.HeaderBytes)
		switch {
		case w.raw.Failure() != nil:
			return w.raw.Failure()
		case len(head) == 0:
			return err
		}
		w.frame = frame{codec: w.codec, raw: &w.raw}
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

func (w *walk) skip(n int64) error {
	err := w.raw.Skip(n)
	if err != nil && w.raw.Failure() == nil {
		return w.damage("the file ends inside a skippable " + w.codec.Name + " frame")
	}
	return err
}

func (w *walk) damage(reason string) error {
	return &format.CorruptError{Record: -1, RawOffset: w.member, Reason: reason}
}

// release drops the reference to the file.
func (w *walk) release() {
	w.raw.Release()
	w.frame = frame{}
}

// Next implements format.Walk.
func (w *walk) Next() (int64, error) {
	err := w.begin()
	return w.member, err
}

// Read implements format.Walk.
func (w *walk) Read(p []byte) (int, error) { return w.frame.Read(p) }

// Raw implements format.Walk.
func (w *walk) Raw() *format.Raw { return &w.raw }

// DecodedBytes implements format.Walk.
func (w *walk) DecodedBytes() int64 { return w.frame.blocks * w.frame.header.BlockBytes }

// DecoderBytes implements format.Walk.
func (w *walk) DecoderBytes() int64 { return w.frame.header.MemoryBytes + w.raw.MemoryBytes() }

// Close implements format.Walk.
func (w *walk) Close() {
	w.release()
	w.codec.walks.Put(w)
}

// frame returns the raw bytes of one frame, and io.EOF after the last.
type frame struct {
	codec  *Codec
	raw    *format.Raw
	header Header
	left   int64 // bytes up to the next block's header or the end
	blocks int64 // seen
	last   bool  // the last block's header has been read
	done   bool
	cut    bool // the file ends inside the frame
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

// advance determines how many bytes come before the next place to inspect.
func (f *frame) advance() error {
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
