package cat

import (
	"context"
	"io"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// Copy writes a stream from its first byte to its end.
func Copy(ctx context.Context, h *stream.Handle, out io.Writer) error {
	w := newSliceWriter(out)
	var r stream.Reply
	for off := int64(0); ; {
		if err := h.ReadAt(ctx, &r, off, stream.MaxReadBytes); err != nil {
			return exit.With(exit.Dataset, err)
		}
		n := r.Len()
		err := w.write(r.Slices)
		r.Release()
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		off += int64(n)
	}
}
