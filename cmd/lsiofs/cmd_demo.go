package main

import (
	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/demo"
)

func newDemoCommand(g *globals) *cobra.Command {
	o := &demo.Options{}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Show it all on a small dataset in a temporary directory",
		Long: `Makes a small dataset of tar shards, mounts it for two workers, reads some of each
worker's file, saves a checkpoint, unmounts, goes on from the checkpoint with three
workers, and checks that every record came exactly once, with its right contents.
Each step is shown with the command that a person would type. As root it needs
nothing installed; as a user it needs fusermount3 and a /dev/fuse open to users.`,
		Example: `  lsiofs demo
  lsiofs demo --keep   # leaves the directory, to go on trying`,
		Args: exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			g.takeForce() // a second Ctrl-C must not leave a mount behind
			return demo.Run(c.Context(), *o, g.ui)
		},
	}
	c.Flags().BoolVar(&o.Keep, "keep", false, "leave the dataset and the checkpoint in place")
	return c
}
