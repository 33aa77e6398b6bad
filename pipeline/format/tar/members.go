package tar

import (
	"context"
	"io"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// Members iterates over the members of an archive, for codecs that read the data of some of them.
// It refuses and reports the same things as Format. It is not safe for concurrent use.
type Members struct{ w *walker }

// Member is one member of an archive. Offsets are those of the source.
type Member struct {
	// StartBytes is the offset of its first header: an extension header or its own.
	StartBytes int64
	// SizeBytes is the size of its data, which may end beyond the file.
	SizeBytes int64
	// Regular is whether it is a file, not a directory, link or label.
	Regular bool
	// Path is valid until the next call of Next.
	Path []byte
}

// NewMembers iterates over src from its current position, which must be a member's first header.
func NewMembers(src format.Source) Members { return Members{newWalker(src)} }

// Next moves to the next member, and returns io.EOF at the archive's end. The source is then at the
// member's data. The caller may consume data from the source, and must report the number of bytes
// with Consumed.
func (m Members) Next(ctx context.Context) (Member, error) {
	x, err := m.w.next(ctx)
	if err == io.EOF {
		err = m.w.tail(ctx)
	}
	if err != nil {
		return Member{}, err
	}
	return Member{StartBytes: x.start, SizeBytes: x.size, Regular: x.regular, Path: x.path}, nil
}

// Consumed reports how many bytes of the member's data the caller has consumed from the source.
func (m Members) Consumed(bytes int64) { m.w.skip -= bytes }
