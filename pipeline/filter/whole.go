package filter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

	"github.com/lsiofs/lsiofs/pipeline/filter/command"
	"github.com/lsiofs/lsiofs/pipeline/filter/ledger"
	"github.com/lsiofs/lsiofs/pipeline/filter/units"
	"github.com/lsiofs/lsiofs/pipeline/format/encode"
)

// tries is how often a filter is run for the same data.
const tries = 2

// whole filters a shard as a whole. An empty result means that nothing of the shard is left.
func (r *run) whole(ctx context.Context, s *source) (x *result, err error) {
	for range tries {
		x, err = r.wholeOnce(ctx, s)
		failure, ok := errors.AsType[*Failure](err)
		if !ok || failure.Source {
			return x, err
		}
	}
	if damage := r.damageOf(ctx, s); err != nil && damage != nil {
		return nil, damage // the filter is not the cause
	}
	return x, err
}

// damageOf returns the damage of a shard as a Failure, or nil.
func (r *run) damageOf(ctx context.Context, s *source) error {
	f, err := s.open()
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	_, err = r.scan(ctx, s, f, s.Object.SizeBytes)
	return damaged(ctx, s, err)
}

func (r *run) wholeOnce(ctx context.Context, s *source) (*result, error) {
	f, err := s.open()
	if err != nil {
		return nil, err
	}
	d, err := r.newDraft()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	switch r.By {
	case ByPipe:
		err = r.program.Pipe(ctx, s.name(), f, func(out io.Reader) error {
			_, err := io.Copy(d, out)
			return err
		})
	case ByDirs:
		err = errors.Join(r.wholeByDirs(ctx, s, f, d), f.Close())
	case ByProcess:
		err = errors.Join(r.wholeByProcess(ctx, s, f, d), f.Close())
	}
	if err = d.or(err); err != nil && d.err == nil {
		if ctx.Err() == nil && isHopeless(err) {
			err = &HopelessError{err} // not about one shard: every shard would cause it
		} else {
			err = failed(ctx, s, err)
		}
	}
	if err == nil {
		if f, err = s.open(); err == nil { // check that it is unchanged
			err = f.Close()
		}
	}
	if err != nil {
		d.discard()
		return nil, err
	}
	t := tally{in: 1}
	if d.n > 0 {
		t.out = 1
	}
	return r.finish(ctx, d, s, t)
}

// wholeByProcess passes the shard's decoded bytes to a process.
func (r *run) wholeByProcess(ctx context.Context, s *source, f *os.File, d *draft) error {
	select {
	case r.tokens <- struct{}{}:
		defer func() { <-r.tokens }()
	case <-ctx.Done():
		return ctx.Err()
	}
	data, err := units.Whole(s.Codec, f, s.Object.SizeBytes, r.UnitBytes)
	if err != nil {
		return damaged(ctx, s, err)
	}
	reply, err := r.servers.ask(ctx, s.name(), s.name(), data, r.UnitBytes)
	switch {
	case err != nil:
		return err
	case reply.Status == command.ReplyFailed:
		return errReply(reply)
	case len(reply.Body) == 0:
		return nil
	}
	w, err := encode.New(s.Codec, d)
	if err == nil {
		_, err = w.Write(reply.Body)
	}
	if err == nil {
		err = w.Close()
	}
	return err
}

// errReply returns a filter's own message about a failure as an error.
func errReply(reply command.Reply) error {
	return fmt.Errorf("the filter failed on it: %.1000q", reply.Body)
}

// wholeByDirs runs the program with the shard as a file.
func (r *run) wholeByDirs(ctx context.Context, s *source, f *os.File, d *draft) error {
	dirs, err := r.newDirs()
	if err != nil {
		d.fail(err)
		return err
	}
	defer dirs.remove()
	name := path.Base(s.name())
	if err := dirs.put(name, f); err != nil {
		d.fail(err)
		return err
	}
	if err := r.program.Run(ctx, s.name(), dirs.values()); err != nil {
		return err
	}
	if err := dirs.strangers(func(other string) bool { return other == name }); err != nil {
		return err
	}
	result, err := dirs.get(name)
	if err != nil || result == nil {
		return err
	}
	_, err = io.Copy(d, result)
	return errors.Join(err, result.Close())
}

// dirs are the directories that a program gets.
type dirs struct{ root string }

func (r *run) newDirs() (d dirs, err error) {
	d.root, err = os.MkdirTemp(r.Destination, ledger.TempPrefix+"*")
	for _, dir := range []string{d.in(), d.out()} {
		if err == nil {
			err = os.Mkdir(dir, 0o777)
		}
	}
	return d, err
}

func (d dirs) in() string  { return filepath.Join(d.root, "in") }
func (d dirs) out() string { return filepath.Join(d.root, "out") }

// values returns the replacements of {in} and {out}.
func (d dirs) values() map[string]string { return map[string]string{"in": d.in(), "out": d.out()} }

// remove removes both. Files that the program made unremovable stay.
func (d dirs) remove() { _ = os.RemoveAll(d.root) }

// put writes an input file. It is a copy, so the program may modify it.
func (d dirs) put(name string, from io.Reader) error {
	f, err := os.OpenFile(filepath.Join(d.in(), name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// get opens a result; it returns nil if there is none.
func (d dirs) get(name string) (*os.File, error) {
	at := filepath.Join(d.out(), name)
	switch p, err := look(at); {
	case err != nil:
		return nil, err
	case p == absent:
		return nil, nil
	case p == aStranger:
		return nil, fmt.Errorf("its result in {out}, %q, is not a regular file", name)
	}
	return os.Open(at)
}

// strangers returns an error if {out} has a file that is not the result of a file in {in}: the
// program then names results by other rules, and all units would count as dropped.
func (d dirs) strangers(known func(name string) bool) error {
	list, err := os.ReadDir(d.out())
	if err != nil {
		return err
	}
	for _, e := range list {
		if !known(e.Name()) {
			return fmt.Errorf("it made %q in {out}, but a result must have the name of its file in {in}: %w", e.Name(), errStranger)
		}
	}
	return nil
}

// errStranger is wrapped by errors about results with unexpected names.
var errStranger = errors.New("nothing was kept of them")
