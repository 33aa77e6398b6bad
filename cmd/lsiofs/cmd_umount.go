package main

import (
	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/mounting"
)

func newUmountCommand(g *globals) *cobra.Command {
	o := &mounting.UnmountOptions{}
	c := &cobra.Command{
		Use:   "umount MNT",
		Short: "Unmount; where the mount is busy, say what holds it",
		Long: `Unmounts MNT, also one whose server was killed, and returns when the server has let
go of the dataset. When files are in use it fails and names the processes; with --lazy
the tree disappears at once and its server ends when the last of them has closed its
files.`,
		Example: `  lsiofs umount /mnt/train
  lsiofs umount --lazy /mnt/train`,
		Args: exactArgs("MNT"),
		RunE: func(c *cobra.Command, args []string) error {
			o.Point = args[0]
			return mounting.Unmount(c.Context(), *o, g.ui)
		},
	}
	c.Flags().BoolVar(&o.Lazy, "lazy", false, "detach now, finish when nothing uses it any more")
	return c
}
