package format

import (
	"io"
)

const decodedBufferBytes = 64 << 10

// decodedSource is the Source of a compressed shard up to a limit. There it ends with the damage
// that an earlier pass has found.
type decodedSource struct {
	window
	decoded *Decoded
}

func newDecodedSource(d *Decoded, limit int64, damage error) *decodedSource {
	from := &limitedReader{decoded: d, limit: limit, damage: damage}
	return &decodedSource{decoded: d, window: window{from: from, buf: make([]byte, decodedBufferBytes)}}
}

func (s *decodedSource) OffsetBytes() int64 { return s.decoded.OffsetBytes() - s.sizeBytes() }

// drain reads everything up to the end, so that every checksum is verified.
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

// limitedReader reads a decoded shard up to limit, where it returns damage.
type limitedReader struct {
	decoded *Decoded
	limit   int64 // of the decoded shard; bytes from here on are not returned
	damage  error
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if left := l.limit - l.decoded.OffsetBytes(); int64(len(p)) > left {
		p = p[:left]
	}
	if len(p) == 0 {
		return 0, l.damage
	}
	return l.decoded.Read(p)
}
