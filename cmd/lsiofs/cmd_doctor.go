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
		Short: "Check whether this machine meets lsiofs's requirements, and how to fix it",
		Long: `Checks kernel, FUSE, io_uring, limits, the cache directory, storage profiles, and stale
mounts. ok: works. warn: works, but not fully. fail: mounting or indexing will not work,
and the exit code is not 0.

With a URL, it checks the bucket or the web server of a dataset instead: the addresses of
the host, where credentials come from and when they expire, region, latency (20 HEADs),
transfer (3 GETs of up to 8 MiB), clocks, and whether the service serves parts of objects
and tells versions apart. It also checks the disk cache: its directory and file system,
the free space, and how much of this dataset is cached. This takes about 30 requests,
writes nothing to the service, and shows no secrets. With --cache-dir, it checks that
directory, even without a URL.

--report collects what an issue report needs, as text to paste: version, machine, limits
and checks; for a dataset, which is indexed if necessary, its format, counts and sizes;
for a mount, its status. The report starts with a list of private things and whether it
contains them: it has no names of shards, keys, users or hosts, and no paths.`,
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
				return exit.Usagef("doctor --report does not support buckets and web servers yet: mount it, and report on the mount")
			case len(args) > 0 && pipeline.IsRemote(args[0]):
				return doctor.RunService(c.Context(), args[0], o.CacheDir, probed(service), g.ui)
			}
			if len(args) > 0 {
				o.Subject = args[0]
			}
			return doctor.Run(c.Context(), *o, versionOf(), g.ui, g.log())
		},
	}
	c.Flags().BoolVar(&o.Report, "report", false, "write a report for an issue, without private data; exits with code 0 even if checks fail")
	c.Flags().StringVarP(&o.Output, "output", "o", "-", "write the report to this `file`, atomically (- for stdout)")
	c.Flags().StringVar(&o.IndexDir, "index-dir", "", "`directory` for indexes to check (default: the user's cache directory)")
	addCacheDir(c.Flags(), &o.CacheDir)
	addService(c.Flags(), &service)
	return c
}
