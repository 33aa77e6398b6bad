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
		Short: "Measure which reads are fastest on a storage, for mounts to use",
		Long: `Measures the file system of PATH (a directory, a file or a dataset): random reads that
bypass the page cache, from 4 KiB to 4 MiB, 1 to 128 at a time. It reads the files of
PATH if those of 4 MiB and more add up to 256 MiB, otherwise a temporary file of 1 GiB,
which has no name and therefore disappears when the command ends, even if it is killed.

The resulting profile (how many reads to keep in flight, how large they should be, and
up to which gap it is faster to read on than to issue another read) is stored in the
user's cache directory for this file system. Mounts, cat and plan use it for datasets on
that file system. Without a profile, they use defaults for the kind of storage. The
profile changes only the speed, never the data.

For a bucket or a web server (a URL), it reads random ranges of 256 KiB to 16 MiB of the
dataset's own objects, 16 to 256 at a time, directly from the service. The profile is
stored for the bucket, or, if the service is not Amazon's, for the endpoint or host. At
most 2 GiB are transferred: combinations that need more are left out, unless you allow
them with --yes. Providers charge for requests and for transfer out of a region.

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
	f.Float64Var(&o.Seconds, "seconds", 60, "approximate time to measure, not counting the time to write a temporary file")
	f.BoolVar(&o.DryRun, "dry-run", false, "don't store the result")
	f.BoolVar(&o.Show, "show", false, "don't measure, but show the profile that a mount of PATH would use, and where it comes from")
	f.BoolVar(&o.Yes, "yes", false, "for a URL: allow transfers of more than 2 GiB, as much as arrives in the time")
	addService(f, &service)
	return c
}
