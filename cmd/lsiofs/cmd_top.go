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
		Short: "Show live what a mount's readers are waiting for, and their progress",
		Long: `Shows, once a second, what the readers of MNT are waiting for (in words, and by stage),
the progress and expected end of each stream, memory, and errors. On a terminal, it
redraws until you press q or Ctrl-C; elsewhere it prints one line per second. It reads
only MNT/status.json. Without MNT, it shows your mount, if you have exactly one.

Each stage's share is a share of the readers' time. The rest is time in which they were
not waiting; if that is most of it, the loader is not the bottleneck. The bars show the
last minute.

With --listen, it serves a web page with graphs of the last ten minutes, and /metrics
for Prometheus, where each value has the label mount. It watches the mounts that you
name, or all of your mounts, including later ones. If you give only a port, it listens
on 127.0.0.1, which only this machine can reach. There is no password: everyone who can
reach the address can see the names of datasets and files.`,
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
				return exit.Usagef("--once prints one frame and --listen serves a page: leave one of them out")
			}
			return top.Run(c.Context(), *o, g.ui)
		},
	}
	c.Flags().BoolVar(&o.Once, "once", false, "draw one frame after a second, and exit")
	c.Flags().StringVar(&o.Listen, "listen", "", "serve a web page and /metrics at this `ADDRESS:PORT`; port 0 picks a free port")
	return c
}
