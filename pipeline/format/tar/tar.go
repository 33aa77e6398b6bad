// Package tar finds the WebDataset samples of tar archives, and renames them if the equal-key rule
// requires it.
//
//	archive: member  member  …  [zeros]
//	member:  [extension headers]  header 512  data, padded to 512
//	header:  name 0+100 │ mode 100+8 │ uid 108+8 │ gid 116+8 │ size 124+12 │
//	         mtime 136+12 │ checksum 148+8 │ type 156 │ linkname 157+100 │
//	         magic 257+6 │ version 263+2 │ uname 265+32 │ gname 297+32 │
//	         devmajor 329+8 │ devminor 337+8 │ prefix 345+155 │ 500+12
//
// A sample is a maximal run of eligible members with the same key. pipeline/format/TAR.md
// defines which members are eligible and what a key is.
//
//   - Accepted are ustar, PAX (types x, X and g) and GNU (L, K, numbers in base 256) headers, old
//     headers without magic, and checksums of signed bytes.
//   - Refused are GNU sparse members, and global PAX headers that set path or size.
//
// The package has its own walker, which does not allocate per member and reads only headers.
// Specification: POSIX.1-2017 pax, GNU tar manual appendix D.
package tar

import (
	"bytes"
	"context"
	"io"

	"github.com/zeebo/xxh3"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// Format is the format.Format of tar.
type Format struct{}

var (
	_ format.Format  = Format{}
	_ format.Framer  = Format{}
	_ format.Renamer = Format{}
)

// Name returns "tar".
func (Format) Name() string { return "tar" }

// StreamExtension returns ".tar".
func (Format) StreamExtension(string) string { return ".tar" }

// Sniff reports whether head is a header block with the word ustar and a correct checksum.
func (Format) Sniff(head []byte) bool {
	return len(head) >= blockBytes &&
		bytes.HasPrefix(head[magicAt:], ustarMagic[:5]) &&
		checksumHolds(head[:blockBytes], byteSum(head[:blockBytes]))
}

// Prologue returns nil: streams have none.
func (Format) Prologue(uint64) []byte { return nil }

// Epilogue returns the two zero blocks that end an archive.
func (Format) Epilogue(uint64) []byte { return endOfArchive[:] }

var endOfArchive [2 * blockBytes]byte

// Index implements format.Format. It reads only headers. It emits a sample after it has read the
// headers of the next sample's first member, or the archive's end: before that, another member of
// the sample might follow.
func (Format) Index(ctx context.Context, src format.Source, emit func(format.Extent) error) error {
	return index(ctx, src, emit, func(m *member) membership {
		key := m.key()
		return membership{key: key, counts: key != nil, eligible: key != nil}
	})
}

// membership determines the record to which a member belongs.
type membership struct {
	key      []byte // empty: the member is a record of its own
	counts   bool   // it belongs to a record
	eligible bool   // for the equal-key rule
}

func index(ctx context.Context, src format.Source, emit func(format.Extent) error, of func(*member) membership) error {
	w := newWalker(src)
	var s sample
	for members := 0; ; members++ {
		if members%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		m, err := w.next(ctx)
		if err == io.EOF {
			if s.open {
				w.record++
			}
			if err := s.finish(emit); err != nil {
				return err
			}
			if err := w.tail(ctx); err != io.EOF {
				return err
			}
			return nil
		}
		if err != nil {
			return err
		}
		part := of(m)
		if !part.counts {
			continue
		}
		if !s.open || len(part.key) == 0 || !bytes.Equal(part.key, s.key) {
			if s.open {
				w.record++
			}
			if err := s.finish(emit); err != nil {
				return err
			}
			s.begin(m.start, part.key)
			w.from = m.start
		}
		s.end = m.end
		if part.eligible {
			s.growth.add(m)
		}
	}
}

// sample is the record that is being assembled.
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

func (s *sample) finish(emit func(format.Extent) error) error {
	if !s.open {
		return nil
	}
	s.open = false
	e := format.Extent{OffsetBytes: s.start, SizeBytes: s.end - s.start, Growth: s.growth.slice()}
	if len(s.key) > 0 {
		e.KeyHash = xxh3.Hash(s.key)
	}
	return emit(e)
}

// key returns the sample key of an eligible member, nil for others.
func (m *member) key() []byte {
	if !m.regular || len(m.path) == 0 {
		return nil
	}
	first := m.path
	if slash := bytes.IndexByte(m.path, '/'); slash >= 0 {
		first = m.path[:slash]
	}
	if len(first) >= 4 && bytes.HasPrefix(first, dunder) && bytes.HasSuffix(first, dunder) {
		return nil
	}
	return m.stem()
}

// stem returns the path up to the first dot of its base name, nil if the base name has no dot or
// begins with it.
func (m *member) stem() []byte {
	base := bytes.LastIndexByte(m.path, '/') + 1
	dot := bytes.IndexByte(m.path[base:], '.')
	if dot <= 0 {
		return nil
	}
	return m.path[:base+dot]
}

var dunder = []byte("__")
