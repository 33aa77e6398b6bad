package main

import (
	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/tune"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func newTuneCommand(g *globals) *cobra.Command {
	o := &tune.Options{}
	var service spec.Remote
	c := &cobra.Command{
		Use:   "tune PATH|URL",
		Short: "Measure which reads a storage likes, for mounts to use",
		Long: `Measures the file system that PATH (a directory, a file or a dataset) lies on: random
reads past the page cache, from 4 KiB to 4 MiB, 1 to 128 at a time. The files of PATH
are read where there are 256 MiB of them, in files of 4 MiB and more, else a temporary
file of 1 GiB, which has no name and so is gone when this ends, however it does.

What follows (how many reads to have in flight, how large, and how many bytes that
nobody wants to read through rather than ask twice) is stored in the user's cache
directory, for this file system. Mounts, cat and plan of datasets that lie there then
use it by themselves. Without it they use defaults for the kind of storage. What is
read does not depend on it, only how fast.

Of a bucket or a web server (a URL), ranges of 256 KiB to 16 MiB of the dataset's own
objects are read, 16 to 256 at a time, straight from the service and at random. What
follows is stored for the bucket, or for the endpoint or host where it is not Amazon's.
No more than 2 GiB are transferred: combinations that need more are left out, unless
--yes permits them. Requests and transfer out of a region are charged for.

Run it when nothing else uses the storage.`,
		Example: `  lsiofs tune /data/train
  lsiofs tune s3://bucket/train
  lsiofs tune /data/train --show
  lsiofs tune /data/train --dry-run --json | jq .measured`,
		Args: exactArgs("PATH|URL"),
		RunE: func(c *cobra.Command, args []string) error {
			o.Path, o.Service = args[0], probed(service)
			return tune.Run(c.Context(), *o, g.ui)
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.Float64Var(&o.Seconds, "seconds", 60, "about how long to measure; the writing of a temporary file comes on top")
	f.BoolVar(&o.DryRun, "dry-run", false, "store nothing")
	f.BoolVar(&o.Show, "show", false, "measure nothing: show the profile that a mount of PATH would use, and where it comes from")
	f.BoolVar(&o.Yes, "yes", false, "of a URL: transfer more than 2 GiB, as much as comes in the time")
	addService(f, &service)
	return c
}
