package discover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// sniffRawBytes bounds what is read of a compressed file to see
// unpack.SniffBytes of what is in it.
const sniffRawBytes = 1 << 20

// judge tells files' formats by their content, nil where it is none's. It opens the
// files that are not known, several at a time.
func (f *finder) judge(ctx context.Context, files []candidate) ([]unpack.Format, error) {
	list := make([]unpack.Format, len(files))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, cmp.Or(f.AtATime, 2*runtime.GOMAXPROCS(0))))
	for i, c := range files {
		if c.settled {
			continue
		}
		if x, ok := f.known(c.Object); ok {
			list[i] = x
			continue
		}
		g.Go(func() error {
			x, err := f.byContent(ctx, c)
			if err != nil {
				return f.unreadable(ctx, c.Object, err)
			}
			list[i] = x
			return nil
		})
	}
	return list, g.Wait()
}

// known is the answer of an earlier run, where there is one.
func (f *finder) known(o storage.Object) (format unpack.Format, ok bool) {
	if f.Known == nil {
		return nil, false
	}
	name, ok := f.Known(o)
	if !ok || name == "" {
		return nil, ok
	}
	format = f.named(name)
	return format, format != nil
}

func (f *finder) unreadable(ctx context.Context, o storage.Object, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if f.onUnreadable != nil {
		f.onUnreadable(o, err)
		return nil
	}
	return Unread(o.Path, err)
}

// Unread is the error of a file of which no bytes came. No file is left out for that: else
// a dataset would depend on what could be reached when it was indexed.
func Unread(path string, err error) error {
	if _, names := errors.AsType[*storage.Error](err); !names {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return fmt.Errorf("%w: no file is left out because it can't be read; a pattern can leave it out", err)
}

// byContent is a file's format by its content, nil for none. What has a known
// ending is asked about by formats that may have it all the same.
func (f *finder) byContent(ctx context.Context, c candidate) (unpack.Format, error) {
	reader := storage.NewReader(ctx, f.Reads, c.Object, 0)
	defer reader.Close()
	raw := &headReader{raw: reader, sizeBytes: c.Object.SizeBytes}
	if f.byExtension(c.inner) == nil {
		head, err := headOf(c, raw)
		if err != nil {
			return nil, err
		}
		return f.byHead(c, head), nil
	}
	return claimant(f.formats, c.Object, raw)
}

// headReader reads the beginning of a file once, however small the parts are in which it
// is looked at: at a service each would be a request.
type headReader struct {
	raw       io.ReaderAt
	sizeBytes int64
	head      []byte // nil: not read yet
}

func (h *headReader) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > min(h.sizeBytes, unpack.SniffBytes) {
		return h.raw.ReadAt(p, off)
	}
	if h.head == nil {
		head := make([]byte, min(h.sizeBytes, unpack.SniffBytes))
		if n, err := h.raw.ReadAt(head, 0); n < len(head) {
			return 0, err
		}
		h.head = head
	}
	return copy(p, h.head[off:]), nil
}

func (f *finder) byHead(c candidate, head []byte) unpack.Format {
	for _, x := range f.formats {
		if own, ok := x.(unpack.OwnCodecs); ok && !own.Takes(c.Object.Path) {
			continue
		}
		if x.Sniff(head) {
			return x
		}
	}
	return nil
}

// headOf is the first unpack.SniffBytes of a file's decoded bytes, fewer when it
// has no more. What does not decode gives what came before.
func headOf(c candidate, raw io.ReaderAt) ([]byte, error) {
	if c.Codec == nil {
		head := make([]byte, min(c.Object.SizeBytes, unpack.SniffBytes))
		n, err := raw.ReadAt(head, 0)
		if err == io.EOF {
			err = nil
		}
		return head[:n], err
	}
	return decodedHead(c.Codec, raw, min(c.Object.SizeBytes, sniffRawBytes))
}

func decodedHead(codec unpack.Codec, raw io.ReaderAt, rawBytes int64) ([]byte, error) {
	watched := &watchedReader{r: io.NewSectionReader(raw, 0, rawBytes)}
	d, err := codec.NewDecoder(watched, 0)
	if err != nil {
		return nil, watched.err // nil: its beginning is not compressed, whatever its name says
	}
	defer d.Close()
	head := make([]byte, unpack.SniffBytes)
	n := 0
	for n < len(head) {
		if _, err = d.Next(); err != nil {
			break
		}
		for n < len(head) && err == nil {
			var m int
			m, err = d.Read(head[n:])
			n += m
		}
		if err != nil && err != io.EOF {
			break
		}
	}
	if watched.err != nil {
		return nil, watched.err
	}
	return head[:n], nil
}

// watchedReader remembers a failure to read, so that it is not taken for
// content that is not compressed.
type watchedReader struct {
	r   io.Reader
	err error
}

func (w *watchedReader) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		w.err = err
	}
	return n, err
}
