package main

import (
	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/resuming"
	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// addGrow defines --grow and the flags that belong to it. The dataset's flags have to be defined
// already.
func (d *datasetFlags) addGrow(c *cobra.Command) {
	g := &d.spec.Grow
	d.flags.BoolVar(&g.On, "grow", false, "serve a directory whose shards change; each epoch uses the shards that are present when it starts")
	d.flags.StringVar(&g.Run, "run", "", "`directory` that records which shards each epoch uses; nodes that train together share it (default: DATASET/.lsiofs/runs/default if it exists, otherwise next to the index)")
	d.flags.StringVar(&g.Window, "window", "", "`amount` of the newest data that an epoch uses, such as 500000units, 1000000records, 60shards, 100GiB (decoded), 72h, or all (default)")
	enumFlag(c, "newest", "find the newest shards by name (default; numbers in names are compared as numbers) or by mtime", &g.Newest, spec.NewestName, spec.NewestMTime)
	d.flags.StringVar(&g.MinNew, "min-new", "", "start the next epoch only after this `amount` of new data, such as 40000units, 100000records, 5shards (default 0)")
	d.flags.DurationVar(&g.Settle, "settle", 0, "how long a file must be unchanged before it is used, if lsiofs can't tell whether it is open for writing (default 30s, 70s on network file systems)")
	d.flags.DurationVar(&g.Poll, "poll", 0, "how often to list directories for which the kernel reports no changes (default 30s)")
	d.flags.BoolVar(&g.Hold, "hold", false, "keep a hard link to each shard of an epoch, so that it stays readable after it is deleted")
}

// addSnapshot defines --snapshot.
func (d *datasetFlags) addSnapshot() {
	d.flags.StringVar(&d.spec.Grow.Snapshot, "snapshot", "", "read only the shards of the snapshot in this `file`, RUN/snapshots/….gz; with --grow and --resume: continue the checkpoint's run without its run directory")
}

// grow derives the remaining settings of a growing dataset from its flags and from the checkpoint
// of --resume (nil without one).
func (d *datasetFlags) grow(g *spec.Grow, r *resuming.Checkpoint) error {
	if g.Window != "" || g.MinNew != "" {
		if err := checkWindow(g); err != nil {
			return err
		}
	}
	for flag, given := range map[string]bool{"settle": d.given("settle") && g.Settle <= 0, "poll": d.given("poll") && g.Poll <= 0} {
		if given {
			return exit.Usagef("--%s must be above 0", flag)
		}
	}
	if !g.On {
		return nil
	}
	g.Latest = r == nil && !d.given("epoch")
	full := r.BringsOrder()
	if full {
		if g.Of = r.State.Run; g.Of == "" {
			return exit.Errorf(exit.Checkpoint, "%s is a checkpoint of a dataset without --grow: leave --grow out, or resume from a short form such as {\"epoch\": 0}", r.Path)
		}
	}
	if g.Snapshot != "" && !full {
		return exit.Usagef("--snapshot with --grow needs --resume with a checkpoint of the run: name it, or leave --grow out to read only the snapshot's shards")
	}
	return nil
}

// checkWindow checks --window and --min-new, and that the one allows the other.
func checkWindow(g *spec.Grow) error {
	window, err := growing.ParseWindow(g.Window)
	if err != nil {
		return exit.Usagef("--window: %w", err)
	}
	minNew, err := growing.ParseAmount(g.MinNew)
	if err != nil {
		return exit.Usagef("--min-new: %w", err)
	}
	return exit.With(exit.Usage, minNew.Within(window))
}
