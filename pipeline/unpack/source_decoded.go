package unpack

import (
	"io"
)

const decodedBufferBytes = 128 << 10

// decodedSource is the Source of a compressed shard, up to limit. There it
// ends with damage, which is what an earlier pass has found there.
type decodedSource struct {
	decoded    *Decoded
	buf        []byte
	start, end int
	limit      int64 // of the decoded shard; bytes from here on are not given
	damage     error // what comes at limit
	err        error
}

func newDecodedSource(d *Decoded, limit int64, damage error) *decodedSource {
	return &decodedSource{decoded: d, buf: make([]byte, decodedBufferBytes), limit: limit, damage: damage}
}

func (s *decodedSource) OffsetBytes() int64 {
	return s.decoded.OffsetBytes() - int64(s.end-s.start)
}

func (s *decodedSource) Window(min int) ([]byte, error) {
	for s.end-s.start < min {
		if err := s.fill(min); err != nil {
			return s.buf[s.start:s.end], err
		}
	}
	return s.buf[s.start:s.end], nil
}

// fill decodes some more bytes into a buffer with room for at least room.
func (s *decodedSource) fill(room int) error {
	if s.err != nil {
		return s.err
	}
	if s.start == s.end {
		s.start, s.end = 0, 0
	}
	if s.start > 0 && s.start+room > len(s.buf) {
		s.end = copy(s.buf, s.buf[s.start:s.end])
		s.start = 0
	}
	if room > len(s.buf) {
		grown := make([]byte, max(room, 2*len(s.buf)))
		s.end = copy(grown, s.buf[:s.end])
		s.buf = grown
	}
	free := s.buf[s.end:]
	if left := s.limit - s.decoded.OffsetBytes(); int64(len(free)) > left {
		free = free[:left]
	}
	if len(free) == 0 {
		s.err = s.damage
		return s.err
	}
	n, err := s.decoded.Read(free)
	s.end += n
	s.err = err
	if n > 0 {
		return nil
	}
	return err
}

func (s *decodedSource) Discard(n int64) error {
	for n > int64(s.end-s.start) {
		n -= int64(s.end - s.start)
		s.start = s.end
		if err := s.fill(1); err == io.EOF {
			return io.ErrUnexpectedEOF
		} else if err != nil {
			return err
		}
	}
	s.start += int(n)
	return nil
}

// drain passes over everything up to the end, so that every checksum is seen.
func (s *decodedSource) drain() error {
	for {
		s.start = s.end
		if err := s.fill(1); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}
