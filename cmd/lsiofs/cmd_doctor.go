package main

import (
	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/doctor"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/pipeline"
)

func newDoctorCommand(g *globals) *cobra.Command {
	o := &doctor.Options{}
	c := &cobra.Command{
		Use:   "doctor [--report [DATASET|MNT]]",
		Short: "Check what of this machine works for lsiofs, and say what to do",
		Long: `Checks kernel, FUSE, io_uring, limits, the cache directory, storage profiles and
mounts that were left behind. ok: works. warn: works, with something lost. fail: mounting or indexing
will not work; the exit code says so too.

--report gathers what an issue report needs, as a text to paste: version, machine,
limits, checks; of a dataset (which is indexed first where it is not) its format,
counts and sizes; of a mount its status. It begins with what is private, and whether
that is in it: no names of shards, keys, users and hosts are, and no paths.`,
		Example: `  lsiofs doctor
  lsiofs doctor --report /data/train -o report.md
  lsiofs doctor --report /mnt/train
  lsiofs doctor --json | jq 'select(.level != "ok")'`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && !o.Report {
				return exit.Usagef("%s takes no arguments, with --report a DATASET or MNT (see %s --help)", c.CommandPath(), c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && pipeline.IsRemote(args[0]) {
				return exit.Usagef("doctor --report of a bucket or a web server is not supported yet: mount it, and report the mount")
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
	return c
}
