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
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

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
			"its units became %d records, which are read as %d: consecutive records with the same key are one sample, so let the filter give each sample a key of its own", t.records, n)}
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

// commits renames results to their final names. Several waiting results are made durable together:
// otherwise small shards would wait for the disk one after another.
//
//	lines of the ledger, fsync  ─►  rename each  ─►  fsync of the directories
//
// The process may be killed between any two of these: a ledger line whose file is missing, or
// different, has no effect.
type commits struct {
	ledger *ledger.Ledger
	root   string
	step   func()
	queue  chan *commit
	ended  chan struct{}
}

type commit struct {
	*result
	done chan error
}

// commitsAtATime is the maximum number of results that are made durable together.
const commitsAtATime = 256

func newCommits(l *ledger.Ledger, root string, step func()) *commits {
	c := &commits{ledger: l, root: root, step: step, queue: make(chan *commit, commitsAtATime), ended: make(chan struct{})}
	go c.run()
	return c
}

// close waits until the queue is empty.
func (c *commits) close() {
	close(c.queue)
	<-c.ended
}

// do makes a result durable. It consumes the result; on error the result's file is removed.
func (c *commits) do(ctx context.Context, x *result) error {
	if err := ctx.Err(); err != nil {
		x.discard()
		return err
	}
	one := &commit{x, make(chan error, 1)}
	c.queue <- one
	err := <-one.done
	if err != nil {
		x.discard()
	}
	return err
}

// discard removes the file of a result that has no name yet.
func (x *result) discard() {
	if x.temp != "" {
		_ = os.Remove(x.temp) // otherwise the next run does; after a rename it is gone
	}
}

func (c *commits) run() {
	defer close(c.ended)
	for first := range c.queue {
		waiting := []*commit{first}
		for len(waiting) < commitsAtATime && len(c.queue) > 0 {
			waiting = append(waiting, <-c.queue)
		}
		c.together(waiting)
	}
}

// together makes results durable, and sends each its outcome.
func (c *commits) together(waiting []*commit) {
	entries := make([]ledger.Entry, len(waiting))
	for i, x := range waiting {
		entries[i] = x.entry
	}
	c.step()
	err := c.ledger.Add(entries...)
	dirs := map[string]error{}
	errs := make([]error, len(waiting))
	for i, x := range waiting {
		if errs[i] = err; err == nil {
			errs[i] = c.name(x, dirs)
		}
	}
	for dir := range dirs {
		c.step()
		dirs[dir] = syncDir(dir)
	}
	for i, x := range waiting {
		if errs[i] == nil {
			errs[i] = dirs[filepath.Dir(c.path(x))]
		}
		if errs[i] != nil {
			errs[i] = fmt.Errorf("DST: %w", errs[i])
		}
		x.done <- errs[i]
	}
}

func (c *commits) path(x *commit) string { return filepath.Join(c.root, x.source.name()) }

// name renames a result to its final name; if nothing is left of the shard, it removes the previous
// result.
func (c *commits) name(x *commit, dirs map[string]error) error {
	path := c.path(x)
	c.step()
	if x.temp == "" {
		err := os.Remove(path)
		if err == nil {
			dirs[filepath.Dir(path)] = nil
		} else if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			err = nil
		}
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("%w: a file is where a directory is to be: delete it if its source is gone (--mirror does so), or name another DST", err)
	} else if err != nil {
		return err
	}
	c.step()
	if err := os.Rename(x.temp, path); err != nil {
		return err
	}
	dirs[filepath.Dir(path)] = nil
	return nil
}

// syncDir makes the names in a directory durable, if the file system supports it.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err = d.Sync(); errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}

// mirror deletes the results of sources that are gone. If SRC is empty, it deletes nothing and
// returns false. A result that was changed after it was made is not deleted.
func (r *run) mirror(ctx context.Context, gone []string, empty bool) (bool, error) {
	var forget []string
	for _, path := range gone {
		if _, known := r.ledger.Get(path); known {
			forget = append(forget, path)
		}
	}
	if len(forget) == 0 {
		return true, nil
	}
	if empty {
		r.warnOnce(fmt.Sprintf("SRC is empty, and DST has %d results: --mirror deletes none of them, in case SRC is not mounted", len(r.ledger.Paths())))
		return false, nil
	}
	for _, path := range forget {
		removed, err := r.remove(ctx, path)
		if err != nil {
			return false, fmt.Errorf("delete the result of a source that is gone: %w", err)
		}
		if removed {
			r.Progress.change(func(c *Counts) { c.Removed++ })
		}
	}
	return true, r.ledger.Remove(forget...)
}

// remove deletes a result, and directories that become empty.
func (r *run) remove(ctx context.Context, path string) (bool, error) {
	full := filepath.Join(r.Destination, path)
	p, err := look(full)
	if err != nil || p == absent {
		return false, err
	}
	made := false
	if p == aFile {
		sum, err := sumOfFile(ctx, full)
		if err != nil {
			return false, err
		}
		made = r.ledger.Made(path, sum)
	}
	if !made {
		r.Warn(fmt.Sprintf("%s: its source is gone, and it was changed after the filter made it: it stays", full))
		return false, nil
	}
	if err := os.Remove(full); err != nil {
		return false, err
	}
	for dir := filepath.Dir(full); dir != r.Destination && within(dir, r.Destination); dir = filepath.Dir(dir) {
		if os.Remove(dir) != nil { // not empty
			return true, nil
		}
	}
	return true, nil
}

// warnOnce warns, unless that was the last warning about SRC.
func (r *run) warnOnce(text string) {
	if text != r.told {
		r.Warn(text)
		r.told = text
	}
}
