package main

import (
	"fmt"
	"runtime/debug"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/build"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/demo"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/doctor"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/top"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/tune"
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

func newDemoCommand(g *globals) *cobra.Command {
	o := &demo.Options{}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Try lsiofs on a small dataset in a temporary directory",
		Long: `Creates a small dataset of tar shards, mounts it for two workers, reads part of each
worker's file, saves a checkpoint, unmounts, resumes from the checkpoint with three
workers, and checks that every record came exactly once and with the right contents.
For each step it shows the command that you would type. As root, nothing needs to be
installed; an ordinary user needs fusermount3 and access to /dev/fuse.`,
		Example: `  lsiofs demo
  lsiofs demo --keep   # leaves the directory, to go on trying`,
		Args: exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			g.takeForce() // a second Ctrl-C must not leave a mount behind
			return demo.Run(c.Context(), *o, g.ui)
		},
	}
	c.Flags().BoolVar(&o.Keep, "keep", false, "leave the dataset and the checkpoint in place")
	return c
}

// version and commit may be set when linking, as .ci/release does, because what Go itself writes
// into a program depends on how the tree was checked out.
var version, commit = "", ""

// versionOf returns the version information of this program.
func versionOf() build.Info { return build.Of(version, commit) }

func newVersionCommand(g *globals) *cobra.Command {
	deps := false
	c := &cobra.Command{
		Use:   "version",
		Short: "Print version, commit, Go version and platform, and the linked modules",
		Example: `  lsiofs version
  lsiofs version --deps
  lsiofs version --deps --json | jq .dependencies`,
		Args: exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			b := versionOf()
			if info, ok := debug.ReadBuildInfo(); ok && deps {
				b.Dependencies = build.Dependencies(info)
			}
			return printVersion(b, g.ui)
		},
	}
	c.Flags().BoolVar(&deps, "deps", false, "list the linked modules with their versions and licences")
	return c
}

func printVersion(b build.Info, u *terminal.UI) error {
	if u.JSON {
		return u.Emit(b)
	}
	modified := ""
	if b.Modified {
		modified = " (modified)"
	}
	err := u.Printf("lsiofs %s\ncommit   %s%s\ngo       %s\nplatform %s\n", b.Version, b.Commit, modified, b.Go, b.Platform)
	if err != nil || len(b.Dependencies) == 0 {
		return err
	}
	w := tabwriter.NewWriter(u.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nmodule\tversion\tlicence")
	for _, d := range b.Dependencies {
		fmt.Fprintf(w, "%s\t%s\t%s\n", d.Module, d.Version, d.Licence)
	}
	return w.Flush()
}
