package main

import (
	"context"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/filtering"
	"github.com/lsiofs/lsiofs/pipeline/filter"
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
	return filtering.Run(ctx, o, g.ui)
}
