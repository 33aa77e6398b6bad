package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/pipeline/storage/tune"
)

type tuneOptions struct {
	path    string
	seconds float64
	dryRun  bool
	show    bool
	// measured is what is measured where; tests make it small.
	measured func(path string) tune.Config
}

func newTuneCommand(g *globals) *cobra.Command {
	o := &tuneOptions{measured: tune.Default}
	c := &cobra.Command{
		Use:   "tune PATH",
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

Run it when nothing else uses the storage.`,
		Example: `  lsiofs tune /data/train
  lsiofs tune /data/train --show
  lsiofs tune /data/train --dry-run --json | jq .measured`,
		Args: exactArgs("PATH"),
		RunE: func(c *cobra.Command, args []string) error {
			o.path = args[0]
			return runTune(c.Context(), o, g)
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.Float64Var(&o.seconds, "seconds", 60, "about how long to measure; the writing of a temporary file comes on top")
	f.BoolVar(&o.dryRun, "dry-run", false, "store nothing")
	f.BoolVar(&o.show, "show", false, "measure nothing: show the profile that a mount of PATH would use, and where it comes from")
	return c
}

func runTune(ctx context.Context, o *tuneOptions, g *globals) error {
	if !(o.seconds >= 0.1 && o.seconds <= 86400) {
		return exit.Usagef("--seconds (%v) must be between 0.1 and 86400", o.seconds)
	}
	if o.show && o.dryRun {
		return exit.Usagef("--show and --dry-run: choose one, as --show measures nothing")
	}
	root, err := catalog.Root(o.path)
	if err != nil {
		return exit.With(exit.Dataset, err)
	}
	if o.show {
		return showProfile(root, g.ui)
	}
	v := newTuneView(g.ui)
	c := o.measured(root)
	c.Duration = time.Duration(o.seconds * float64(time.Second))
	c.Progress = v.show
	r, err := tune.Run(ctx, c)
	v.clear()
	if err != nil {
		return exit.With(exit.Dataset, err)
	}
	report := tuneReport{Result: r}
	if !o.dryRun {
		report.File, err = saveProfile(r)
	}
	return errors.Join(report.write(g.ui), err)
}

func saveProfile(r tune.Result) (string, error) {
	dir, err := profile.Dir()
	if err != nil {
		return "", err
	}
	return profile.Save(dir, profile.Stored{Place: r.Place, Profile: r.Profile, Cells: r.Cells})
}
