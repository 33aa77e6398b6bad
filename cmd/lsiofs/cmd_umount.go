package main

import (
	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/mounting"
)

func newUmountCommand(g *globals) *cobra.Command {
	o := &mounting.UnmountOptions{}
	c := &cobra.Command{
		Use:   "umount MNT",
		Short: "Unmount; if the mount is busy, show which processes use it",
		Long: `Unmounts MNT, even if its server was killed, and returns when the server has closed the
dataset. If files are in use, it fails and names the processes that use them. With
--lazy, the mount disappears at once, and its server exits when the last of these
processes has closed its files.`,
		Example: `  lsiofs umount /mnt/train
  lsiofs umount --lazy /mnt/train`,
		Args: exactArgs("MNT"),
		RunE: func(c *cobra.Command, args []string) error {
			o.Point = args[0]
			return mounting.Unmount(c.Context(), *o, g.ui)
		},
	}
	c.Flags().BoolVar(&o.Lazy, "lazy", false, "detach now, and finish when no process uses the mount any more")
	return c
}
