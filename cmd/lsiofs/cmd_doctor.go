package main

import (
	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/doctor"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func newDoctorCommand(g *globals) *cobra.Command {
	o := &doctor.Options{}
	var service spec.Remote
	c := &cobra.Command{
		Use:   "doctor [URL | --report [DATASET|MNT]]",
		Short: "Check what of this machine works for lsiofs, and say what to do",
		Long: `Checks kernel, FUSE, io_uring, limits, the cache directory, storage profiles and
mounts that were left behind. ok: works. warn: works, with something lost. fail: mounting or indexing
will not work; the exit code says so too.

With a URL it looks at the bucket or the web server of a dataset instead: addresses of
its host, where credentials come from and when they expire, region, latency (20 HEADs),
transfer (3 GETs of up to 8 MiB), clocks, whether parts of objects are served and
versions told apart; and at the disk cache: its directory and file system, what is free
there, and what is kept of this dataset. It makes some 30 requests, writes nothing at
the service, and shows no secret. With --cache-dir it looks at that directory, also
without a URL.

--report gathers what an issue report needs, as a text to paste: version, machine,
limits, checks; of a dataset (which is indexed first where it is not) its format,
counts and sizes; of a mount its status. It begins with what is private, and whether
that is in it: no names of shards, keys, users and hosts are, and no paths.`,
		Example: `  lsiofs doctor
  lsiofs doctor s3://bucket/train
  lsiofs doctor --cache-dir /nvme/lsiofs
  lsiofs doctor --report /data/train -o report.md
  lsiofs doctor --report /mnt/train
  lsiofs doctor --json | jq 'select(.level != "ok")'`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && !o.Report && !pipeline.IsRemote(args[0]) {
				return exit.Usagef("%s takes the URL of a bucket or of files at a web server, and with --report a DATASET or MNT (see %s --help)", c.CommandPath(), c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) > 0 && pipeline.IsRemote(args[0]) && o.Report:
				return exit.Usagef("doctor --report of a bucket or a web server is not supported yet: mount it, and report the mount")
			case len(args) > 0 && pipeline.IsRemote(args[0]):
				return doctor.RunService(c.Context(), args[0], o.CacheDir, probed(service), g.ui)
			}
			if len(args) > 0 {
				o.Subject = args[0]
			}
			return doctor.Run(c.Context(), *o, versionOf(), g.ui, g.log())
		},
	}
	c.Flags().BoolVar(&o.Report, "report", false, "write a report for an issue, without what is private; exit code 0 whatever it says")
	c.Flags().StringVarP(&o.Output, "output", "o", "-", "write the report to this `file`, whole or not at all (- for stdout)")
	c.Flags().StringVar(&o.IndexDir, "index-dir", "", "the `directory` of indexes to check (default: the user's cache directory)")
	addCacheDir(c.Flags(), &o.CacheDir)
	addService(c.Flags(), &service)
	return c
}
