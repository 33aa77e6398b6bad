package gzip_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	kgzip "github.com/klauspost/compress/gzip"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// reference decodes members with another gzip library. The package must give the same results for
// every file, intact or damaged.
type reference struct {
	raw      format.Raw
	gzip     kgzip.Reader
	member   int64
	inMember bool
	seen     bool
	err      error
}

func newReference(raw io.Reader, rawOffset int64) *reference {
	d := &reference{}
	d.raw.Reset(raw, rawOffset)
	return d
}

func (d *reference) Next() (int64, error) {
	if d.err == nil && d.inMember {
		if _, err := io.Copy(io.Discard, decoderReader{d}); err != nil {
			return 0, err
		}
	}
	if d.err == nil {
		d.err = d.begin()
	}
	return d.member, d.err
}

func (d *reference) begin() error {
	if d.seen {
		if err := d.passZeros(); err != nil {
			return err
		}
	}
	d.member = d.raw.OffsetBytes()
	magic := []byte{0x1f, 0x8b}
	head, err := d.raw.Buffer().Peek(len(magic))
	switch {
	case d.raw.Failure() != nil:
		return d.raw.Failure()
	case len(head) == 0:
		return err
	case !bytes.HasPrefix(magic, head) && !bytes.HasPrefix(head, magic):
		if d.seen {
			return d.damage("the bytes after the last gzip member are neither a member nor zeros")
		}
		return d.damage("no gzip member begins here (1f 8b)")
	}
	if err := d.gzip.Reset(d.raw.Buffer()); err != nil {
		return d.explain(err)
	}
	d.gzip.Multistream(false)
	d.seen, d.inMember = true, true
	return nil
}

func (d *reference) passZeros() error {
	buffer := d.raw.Buffer()
	for zeros := 0; ; zeros++ {
		at := d.raw.OffsetBytes()
		b, err := buffer.ReadByte()
		switch {
		case d.raw.Failure() != nil:
			return d.raw.Failure()
		case err != nil:
			return err
		case b == 0:
			continue
		case zeros > 0:
			d.member = at
			return d.damage("there are bytes after the zeros that follow the last gzip member")
		}
		return buffer.UnreadByte()
	}
}

func (d *reference) Read(p []byte) (int, error) {
	if d.err != nil {
		return 0, d.err
	}
	if !d.inMember {
		return 0, io.EOF
	}
	n, err := d.gzip.Read(p)
	if err == io.EOF {
		d.inMember = false
		return n, io.EOF
	}
	if err != nil {
		d.err = d.explain(err)
	}
	return n, d.err
}

func (d *reference) explain(err error) error {
	switch {
	case d.raw.Failure() != nil:
		return d.raw.Failure()
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return d.damage("the file ends inside a gzip member")
	case errors.Is(err, kgzip.ErrChecksum):
		return d.damage("the gzip member's checksum or size does not match its bytes")
	case errors.Is(err, kgzip.ErrHeader):
		return d.damage("the gzip member's header is invalid")
	}
	return d.damage(fmt.Sprintf("the gzip member can't be decoded: %v", err))
}

func (d *reference) damage(reason string) error {
	return &format.CorruptError{Record: -1, RawOffset: d.member, Reason: reason}
}
