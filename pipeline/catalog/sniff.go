package catalog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// sniffRawBytes bounds what is read of a compressed file to see
// unpack.SniffBytes of what is in it.
const sniffRawBytes = 1 << 20

// sniffer judges files by their first bytes.
type sniffer struct {
	storage storage.Storage
	table   *table
	// known gives the answer of an earlier run for a file that is unchanged.
	known     func(storage.Object) (f unpack.Format, ok bool)
	onCorrupt spec.OnCorrupt
	log       *slog.Logger
}

// judge is a judge: it opens the files that are not known, several at a time.
func (s *sniffer) judge(ctx context.Context, files []candidate) ([]unpack.Format, error) {
	formats := make([]unpack.Format, len(files))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(2 * runtime.GOMAXPROCS(0))
	for i, c := range files {
		if f, ok := s.known(c.object); ok {
			formats[i] = f
			continue
		}
		g.Go(func() error {
			f, err := s.format(ctx, c)
			if err != nil {
				return s.unreadable(ctx, c.object, err)
			}
			formats[i] = f
			return nil
		})
	}
	return formats, g.Wait()
}

func (s *sniffer) unreadable(ctx context.Context, o storage.Object, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if s.onCorrupt == spec.CorruptSkip {
		s.log.Warn("file can't be read, passed over", "file", o.Path, "error", err)
		return nil
	}
	return fmt.Errorf("%s: can't tell whether it is a shard: %w: make it readable, name the shards' --format, or leave it out with --on-corrupt skip", o.Path, err)
}

// format is a file's format by its content, nil for none. What has a known
// ending is asked about by formats that may have it all the same.
func (s *sniffer) format(ctx context.Context, c candidate) (unpack.Format, error) {
	raw := &objectReader{ctx: ctx, storage: s.storage, object: c.object}
	defer raw.close()
	if s.table.byExtension(c.inner) == nil {
		head, err := s.head(c, raw)
		if err != nil {
			return nil, err
		}
		return s.byContent(c, head), nil
	}
	for _, f := range s.table.formats {
		if own, ok := f.(unpack.OwnCodecs); ok && own.Takes(c.object.Path) {
			if is, err := own.SniffRaw(raw, c.object.SizeBytes); is || err != nil {
				return f, err
			}
		}
	}
	return nil, nil
}

func (s *sniffer) byContent(c candidate, head []byte) unpack.Format {
	for _, f := range s.table.formats {
		if own, ok := f.(unpack.OwnCodecs); ok && !own.Takes(c.object.Path) {
			continue
		}
		if f.Sniff(head) {
			return f
		}
	}
	return nil
}

// head is the first unpack.SniffBytes of a file's decoded bytes, fewer when it
// has no more. What does not decode gives what came before.
func (s *sniffer) head(c candidate, raw *objectReader) ([]byte, error) {
	codec := s.table.byNumber(c.codec)
	if codec == nil {
		head := make([]byte, min(c.object.SizeBytes, unpack.SniffBytes))
		n, err := raw.ReadAt(head, 0)
		if err == io.EOF {
			err = nil
		}
		return head[:n], err
	}
	return decodedHead(codec, raw, min(c.object.SizeBytes, sniffRawBytes))
}

func decodedHead(codec unpack.Codec, raw io.ReaderAt, rawBytes int64) ([]byte, error) {
	watched := &watchedReader{r: io.NewSectionReader(raw, 0, rawBytes)}
	d, err := codec.NewDecoder(watched, 0)
	if err != nil {
		return nil, err
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
