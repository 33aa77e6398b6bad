package filter

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/filter/ledger"
	"github.com/lsiofs/lsiofs/pipeline/filter/units"
	"github.com/lsiofs/lsiofs/pipeline/format"
)

// result is what a shard has become. Its file is durable, but has no name yet.
type result struct {
	source *source
	temp   string // "" if nothing is left of the shard
	entry  ledger.Entry
	bytes  int64
}

// draft is a result being written. It must not be used concurrently. It ends with finish or
// discard.
type draft struct {
	file *os.File
	out  *bufio.Writer
	hash hash.Hash
	n    int64
	err  error // error of writing: not a Failure, it ends the run
}

const draftBuffer = 256 << 10

func (r *run) newDraft() (*draft, error) {
	f, err := os.CreateTemp(r.Destination, ledger.TempPrefix+"*")
	if err != nil {
		return nil, fmt.Errorf("DST: %w", err)
	}
	return &draft{file: f, out: bufio.NewWriterSize(f, draftBuffer), hash: sha256.New()}, nil
}

// Write implements io.Writer.
func (d *draft) Write(p []byte) (int, error) {
	n, err := d.out.Write(p)
	_, _ = d.hash.Write(p[:n])
	d.n += int64(n)
	d.fail(err)
	return n, err
}

func (d *draft) fail(err error) {
	if err != nil && d.err == nil {
		d.err = fmt.Errorf("write DST: %w", err)
	}
}

// or returns the write error if there is one, else err: any later error is a consequence of it.
func (d *draft) or(err error) error {
	if d.err != nil {
		return d.err
	}
	return err
}

// discard removes a draft.
func (d *draft) discard() {
	_ = d.file.Close()           // its contents are not needed
	_ = os.Remove(d.file.Name()) // otherwise the next run does
}

// conclude ends the draft d of a shard's units, which w wrote from the file f. It returns a result,
// or, if err is not nil or an error occurs, none.
func (r *run) conclude(ctx context.Context, s *source, f *os.File, d *draft, w *units.Writer, t tally, err error) (*result, error) {
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		err = s.unchanged(f)
	}
	if err == nil {
		err = noneLeft(s, t)
	}
	if err = d.or(err); err != nil {
		d.discard()
		return nil, err
	}
	return r.finish(ctx, d, s, t)
}

// finish checks a draft by reading it in its format, and makes it durable. It ends the draft.
func (r *run) finish(ctx context.Context, d *draft, s *source, t tally) (x *result, err error) {
	x = &result{source: s, entry: ledger.Entry{
		Source: s.sum, Filter: r.filterSum, Result: ledger.Nothing, UnitsIn: t.in, UnitsOut: t.out, Path: s.name(),
	}}
	if t.out == 0 {
		d.discard()
		return x, nil
	}
	defer func() {
		if err != nil {
			d.discard()
		}
	}()
	d.fail(d.out.Flush())
	if d.err != nil {
		return nil, d.err
	}
	if x.entry.Records, err = r.sound(ctx, d, s); err != nil {
		return nil, err
	}
	if n := x.entry.Records; t.cut && n != t.records {
		return nil, &Failure{Shard: s.name(), Err: fmt.Errorf(
			"its units have become %d records, which together are read as %d: neighbours with one key are one sample: have the filter give each sample another key", t.records, n)}
	}
	// It gets the source's time, so that newer shards stay newer.
	at := time.Unix(0, s.Object.Version.ModTimeNanos)
	d.fail(errors.Join(d.file.Chmod(s.mode), os.Chtimes(d.file.Name(), at, at), d.file.Sync()))
	if d.err != nil {
		return nil, d.err
	}
	if err := d.file.Close(); err != nil {
		return nil, fmt.Errorf("write DST: %w", err)
	}
	x.temp, x.bytes, x.entry.Result = d.file.Name(), d.n, ledger.Sum(d.hash.Sum(nil))
	return x, nil
}

// sound reads a draft in the same way as a mount, and counts its records.
func (r *run) sound(ctx context.Context, d *draft, s *source) (records uint64, err error) {
	records, err = r.scan(ctx, s, d.file, d.n)
	// Units were already checked.
	if refused := errors.As(err, new(*format.RefusedError)); (err == nil || refused) && r.Each == EachShard && r.format.Format.Name == "jsonl" {
		// Its error has the line number.
		if worse := units.CheckJSON(ctx, s.Codec, d.file, d.n, r.UnitBytes); worse != nil {
			err = worse
		}
	}
	if err != nil {
		err = failed(ctx, s, fmt.Errorf("the result is not a sound shard of format %s: %w", r.format.Format.Name, err))
	}
	return records, err
}

// scan counts the records of a shard, or of a result. Any damage is an error.
func (r *run) scan(ctx context.Context, s *source, raw io.ReaderAt, sizeBytes int64) (records uint64, err error) {
	count := func(format.Extent) error { records++; return nil }
	sum, err := format.Scan(ctx, r.format.Unpacker, s.Codec, raw, sizeBytes, count, func() { records = 0 })
	if err == nil {
		if lost := sum.Lost(); len(lost.First) > 0 {
			err = lost.First[0]
		}
	}
	return records, err
}
