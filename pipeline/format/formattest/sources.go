package formattest

import (
	"fmt"
	"io"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// steppedSource is a Source that returns the requested bytes and a few more, and overwrites what it
// returned before, as its contract allows.
type steppedSource struct {
	bytes []byte
	at    int64
	more  int
	lent  []byte
}

func (s *steppedSource) OffsetBytes() int64 { return s.at }

func (s *steppedSource) Window(min int) ([]byte, error) {
	if min > format.MaxWindowBytes {
		panic(fmt.Sprintf("a window of %d bytes was asked for", min))
	}
	s.poison()
	rest := s.bytes[s.at:]
	if len(rest) < min {
		s.lent = append([]byte(nil), rest...)
		return s.lent, io.EOF
	}
	if len(rest) > min+s.more {
		rest = rest[:min+s.more]
	}
	s.lent = append([]byte(nil), rest...)
	return s.lent, nil
}

func (s *steppedSource) Discard(n int64) error {
	s.poison()
	if n > int64(len(s.bytes))-s.at {
		s.at = int64(len(s.bytes))
		return io.ErrUnexpectedEOF
	}
	s.at += n
	return nil
}

func (s *steppedSource) poison() {
	for i := range s.lent {
		s.lent[i] = 0xdb
	}
	s.lent = nil
}

// faultyReader fails one of its reads.
type faultyReader struct {
	bytes  []byte
	failAt int
	reads  int
}

func (f *faultyReader) ReadAt(p []byte, off int64) (int, error) {
	f.reads++
	if f.reads-1 == f.failAt {
		return 0, errFault
	}
	n := copy(p, f.bytes[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
