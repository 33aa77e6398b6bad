package units

import (
	"bytes"
	"fmt"
	"io"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// source implements format.Source for a reader.
type source struct {
	from       io.Reader
	buf        []byte
	start, end int   // buf[start:end] is next
	next       int64 // offset of buf[end]
	err        error // error after these bytes
}

var _ format.Source = (*source)(nil)

// sourceBytes is the size of a read.
const sourceBytes = 256 << 10

func newSource(from io.Reader) *source { return &source{from: from, buf: make([]byte, sourceBytes)} }

// newMemory returns a source of bytes in memory.
func newMemory(data []byte) *source {
	return &source{buf: data, end: len(data), next: int64(len(data)), err: io.EOF, from: bytes.NewReader(nil)}
}

// OffsetBytes implements format.Source.
func (s *source) OffsetBytes() int64 { return s.next - int64(s.end-s.start) }

// Window implements format.Source.
func (s *source) Window(min int) ([]byte, error) {
	for s.end-s.start < min && s.err == nil {
		if s.start > 0 {
			s.end = copy(s.buf, s.buf[s.start:s.end])
			s.start = 0
		}
		if min > len(s.buf) {
			s.buf = append(s.buf, make([]byte, min-len(s.buf))...)
		}
		n, err := s.from.Read(s.buf[s.end:])
		s.end, s.next, s.err = s.end+n, s.next+int64(n), err
	}
	if s.end-s.start < min {
		return s.buf[s.start:s.end], s.err
	}
	return s.buf[s.start:s.end], nil
}

// Discard implements format.Source.
func (s *source) Discard(n int64) error {
	for n > int64(s.end-s.start) {
		n -= int64(s.end - s.start)
		s.start = s.end
		if _, err := s.Window(1); err == io.EOF {
			return io.ErrUnexpectedEOF
		} else if err != nil {
			return err
		}
	}
	s.start += int(n)
	return nil
}

// take returns the next n bytes, in a new slice.
func (s *source) take(n int64) ([]byte, error) {
	at := s.OffsetBytes()
	b := make([]byte, n)
	have := copy(b, s.buf[s.start:s.end])
	s.start += have
	if s.start < s.end || int64(have) == n {
		return b, nil
	}
	m, err := io.ReadFull(s.from, b[have:])
	s.next += int64(m)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		s.err = io.EOF
		return nil, format.Corrupt(-1, at, "%d bytes end beyond the file", n)
	}
	return b, err
}

// readAll reads everything; more than most bytes are an error.
func readAll(r io.Reader, most int64) ([]byte, error) {
	var b bytes.Buffer
	n, err := b.ReadFrom(io.LimitReader(r, most))
	if err != nil {
		return nil, err
	}
	var more [1]byte
	if n == most {
		if m, err := io.ReadFull(r, more[:]); m > 0 {
			return nil, fmt.Errorf("it decodes to more than %d bytes: raise --unit-bytes", most)
		} else if err != io.EOF {
			return nil, err
		}
	}
	return b.Bytes(), nil
}
