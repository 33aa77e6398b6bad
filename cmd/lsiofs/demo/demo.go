package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/doctor"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
)

// Options say what becomes of the directory: Keep leaves it in place.
type Options struct {
	Keep bool
}

// Run runs the demo in a temporary directory, and cleans up whatever
// happens. Steps go to stdout; an error says what is wrong.
func Run(ctx context.Context, o Options, u *terminal.UI) (err error) {
	if missing := doctor.CanMount(); missing != nil {
		return missing
	}
	dir, err := os.MkdirTemp("", "lsiofs-demo-")
	if err != nil {
		return err
	}
	d := &demo{ui: u, dir: dir, data: filepath.Join(dir, "shards"), mnt: filepath.Join(dir, "mnt")}
	defer func() { err = errors.Join(err, d.cleanUp(o.Keep)) }()
	return d.run(ctx)
}

// demo is a demo under way.
type demo struct {
	ui             *terminal.UI
	dir, data, mnt string
	child          *server // nil: not mounted
}

func (d *demo) run(ctx context.Context) error {
	begin := time.Now()
	samples, err := MakeShards(d.data)
	if err != nil {
		return err
	}
	// Indexes go here instead of the user's cache.
	if err := errors.Join(os.Mkdir(filepath.Join(d.data, ".lsiofs"), 0o700), os.Mkdir(d.mnt, 0o700)); err != nil {
		return err
	}
	d.step("a small dataset: %s in %s, and a directory to mount it on", terminal.Plural(uint64(len(samples)), "sample"), terminal.Plural(Shards, "tar shard"))
	d.typed("ls %s", d.data)
	d.typed("mkdir %s", d.mnt)

	d.step("mount it for two workers: each has a file with its share of the shuffled epoch")
	if err := d.mount(ctx, "--workers", "2", "--seed", "42"); err != nil {
		return err
	}
	seen := newTally(samples)
	ckpt := filepath.Join(d.dir, "ckpt.json")
	consumed, err := d.readSome(ctx, seen, ckpt)
	if err != nil {
		return err
	}
	if err := d.unmount(ctx); err != nil {
		return err
	}

	d.step("go on where that was, with three workers instead of two")
	if err := d.mount(ctx, "--workers", "3", "--resume", ckpt); err != nil {
		return err
	}
	rest, err := d.readRest(ctx, seen, 3)
	if err != nil {
		return err
	}
	if err := d.unmount(ctx); err != nil {
		return err
	}

	d.step("was every record read exactly once?")
	if err := seen.check(); err != nil {
		return exit.With(exit.Check, err)
	}
	d.say("yes: %d before the checkpoint and %d after it are all %d, each once, with the right contents (%s)",
		consumed, rest, len(samples), terminal.Round(time.Since(begin)))
	return nil
}

// readSome reads the beginning of both workers' files, saves a checkpoint, and
// counts what it says was delivered.
func (d *demo) readSome(ctx context.Context, seen *tally, ckpt string) (int, error) {
	d.step("read a part of both")
	var parts [2]string
	for w, n := range []int64{150_000, 220_000} { // somewhere inside a record
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		parts[w] = filepath.Join(d.dir, fmt.Sprintf("part-%d.tar", w))
		d.typed("head -c %d %s > %s", n, d.worker(w), parts[w])
		if err := copyHead(d.worker(w), parts[w], n); err != nil {
			return 0, err
		}
	}
	d.step("save a checkpoint: the whole records that each worker was given")
	d.typed("cp %s/checkpoint %s", d.mnt, ckpt)
	doc, err := os.ReadFile(filepath.Join(d.mnt, "checkpoint"))
	if err == nil {
		err = os.WriteFile(ckpt, doc, 0o600)
	}
	if err != nil {
		return 0, err
	}
	counts, err := delivered(doc, 2)
	if err != nil {
		return 0, err
	}
	d.say("worker 0 has had %d records, worker 1 %d", counts[0], counts[1])
	total := 0
	for w, part := range parts {
		if err := seen.addTar(part, int(counts[w])); err != nil {
			return 0, err
		}
		total += int(counts[w])
	}
	return total, nil
}

// readRest reads all workers' files to their ends.
func (d *demo) readRest(ctx context.Context, seen *tally, workers int) (int, error) {
	d.step("read what is left, all of it")
	total := 0
	for w := range workers {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		d.typed("tar -tf %s", d.worker(w))
		before := seen.total
		if err := seen.addTar(d.worker(w), wholeFile); err != nil {
			return 0, err
		}
		d.say("%d records", seen.total-before)
		total += seen.total - before
	}
	return total, nil
}

func (d *demo) worker(w int) string { return filepath.Join(d.mnt, fmt.Sprintf("worker-%d.tar", w)) }

func (d *demo) step(format string, args ...any)  { d.line("\n# "+format, args...) }
func (d *demo) typed(format string, args ...any) { d.line("$ "+format, args...) }
func (d *demo) say(format string, args ...any)   { d.line("  "+format, args...) }

// line writes to stdout; under --json each line is an object.
func (d *demo) line(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if d.ui.JSON {
		_ = d.ui.Emit(map[string]string{"demo": text})
		return
	}
	fmt.Fprintln(d.ui.Out, text)
}
