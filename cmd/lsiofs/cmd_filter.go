package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/filter"
	"github.com/lsiofs/lsiofs/pipeline/filter/command"
	"github.com/lsiofs/lsiofs/pipeline/filter/units"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
)

func newFilterCommand(g *globals) *cobra.Command {
	o := filter.Default()
	o.Processes = runtime.GOMAXPROCS(0)
	c := &cobra.Command{
		Use:   "filter SRC DST [flags] -- CMD [ARG…]",
		Short: "Run a program over the shards of a dataset, and store its results",
		Long: `Runs the program CMD on each shard below the directory SRC, and stores the result below
DST, under the same path and in the same format and compression. Shards that already
have a result are skipped, so you can run the command again at any time, or keep it
running with --watch. A result appears under its name only when it is complete, so DST
can be mounted while the filter runs.

--by pipe runs CMD once per shard, with the file on stdin and the result on stdout.
--by dirs runs CMD for up to 1000 units (games, samples, lines) at a time. The units are
files in the directory {in}; CMD writes results with the same names to the directory
{out}, and a unit without a result is left out. --by process starts a few long-running
processes, and sends each of them one unit after the other.

See lsiofs help filter for the protocol, for what counts as a different filter, and for
the rescorer of Leela Chess Zero.`,
		Example: `  lsiofs filter /data/raw /data/clean -- jq -c 'select(.score > 0.5)'
  lsiofs filter /games /rescored --by dirs --watch -- rescorer rescore \
    --input={in} --output={out} --delete-files=false --syzygy-paths=/tb
  lsiofs filter /data/raw /data/small --by process --processes 8 -- ./resize.py`,
		Args: func(c *cobra.Command, args []string) error {
			switch dash := c.ArgsLenAtDash(); {
			case dash < 0:
				return exit.Usagef("the command comes after --: lsiofs filter SRC DST -- CMD (see lsiofs filter --help)")
			case dash != 2:
				return exit.Usagef("lsiofs filter takes SRC and DST before --, but there %s (see lsiofs filter --help)", argCount(dash))
			case len(args) == dash:
				return exit.Usagef("no command after --: lsiofs filter SRC DST -- CMD (see lsiofs filter --help)")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			o.Source, o.Destination, o.Command = args[0], args[1], args[2:]
			return runFilter(c.Context(), o, g)
		},
	}
	f := c.Flags()
	f.SortFlags = false
	enumFlag(c, "by", "how CMD gets its input", &o.By, filter.ByPipe, filter.ByDirs, filter.ByProcess)
	enumFlag(c, "each", "what CMD gets at a time (default unit, or shard with --by pipe)", &o.Each, filter.EachShard, filter.EachUnit)
	f.StringVar(&o.Name, "name", "", "name or version of this filter; if it changes, all shards are filtered again")
	f.IntVar(&o.Processes, "processes", o.Processes, "number of CMD processes that run at a time")
	f.BoolVar(&o.Watch, "watch", false, "keep running, and filter new shards that arrive in SRC")
	f.BoolVar(&o.Mirror, "mirror", false, "delete results whose sources no longer exist")
	enumFlag(c, "on-failed", "if CMD fails on its input, stop, or skip that input", &o.OnFailed, filter.FailedFail, filter.FailedSkip)
	f.DurationVar(&o.Timeout, "timeout", o.Timeout, "kill CMD if it takes longer than this for a shard, a batch or an answer")
	sizeFlag(f, "unit-bytes", "maximum size of a decoded unit, and of the result for a unit", &o.UnitBytes)
	f.DurationVar(&o.Poll, "poll", o.Poll, "with --watch: how often to list directories for which the kernel reports no changes, and to delete results")
	f.DurationVar(&o.Settle, "settle", 0, "how long a file must be unchanged before it is used, if lsiofs can't tell whether it is open for writing (0: 30s, 70s on network file systems)")
	enumFlag(c, "format", "format of the shards, which determines the units", &o.Format.Name, append([]string{"auto"}, formats.Names()...)...)
	addExclude(f, &o.Exclude)
	sizeFlag(f, "record-bytes", "format fixed: size of a record in bytes", &o.Format.RecordBytes)
	return c
}

func runFilter(ctx context.Context, o filter.Config, g *globals) error {
	if err := o.Validate(); err != nil {
		return exit.With(exit.Usage, err)
	}
	return filterAndReport(ctx, o, g.ui)
}

// filterSummary is the report at the end and, with --watch, after each round that did something.
type filterSummary struct {
	Source      string   `json:"source"`
	Destination string   `json:"destination"`
	Command     []string `json:"command"`
	filter.Counts
	// Taken are the shards by naming pattern and LeftOut the other files, the first ones of each,
	// as of the time when the run listed SRC.
	Taken   []discover.Group   `json:"taken,omitempty"`
	LeftOut []discover.Verdict `json:"left_out,omitempty"`
	Seconds float64            `json:"seconds"`
}

// filterAndReport runs a filter. It sets the functions of c that report to the user.
func filterAndReport(ctx context.Context, c filter.Config, u *terminal.UI) error {
	began := time.Now()
	var found discover.Selection
	c.Found = func(s *discover.Selection) {
		found = *s
		opening.TellFound(u, s)
	}
	summary := func(counts filter.Counts) filterSummary {
		return filterSummary{c.Source, c.Destination, c.Command, counts, found.Taken, found.FirstLeft, time.Since(began).Seconds()}
	}
	c.Warn = u.Warn
	c.Said = func(shard, line string) { u.Notef("%s: %s", shard, line) }
	if u.JSON {
		c.Said = func(shard, line string) { u.Said(shard, line) }
	}
	c.Round = func(counts filter.Counts) {
		if u.JSON {
			_ = u.Emit(summary(counts)) // if the reader of the output is gone, the work continues
			return
		}
		u.Notef("%s", filterLine(counts))
	}
	shown := showFilterProgress(u, c.Progress)
	counts, err := filter.Run(ctx, c)
	shown.end()
	if c.Watch && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil // the normal end
	}
	if err != nil {
		return codedFilterError(err)
	}
	s := summary(counts)
	if u.JSON {
		return u.Emit(s)
	}
	return printFilter(u, s)
}

