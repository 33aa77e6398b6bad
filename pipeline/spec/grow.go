package spec

import (
	"strings"
	"time"
)

// Newest says what makes a shard newer than another.
type Newest string

const (
	NewestName  Newest = "name" // the numbers in its name
	NewestMTime Newest = "mtime"
)

// Grow says how a dataset is read that shards arrive in and leave: each epoch is of a
// snapshot, which is the set of shards that were the newest when the epoch was taken.
//
// The zero value is a dataset that does not grow.
type Grow struct {
	// On is --grow. Without it, only Snapshot has a meaning.
	On bool
	// Run is the run directory, which says for all nodes which epoch is of which snapshot.
	// If empty, it is DATASET/.lsiofs/runs/default where that exists, else a directory
	// beside the stored index, which is right for one node.
	Run string
	// Window is how much an epoch is of, as growing.ParseWindow reads it; "" is all.
	Window string
	Newest Newest // "" is what the run goes by; in a new one NewestName
	// MinNew is how much has to be new before the next epoch is there, as
	// growing.ParseAmount reads it; "" is nothing.
	MinNew string
	// Settle is how long a file has to stay as it is, where it can't be told whether
	// somebody writes it; Poll is how often directories are looked at whose changes the
	// kernel does not report. 0 is the default of package looking.
	Settle, Poll time.Duration
	// Hold keeps a hard link to each shard of a snapshot, so that it can be read after it
	// was deleted.
	Hold bool
	// Snapshot is a snapshot's file: with On, that of the epoch which a checkpoint was
	// made in, to go on where its run directory is not; without, the shards to read.
	Snapshot string
	// Latest begins in the latest epoch of the run, where it has one, in the place of
	// Spec.Epoch.
	Latest bool
	// Of, if not "", is the run that a checkpoint is of: the run directory has to be of it,
	// and to have Spec.Epoch.
	Of string
}

// validateGrow looks at what growing does not go together with.
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
		p.addf("%s can't be combined with --mix: %s is one dataset: name it in the place of --mix", flag, why)
	case strings.HasPrefix(text, "s3://") || strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://"):
		p.addf("%s is for a dataset in a file system: %s at a bucket or web server can't be followed: copy the shards to a directory as they come", flag, why)
	}
	if len(s.Format.Arrays) > 0 {
		p.addf("%s can't be combined with --array: write the arrays as one structured array a file", flag)
	}
	if s.Format.Name == "zarr" {
		p.addf("%s can't be combined with --format zarr: an array that grows is mounted again", flag)
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
			p.addf("%s belongs to --grow, for a dataset that shards arrive in: add --grow, or leave %s out", f.flag, f.flag)
		}
	}
}
