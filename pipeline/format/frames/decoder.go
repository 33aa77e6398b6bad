package frames

import (
	"fmt"
	"io"
)

// state is what a decoder reuses: its buffers and tables take longer to allocate than many a small
// shard takes to decode. Idle ones are freed by the garbage collector; those in use are bounded by
// their owner.
type state struct {
	walk
	library Library
}

type decoder struct {
	*state         // nil after Close
	codec   *Codec // set even after Close
	inFrame bool
	err     error
}

// Next implements format.Decoder.
func (d *decoder) Next() (int64, error) {
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
func (d *decoder) begin() error {
	if err := d.walk.begin(); err != nil {
		return err
	}
	if err := d.library.Open(&d.frame, &d.frame.header); err != nil {
		return err
	}
	d.inFrame = true
	return nil
}

// Read implements format.Decoder.
func (d *decoder) Read(p []byte) (int, error) {
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
func (d *decoder) explain(err error) error {
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

// MemoryBytes implements format.Decoder.
func (d *decoder) MemoryBytes() int64 { return d.library.MemoryBytes() + d.raw.MemoryBytes() }

// MemberBytes implements format.Measured.
func (d *decoder) MemberBytes() int64 { return d.walk.DecoderBytes() }

// Close implements format.Decoder.
func (d *decoder) Close() {
	s := d.state
	if s == nil {
		return
	}
	d.state, d.err, d.inFrame = nil, closedError{d.codec}, false
	if !s.library.Release() {
		return
	}
	s.release()
	s.codec.states.Put(s)
}

// closedError is returned by a closed decoder.
type closedError struct{ codec *Codec }

func (e closedError) Error() string { return e.codec.Name + " decoder is closed" }

// frameReader reads what is left of the current frame.
type frameReader struct{ d *decoder }

func (f frameReader) Read(p []byte) (int, error) { return f.d.Read(p) }