// codedFilterError attaches an exit code to an error.
func codedFilterError(err error) error {
	var shards *filter.NoShardsError
	switch {
	case errors.Is(err, command.ErrNotFound), errors.Is(err, filter.ErrPlaces), errors.Is(err, units.ErrWhole):
		return exit.With(exit.Usage, err)
	case errors.As(err, &shards):
		return exit.With(exit.Dataset, err)
	}
	if f, ok := errors.AsType[*filter.Failure](err); ok {
		code := exit.Failure
		if f.Source {
			code = exit.Dataset
		}
		return exit.With(code, fmt.Errorf("%w (no result of this shard was kept; --on-failed skip leaves out the units that fail)", err))
	}
	return err
}

func filterLine(c filter.Counts) string {
	text := fmt.Sprintf("%s filtered, %s already had a result", terminal.Plural(c.Filtered, "shard"), terminal.Count(c.Unchanged))
	for _, x := range []struct {
		n    uint64
		text string
	}{{c.Failed, "failed"}, {c.Removed, "removed"}, {c.Writing, "being written"}, {c.Passed, "skipped"}} {
		if x.n > 0 {
			text += fmt.Sprintf(", %s %s", terminal.Count(x.n), x.text)
		}
	}
	return text
}

func printFilter(u *terminal.UI, s filterSummary) error {
	rows := [][2]string{
		{"shards", terminal.Count(s.Shards)},
		{"filtered", fmt.Sprintf("%s (%s to %s)", terminal.Plural(s.Filtered, "shard"), terminal.Bytes(s.BytesIn), terminal.Bytes(s.BytesOut))},
		{"had a result", terminal.Plural(s.Unchanged, "shard")},
		{"units", fmt.Sprintf("%s in, %s out", terminal.Count(s.UnitsIn), terminal.Count(s.UnitsOut))},
		{"records", terminal.Count(s.Records)},
	}
	for _, x := range []struct {
		name string
		n    uint64
		one  string
	}{
		{"dropped", s.Dropped, "shard"}, {"failed", s.Failed, "shard"}, {"failed units", s.UnitsLost, "unit"}, {"removed", s.Removed, "result"},
		{"being written", s.Writing, "file"}, {"skipped", s.Passed, "file"},
	} {
		if x.n > 0 {
			rows = append(rows, [2]string{x.name, terminal.Plural(x.n, x.one)})
		}
	}
	return terminal.Table(u.Out, rows)
}

// filterView shows progress while a filter runs: a bar on a terminal, otherwise a line every few
// seconds.
type filterView struct {
	stop, stopped chan struct{}
}

func showFilterProgress(u *terminal.UI, p *filter.Progress) *filterView {
	v := &filterView{make(chan struct{}), make(chan struct{})}
	go v.run(u, p)
	return v
}

// end removes it from the screen.
func (v *filterView) end() {
	close(v.stop)
	<-v.stopped
}

func (v *filterView) run(u *terminal.UI, p *filter.Progress) {
	defer close(v.stopped)
	bar := u.NewBytesBar(terminal.RedrawEvery)
	defer bar.Clear()
	pace, began := terminal.NewPace(), time.Now()
	tick := time.NewTicker(terminal.RedrawEvery)
	defer tick.Stop()
	last := filter.Counts{}
	for {
		select {
		case <-v.stop:
			return
		case <-tick.C:
		}
		c := p.Counts()
		switch {
		case c.Bytes == c.Total: // no work is pending
			bar.Clear()
		case u.Terminal && !u.JSON:
			bar.Draw(filterText(c), c.Bytes, c.Total)
		case c == last || !pace.Due(time.Since(began)):
			continue
		case u.JSON:
			u.WriteProgress(c)
		default:
			u.Notef("filtering: %s", filterText(c))
		}
		last = c
	}
}

func filterText(c filter.Counts) string {
	return fmt.Sprintf("%d of %d shards, %s", c.Filtered+c.Unchanged+c.Failed, c.Shards, terminal.Plural(c.UnitsIn, "unit"))
}
