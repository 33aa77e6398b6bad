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
	d.flags.BoolVar(&g.On, "grow", false, "shards arrive in DATASET and leave it: each epoch is of those that are there when it begins")
	d.flags.StringVar(&g.Run, "run", "", "the `directory` that records which shards an epoch is of; nodes that train together share it (default: DATASET/.lsiofs/runs/default where it exists, else beside the index)")
	d.flags.StringVar(&g.Window, "window", "", "how much of the newest shards an epoch is of: an `amount` as 500000units, 1000000records, 60shards, 100GiB (decoded), 72h, or all (the default)")
	enumFlag(c, "newest", "what newest goes by: name (numbers in names count as numbers; the default) or mtime", &g.Newest, spec.NewestName, spec.NewestMTime)
	d.flags.StringVar(&g.MinNew, "min-new", "", "an epoch is not there before so much is new: an `amount` as 40000units, 100000records, 5shards (default 0)")
	d.flags.DurationVar(&g.Settle, "settle", 0, "how long a file must stay as it is, where it can't be told whether it is open for writing (default 30s, 70s on network file systems)")
	d.flags.DurationVar(&g.Poll, "poll", 0, "how often directories are looked at where the kernel reports no changes (default 30s)")
	d.flags.BoolVar(&g.Hold, "hold", false, "keep a hard link to each shard of an epoch, so that it can be read after it was deleted")
}

// addSnapshot defines --snapshot.
func (d *datasetFlags) addSnapshot() {
	d.flags.StringVar(&d.spec.Grow.Snapshot, "snapshot", "", "read just the shards of this snapshot's `file`, RUN/snapshots/….gz; with --grow and --resume: go on with the checkpoint's run where its directory is not")
}

// grow derives the remaining settings of a growing dataset from its flags and from the checkpoint
// of --resume (nil without one).
func (d *datasetFlags) grow(g *spec.Grow, r *resuming.Checkpoint) error {
	window, err := growing.ParseWindow(g.Window)
	if err != nil {
		return exit.Usagef("--window: %w", err)
	}
	minNew, err := growing.ParseAmount(g.MinNew)
	if err != nil {
		return exit.Usagef("--min-new: %w", err)
	}
	if err := minNew.Within(window); err != nil {
		return exit.With(exit.Usage, err)
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
			return exit.Errorf(exit.Checkpoint, "%s is the checkpoint of a dataset without --grow: leave --grow out, or resume from a short form such as {\"epoch\": 0}", r.Path)
		}
	}
	if g.Snapshot != "" && !full {
		return exit.Usagef("--snapshot with --grow needs --resume, the checkpoint of the run to go on with: name it, or leave --grow out to read just the snapshot's shards")
	}
	return nil
}
