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
		Short: "List the epochs of a run over a growing dataset, or the shards that no epoch needs any more",
		Long: `Lists the epochs of a run that have started, with their numbers of shards and records.
RUN is the run directory. An epoch whose snapshot is "gone" can't be read any more: only
the newest 64 snapshots are kept.

--unused instead lists the files of DATASET, one path per line, that belong to an older
snapshot but to none of the newest epochs (--keep). You may delete them. Files that
belong to no snapshot are never listed. Neither are files that have changed since the
epoch that uses their names started, because they may be new.`,
		Example: `  lsiofs snapshots /data/games/.lsiofs/runs/default
  lsiofs snapshots /shared/run --json | jq .new_units
  lsiofs snapshots /shared/run --unused /data/games --keep 3 | xargs -d '\n' rm --`,
		Args: exactArgs("RUN"),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case unused == "" && c.Flags().Changed("keep"):
				return exit.Usagef("--keep needs --unused: name the run's dataset with --unused, or leave --keep out")
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
	c.Flags().StringVar(&unused, "unused", "", "list the shards of this `dataset` that no epoch needs any more")
	c.Flags().Uint64Var(&keep, "keep", keep, "with --unused: number of newest epochs whose shards are still needed")
	return c
}
