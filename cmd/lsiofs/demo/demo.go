package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/doctor"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
)

// Options are the demo's options. Keep leaves its directory in place.
type Options struct {
	Keep bool
}

// Run runs the demo in a temporary directory and cleans up in any case. It prints the steps to
// stdout.
func Run(ctx context.Context, o Options, u *terminal.UI) (err error) {
	if missing := doctor.CanMount(); missing != nil {
		return missing
	}
	dir, err := os.MkdirTemp("", "lsiofs-demo-")
	if err != nil {
		return err
	}
	d := &demo{ui: u, dir: dir, variable: "$D"}
	if terminal.Quote(dir) != dir {
		d.variable = `"$D"`
	}
	defer func() { err = errors.Join(err, d.cleanUp(o.Keep)) }()
	return d.run(ctx)
}

// demo is a running demo.
type demo struct {
	ui       *terminal.UI
	dir      string
	variable string  // how shown commands refer to dir
	child    *server // nil: not mounted
}

func (d *demo) run(ctx context.Context) error {
	begin := time.Now()
	samples, err := MakeShards(d.path("$D/shards"))
	if err != nil {
		return err
	}
	// Keeps indexes here instead of in the user's cache.
	if err := os.Mkdir(d.path("$D/shards/.lsiofs"), 0o700); err != nil {
		return err
	}
	d.line("This demo mounts a small dataset, reads a part, saves a checkpoint, and reads")
	d.line("the rest. It runs the commands after $. To try them yourself later, add --keep.")

	d.step("The dataset: %s in %s.", terminal.Plural(uint64(len(samples)), "sample"), terminal.Plural(Shards, "tar shard"))
	d.line("$ D=%s", terminal.Quote(d.dir))
	shards, err := os.ReadDir(d.typed("ls $D/shards")[1])
	if err != nil {
		return err
	}
	d.say("%s … %s", shards[1].Name(), shards[len(shards)-1].Name()) // the first one is .lsiofs

	d.step("Mount it for two workers. Each has a file: its share of the shuffled epoch.")
	if err := os.Mkdir(d.typed("mkdir -p $D/mnt")[2], 0o700); err != nil {
		return err
	}
	if err := d.mount(ctx, "lsiofs mount $D/shards $D/mnt --workers 2 --seed 42 --daemon"); err != nil {
		return err
	}
	seen := newTally(samples)
	consumed, err := d.readSome(ctx, seen)
	if err != nil {
		return err
	}
	if err := d.unmount(ctx); err != nil {
		return err
	}

	d.step("Resume from the checkpoint with three workers: the files hold what is left.")
	if err := d.mount(ctx, "lsiofs mount $D/shards $D/mnt --workers 3 --resume $D/ckpt.json --daemon"); err != nil {
		return err
	}
	rest, err := d.readRest(ctx, seen, 3)
	if err != nil {
		return err
	}
	if err := d.unmount(ctx); err != nil {
		return err
	}

	d.step("Was each record delivered exactly once, with the right contents?")
	if err := seen.check(); err != nil {
		return exit.With(exit.Check, err)
	}
	d.say("Yes: %d before the checkpoint and %d after it, %s in all (%s).",
		consumed, rest, terminal.Plural(uint64(len(samples)), "record"), terminal.Round(time.Since(begin)))
	_, err = exec.LookPath("lsiofs")
	d.showNext(err == nil)
	return nil
}

// readSome reads the beginning of both workers' files, saves a checkpoint, and returns the number
// of records that the checkpoint counts.
func (d *demo) readSome(ctx context.Context, seen *tally) (int, error) {
	d.step("Any program can read them. Here both workers stop in the middle of a record.")
	var parts [2]string
	for w, n := range []int64{150_000, 220_000} {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		args := d.typed(fmt.Sprintf("head -c %d $D/mnt/worker-%d.tar > $D/part-%d.tar", n, w, w))
		parts[w] = args[5]
		if err := copyHead(args[3], parts[w], n); err != nil {
			return 0, err
		}
	}
	d.step("Save a checkpoint: it counts the complete records of each worker.")
	args := d.typed("cp $D/mnt/checkpoint $D/ckpt.json")
	doc, err := os.ReadFile(args[1])
	if err == nil {
		err = os.WriteFile(args[2], doc, 0o600)
	}
	if err != nil {
		return 0, err
	}
	counts, err := delivered(doc, 2)
	if err != nil {
		return 0, err
	}
	d.say("worker 0 has received %d records, worker 1 %d", counts[0], counts[1])
	d.say("Most programs read ahead. They save the records that they have used:")
	d.say("lsiofs checkpoint save $D/mnt $D/ckpt.json --consumed %d,%d", counts[0], counts[1])
	total := 0
	for w, part := range parts {
		if err := seen.addTar(part, int(counts[w])); err != nil {
			return 0, err
		}
		total += int(counts[w])
	}
	return total, nil
}

// readRest reads all workers' files to the end.
func (d *demo) readRest(ctx context.Context, seen *tally, workers int) (int, error) {
	d.step("Read all of it.")
	total := 0
	for w := range workers {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		args := d.typed(fmt.Sprintf("tar -tf $D/mnt/worker-%d.tar", w))
		before := seen.total
		if err := seen.addTar(args[2], wholeFile); err != nil {
			return 0, err
		}
		d.say("%d records", seen.total-before)
		total += seen.total - before
	}
	return total, nil
}

// showNext shows what to type for one's own dataset. If the command is not installed, it begins
// with the installation, because go run leaves none.
func (d *demo) showNext(installed bool) {
	d.step("Next, with your own data:")
	if !installed {
		d.say("CGO_ENABLED=0 go install ./cmd/lsiofs     # to $(go env GOPATH)/bin")
	}
	d.say("lsiofs mount YOUR_DATA MNT --workers 4    # shows how to read and save")
	d.say("lsiofs help checkpoints                   # how a training program resumes")
	d.say("lsiofs help                               # all commands, and the manual")
}

// typed shows a command and returns its words. In the command, $D is the demo's directory, as in a
// shell; the returned words contain its path.
func (d *demo) typed(command string) (words []string) {
	d.line("$ %s", strings.ReplaceAll(command, "$D", d.variable))
	for word := range strings.FieldsSeq(command) {
		words = append(words, d.path(word))
	}
	return words
}

func (d *demo) path(word string) string { return strings.Replace(word, "$D", d.dir, 1) }

func (d *demo) step(format string, args ...any) { d.line("\n# "+format, args...) }
func (d *demo) say(format string, args ...any)  { d.line("  "+format, args...) }

// line writes to stdout; with --json each line is an object.
func (d *demo) line(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if d.ui.JSON {
		_ = d.ui.Emit(map[string]string{"demo": text})
		return
	}
	fmt.Fprintln(d.ui.Out, text)
}
