package main

import (
	"context"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/filtering"
	"github.com/lsiofs/lsiofs/pipeline/filter"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func newFilterCommand(g *globals) *cobra.Command {
	o := filter.Default()
	o.Processes = runtime.GOMAXPROCS(0)
	c := &cobra.Command{
		Use:   "filter SRC DST [flags] -- CMD [ARG…]",
		Short: "Run a program over the shards of a dataset, and keep what it makes of them",
		Long: `Makes of each shard below the directory SRC one below DST, under the same path, in
the same format and compression: what the program CMD makes of it. Shards whose result
is there are passed over, so that the command can be run again and again, or with
--watch go on. A result gets its name when it is whole: DST can be mounted meanwhile.

--by pipe runs CMD for each shard, with the file on stdin and the result on stdout.
--by dirs runs CMD for up to 1000 units (games, samples, lines), which are files in the
directory {in}; results have the same names in the directory {out}, and one that is not
there is left out. --by process starts a few that run for long, and gives each one unit
after the other.

lsiofs help filter has the protocol, what counts as another filter, and the rescorer of
Leela Chess Zero.`,
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
				return exit.Usagef("there is no command after --: lsiofs filter SRC DST -- CMD (see lsiofs filter --help)")
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
	enumFlag(c, "by", "how CMD is given shards", &o.By, filter.ByPipe, filter.ByDirs, filter.ByProcess)
	enumFlag(c, "each", "what CMD is given at a time (default unit, with --by pipe shard)", &o.Each, filter.EachShard, filter.EachUnit)
	f.StringVar(&o.Name, "name", "", "what else tells this filter from another one, such as a version: with another name all shards are filtered again")
	f.IntVar(&o.Processes, "processes", o.Processes, "how many of CMD run at a time")
	f.BoolVar(&o.Watch, "watch", false, "go on, and filter what arrives in SRC")
	f.BoolVar(&o.Mirror, "mirror", false, "delete results whose sources are gone")
	enumFlag(c, "on-failed", "end where CMD fails on something, or leave that out", &o.OnFailed, filter.FailedFail, filter.FailedSkip)
	f.DurationVar(&o.Timeout, "timeout", o.Timeout, "kill CMD when it takes longer for a shard or a batch, or for an answer")
	sizeFlag(f, "unit-bytes", "the largest unit, decoded, and the largest result of one", &o.UnitBytes)
	f.DurationVar(&o.Poll, "poll", o.Poll, "with --watch: how often directories are looked at that the kernel reports no changes of, and results deleted")
	f.DurationVar(&o.Settle, "settle", 0, "how long a file has to stay as it is where it can't be told whether somebody writes it (0: 30s, on network file systems 70s)")
	enumFlag(c, "format", "how shards are cut into units", &o.Format.Name, append([]string{"auto"}, spec.Formats...)...)
	addExclude(f, &o.Exclude)
	sizeFlag(f, "record-bytes", "format fixed: bytes of a record", &o.Format.RecordBytes)
	return c
}

func runFilter(ctx context.Context, o filter.Config, g *globals) error {
	if err := o.Validate(); err != nil {
		return exit.With(exit.Usage, err)
	}
	return filtering.Run(ctx, o, g.ui)
}
