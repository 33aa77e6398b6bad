package main

import (
	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/snapshots"
)

func newSnapshotsCommand(g *globals) *cobra.Command {
	unused, keep := "", uint64(2)
	c := &cobra.Command{
		Use:   "snapshots RUN",
		Short: "List the epochs of a run over a growing dataset, or shards that none needs any more",
		Long: `Lists which epochs of a run are taken, and how many shards and records each has. RUN is
the run directory. An epoch whose snapshot is "gone" can't be read any more: the newest
64 snapshots are kept.

--unused lists instead, a path a line, the files of DATASET that an earlier snapshot has,
and none of the newest epochs (--keep). They may be deleted. Files that are in no
snapshot at all are never listed, nor files that were changed since an epoch was taken
that has their names: they may be new.`,
		Example: `  lsiofs snapshots /data/games/.lsiofs/runs/default
  lsiofs snapshots /shared/run --json | jq .new_units
  lsiofs snapshots /shared/run --unused /data/games --keep 3 | xargs -d '\n' rm --`,
		Args: exactArgs("RUN"),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case unused == "" && c.Flags().Changed("keep"):
				return exit.Usagef("--keep belongs to --unused: name the run's dataset with --unused, or leave --keep out")
			case keep == 0:
				return exit.Usagef("--keep (0) must be at least 1: the shards of the latest epoch may still be read")
			}
			d, err := snapshots.Open(args[0])
			switch {
			case err == nil && unused != "":
				err = snapshots.Unused(d, unused, keep, g.ui)
			case err == nil:
				err = snapshots.List(d, g.ui)
			}
			return exit.With(exit.Dataset, err)
		},
	}
	c.Flags().StringVar(&unused, "unused", "", "list the shards of this `dataset` that are not needed any more")
	c.Flags().Uint64Var(&keep, "keep", keep, "with --unused: how many of the newest epochs are still to be read")
	return c
}
