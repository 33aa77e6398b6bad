package tar

import (
	"bytes"
	"context"
	"io"

	"github.com/zeebo/xxh3"

	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// Format is tar's unpack.Format.
type Format struct{}

var (
	_ unpack.Format  = Format{}
	_ unpack.Framer  = Format{}
	_ unpack.Renamer = Format{}
)

// Name is "tar".
func (Format) Name() string { return "tar" }

// Extensions is ".tar".
func (Format) Extensions() []string { return []string{".tar"} }

// StreamExtension is ".tar".
func (Format) StreamExtension(string) string { return ".tar" }

// Sniff says whether head is a header block with the word ustar and a checksum
// that holds.
func (Format) Sniff(head []byte) bool {
	return len(head) >= blockBytes &&
		bytes.HasPrefix(head[magicAt:], ustarMagic[:5]) &&
		checksumHolds(head[:blockBytes], byteSum(head[:blockBytes]))
}

// Prologue is empty.
func (Format) Prologue(uint64) []byte { return nil }

// Epilogue is the two zero blocks that end an archive.
func (Format) Epilogue(uint64) []byte { return make([]byte, 2*blockBytes) }

// Index implements unpack.Format. It reads headers only. A sample is emitted
// when the headers of the first member of the next one have been read, or the
// archive's end: until then another member of it might follow.
func (Format) Index(ctx context.Context, src unpack.Source, emit func(unpack.Extent) error) error {
	w := newWalker(src)
	var s sample
	for members := 0; ; members++ {
		if members%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		m, err := w.next(ctx)
		if err == io.EOF {
			return s.finish(emit)
		}
		if err != nil {
			return err
		}
		key := m.key()
		if key == nil {
			continue
		}
		if !s.open || !bytes.Equal(key, s.key) {
			if s.open {
				w.record++
			}
			if err := s.finish(emit); err != nil {
				return err
			}
			s.begin(m.start, key)
			w.from = m.start
		}
		s.end = m.end
		s.growth.add(m)
	}
}

// sample is the record that is being put together.
type sample struct {
	open       bool
	start, end int64
	key        []byte
	growth     growth
}

func (s *sample) begin(start int64, key []byte) {
	s.open, s.start = true, start
	s.key = append(s.key[:0], key...)
	s.growth.reset()
}

func (s *sample) finish(emit func(unpack.Extent) error) error {
	if !s.open {
		return nil
	}
	s.open = false
	return emit(unpack.Extent{
		OffsetBytes: s.start,
		SizeBytes:   s.end - s.start,
		KeyHash:     xxh3.Hash(s.key),
		Growth:      s.growth.slice(),
	})
}

// key is the sample key of an eligible member, nil for others.
func (m *member) key() []byte {
	if !m.regular || len(m.path) == 0 {
		return nil
	}
	base := bytes.LastIndexByte(m.path, '/') + 1
	dot := bytes.IndexByte(m.path[base:], '.')
	if dot <= 0 {
		return nil
	}
	first := m.path
	if base > 0 {
		first = m.path[:bytes.IndexByte(m.path, '/')]
	}
	if len(first) >= 4 && bytes.HasPrefix(first, dunder) && bytes.HasSuffix(first, dunder) {
		return nil
	}
	return m.path[:base+dot]
}

var dunder = []byte("__")
