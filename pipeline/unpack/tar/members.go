package tar

import (
	"context"

	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// Members walks an archive member by member, for codecs that read the data of
// some of them. It refuses and reports what Format does. It is not for concurrent
// use.
type Members struct{ w *walker }

// Member is one member of an archive. Places are offsets of the source.
type Member struct {
	// StartBytes is its first header: an extension header or its own.
	StartBytes int64
	// SizeBytes is that of its data, which may end beyond the file.
	SizeBytes int64
	// Regular says that it is a file, not a directory, link or label.
	Regular bool
	// Path is valid until the next call of Next.
	Path []byte
}

// NewMembers walks src from where it stands: at a member's first header.
func NewMembers(src unpack.Source) Members { return Members{newWalker(src)} }

// Next goes on to the next member, and gives io.EOF at the archive's end. The
// source then stands at the member's data, which may be consumed from there:
// Consumed has to be told how much was.
func (m Members) Next(ctx context.Context) (Member, error) {
	x, err := m.w.next(ctx)
	if err != nil {
		return Member{}, err
	}
	return Member{StartBytes: x.start, SizeBytes: x.size, Regular: x.regular, Path: x.path}, nil
}

// Consumed says how much of the member's data the caller has taken from the source.
func (m Members) Consumed(bytes int64) { m.w.skip -= bytes }
