package spec

import (
	"strings"
	"time"
)

// Newest is the criterion by which shards are newer than others.
type Newest string

const (
	NewestName  Newest = "name" // by the numbers in its name
	NewestMTime Newest = "mtime"
)

// Grow is how a dataset whose shards change is read: each epoch has a snapshot, the set of shards
// that were the newest when the epoch started.
//
// The zero value is a dataset that does not grow.
type Grow struct {
	// On is --grow. Without it, only Snapshot has an effect.
	On bool
	// Run is the run directory, which records the snapshot of each epoch for all nodes. If empty,
	// it is DATASET/.lsiofs/runs/default if that exists, else a directory next to the stored index,
	// which is sufficient for one node.
	Run string
	// Window is the size of an epoch, in the syntax of growing.ParseWindow; "" means all shards.
	Window string
	Newest Newest // "" is the run's setting; NewestName in a new run
	// MinNew is how much new data the next epoch waits for, in the syntax of growing.ParseAmount;
	// "" is nothing.
	MinNew string
	// Settle is how long a file must stay unchanged if it is unknown whether a process is writing
	// it. Poll is how often directories are listed whose changes the kernel does not report. 0 is
	// the default of package watch.
	Settle, Poll time.Duration
	// Hold keeps a hard link to each shard of a snapshot, so that it can be read after it was
	// deleted.
	Hold bool
	// Snapshot is the file of a snapshot. With On, it is the snapshot of the epoch in which a
	// checkpoint was made, to continue without its run directory; otherwise, the shards to read.
	Snapshot string
	// Latest starts in the latest epoch of the run, if it has one, instead of Spec.Epoch.
	Latest bool
	// Of, if not "", is the run of a checkpoint: the run directory must belong to that run and have
	// Spec.Epoch.
	Of string
}

// validateGrow reports settings that growing can't be combined with.
func (s Spec) validateGrow(p *problems) {
	g := s.Grow
	g.validate(p)
	flag, why := "--grow", "a dataset that shards arrive in"
	if !g.On {
		if g.Snapshot == "" {
			return
		}
		flag, why = "--snapshot", "the shards of a snapshot"
	}
	text := strings.ToLower(s.Dataset)
	switch {
	case s.Mix.Asked():
		p.addf("%s can't be combined with --mix: %s is for one dataset: name it instead of --mix", flag, why)
	case strings.HasPrefix(text, "s3://") || strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://"):
		p.addf("%s is for a dataset in a file system: %s at a bucket or web server can't be followed: copy the shards to a directory as they arrive", flag, why)
	}
	if len(s.Format.Arrays) > 0 {
		p.addf("%s can't be combined with --array: write the arrays to each file as one structured array", flag)
	}
	if s.Format.Name == "zarr" {
		p.addf("%s can't be combined with --format zarr: mount an array again after it has grown", flag)
	}
	if s.Format.Name == "files" {
		p.addf("%s can't be combined with --format files: pack the files as tar shards", flag)
	}
}

func (g Grow) validate(p *problems) {
	if g.Newest != "" {
		oneOf(p, "--newest", g.Newest, NewestName, NewestMTime)
	}
	if g.Settle < 0 {
		p.addf("--settle (%v) must be above 0", g.Settle)
	}
	if g.Poll < 0 {
		p.addf("--poll (%v) must be above 0", g.Poll)
	}
	if g.On {
		return
	}
	for _, f := range []struct {
		flag  string
		given bool
	}{
		{"--run", g.Run != ""}, {"--window", g.Window != ""}, {"--newest", g.Newest != ""}, {"--min-new", g.MinNew != ""},
		{"--settle", g.Settle != 0}, {"--poll", g.Poll != 0}, {"--hold", g.Hold},
	} {
		if f.given {
			p.addf("%s needs --grow, which serves a dataset whose shards change: add --grow, or leave %s out", f.flag, f.flag)
		}
	}
}
