package main

import (
	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/top"
)

func newTopCommand(g *globals) *cobra.Command {
	o := &top.Options{}
	c := &cobra.Command{
		Use:   "top MNT",
		Short: "Show live what a mount's readers wait for, and how far they are",
		Long: `Shows, once a second, what the readers of MNT wait for (in words, and by stage),
how far each stream is and when it ends, memory, and what went wrong. On a
terminal it is redrawn until q or Ctrl-C; elsewhere it is a line a second. It reads
MNT/status.json and nothing else.

A stage's share is of the readers' time: what is left is theirs, and then the
loader is not the bottleneck. Its bar is the last minute's.`,
		Example: `  lsiofs top /mnt/train
  lsiofs top /mnt/train --once
  lsiofs top /mnt/train --json | head -60 > minute.jsonl`,
		// What people try first.
		SuggestFor: []string{"status", "stat", "watch"},
		Args:       exactArgs("MNT"),
		RunE: func(c *cobra.Command, args []string) error {
			o.Point = args[0]
			return top.Run(c.Context(), *o, g.ui)
		},
	}
	c.Flags().BoolVar(&o.Once, "once", false, "draw one frame, a second from now, and end")
	return c
}
