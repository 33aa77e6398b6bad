package main

import (
	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/demo"
)

func newDemoCommand(g *globals) *cobra.Command {
	o := &demo.Options{}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Try lsiofs on a small dataset in a temporary directory",
		Long: `Creates a small dataset of tar shards, mounts it for two workers, reads part of each
worker's file, saves a checkpoint, unmounts, resumes from the checkpoint with three
workers, and checks that every record came exactly once and with the right contents.
For each step it shows the command that you would type. As root, nothing needs to be
installed; an ordinary user needs fusermount3 and access to /dev/fuse.`,
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
