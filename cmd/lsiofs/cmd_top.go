package main

import (
	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/top"
)

func newTopCommand(g *globals) *cobra.Command {
	o := &top.Options{}
	c := &cobra.Command{
		Use:   "top [MNT...]",
		Short: "Show live what a mount's readers wait for, and how far they are",
		Long: `Shows, once a second, what the readers of MNT wait for (in words, and by stage),
how far each stream is and when it ends, memory, and what went wrong. On a
terminal it is redrawn until q or Ctrl-C; elsewhere it is a line a second. It reads
MNT/status.json and nothing else. Without MNT it shows the only mount that you
made.

A stage's share is of the readers' time: what is left is theirs, and then the
loader is not the bottleneck. Its bar is the last minute's.

With --listen it serves a page for browsers, with curves of the last ten minutes,
and /metrics for Prometheus, where each value has the label mount. It watches the
mounts that are named, or all that you made, also those that are made later. A
port alone is one of 127.0.0.1, which only this machine reaches. There is no
password: whoever can reach the address can see the names of datasets and files.`,
		Example: `  lsiofs top /mnt/train
  lsiofs top /mnt/train --once
  lsiofs top /mnt/train --json | head -60 > minute.jsonl
  lsiofs top --listen 127.0.0.1:9464`,
		// Words that people try first.
		SuggestFor: []string{"status", "stat", "watch"},
		Args:       cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			o.Points = args
			if o.Once && o.Listen != "" {
				return exit.Usagef("--once prints one frame, and --listen serves a page: leave one of them out")
			}
			return top.Run(c.Context(), *o, g.ui)
		},
	}
	c.Flags().BoolVar(&o.Once, "once", false, "draw one frame, a second from now, and end")
	c.Flags().StringVar(&o.Listen, "listen", "", "serve a page and /metrics at this `ADDRESS:PORT`; port 0 takes a free one")
	return c
}
