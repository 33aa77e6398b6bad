package discover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// sniffRawBytes bounds what is read of a compressed file to decode format.SniffBytes.
const sniffRawBytes = 1 << 20

// look sets shown for each of the wanted files to the format that its first bytes show, "" for
// none. It opens the files that are not known, several at a time. A file that can't be read is an
// error.
func (f *finder) look(ctx context.Context, files []file, wanted []int, shown []string) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, cmp.Or(f.AtATime, 2*runtime.GOMAXPROCS(0))))
	for _, i := range wanted {
		c := &files[i]
		if c.settled {
			continue
		}
		if format, known := f.known(c.Object); known {
			shown[i] = format
			continue
		}
		g.Go(func() error {
			format, err := f.content(gctx, c)
			if err != nil {
				return f.unreadable(gctx, c.Object, err)
			}
			shown[i] = format
			return nil
		})
	}
	err := g.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// known returns the answer of an earlier run, if there is one.
func (f *finder) known(o storage.Object) (format string, ok bool) {
	if f.Known == nil {
		return "", false
	}
	format, ok = f.Known(o)
	return format, ok && (format == "" || slices.Contains(formats.Names(), format))
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

// Unread returns the error of a file that could not be read. No file is left out for that reason,
// because otherwise a dataset would depend on what was reachable when it was indexed.
func Unread(path string, err error) error {
	if _, names := errors.AsType[*storage.Error](err); !names {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return fmt.Errorf("%w: a file that can't be read is left out only with --exclude or a pattern", err)
}

// content returns the format that a file's content shows, "" for none.
func (f *finder) content(ctx context.Context, c *file) (string, error) {
	reader := storage.NewReader(ctx, f.Reads, c.Object, 0)
	defer reader.Close()
	raw := &headReader{raw: reader, sizeBytes: c.Object.SizeBytes}
	if contested(c) {
		x, err := claimant(c.Object, raw)
		if x == nil || err != nil {
			return "", err
		}
		return x.Name(), nil
	}
	head, codec, err := headOf(c, raw)
	if err != nil {
		return "", err
	}
	for _, name := range formats.OfContent() {
		x, err := formats.New(spec.Format{Name: name})
		if err != nil {
			return "", err
		}
		if own, ok := x.(format.OwnCodecs); ok && (!own.Takes(c.Object.Path) || codec == nil || codec.Name() != "gzip") {
			continue
		}
		if x.Sniff(head) {
			return name, nil
		}
	}
	return "", nil
}

// headReader reads the beginning of a file once, however small the parts are in which it is
// inspected: in a remote service each would be a request.
type headReader struct {
	raw       io.ReaderAt
	sizeBytes int64
	head      []byte // nil: not read yet
}

func (h *headReader) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > min(h.sizeBytes, format.SniffBytes) {
		return h.raw.ReadAt(p, off)
	}
	if h.head == nil {
		head := make([]byte, min(h.sizeBytes, format.SniffBytes))
		if n, err := h.raw.ReadAt(head, 0); n < len(head) {
			return 0, err
		}
		h.head = head
	}
	return copy(p, h.head[off:]), nil
}

// headOf returns the first format.SniffBytes of a file's decoded bytes, or fewer if it is shorter,
// and the codec that its first bytes show. If decoding fails, it returns what was decoded before.
func headOf(c *file, raw io.ReaderAt) ([]byte, format.Codec, error) {
	head := make([]byte, min(c.Object.SizeBytes, format.SniffBytes))
	n, err := raw.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	codec := formats.ContentCodec(c.Object.Path, head[:n])
	if codec == nil {
		return head[:n], nil, nil
	}
	head, err = decodedHead(codec, raw, min(c.Object.SizeBytes, sniffRawBytes))
	return head, codec, err
}

func decodedHead(codec format.Codec, raw io.ReaderAt, rawBytes int64) ([]byte, error) {
	watched := &watchedReader{r: io.NewSectionReader(raw, 0, rawBytes)}
	d, err := codec.NewDecoder(watched, 0)
	if err != nil {
		return nil, watched.err // nil: the file is not compressed, whatever its name implies
	}
	defer d.Close()
	head := make([]byte, format.SniffBytes)
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

// watchedReader remembers a failed read, so that it is not mistaken for uncompressed content.
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
