package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/resuming"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// streamFlags are the flags of a dataset and those that select one worker's stream and its start.
type streamFlags struct {
	datasetFlags
	share shareValue
	from  uint64
}

func (o *streamFlags) add(c *cobra.Command) {
	o.datasetFlags.add(c)
	o.addResume()
	f := c.Flags()
	f.Var(&o.share, "worker", "worker whose stream to use: w/W, or w with --workers W")
	f.Uint64Var(&o.from, "from", 0, "skip this many records at the start of the epoch")
}

// resolveStream is resolve plus the flags of the stream.
func (o *streamFlags) resolveStream(dataset string) (s spec.Spec, r *resuming.Checkpoint, err error) {
	if o.share.both {
		if o.given("workers") && o.spec.Deal.Workers != o.share.workers {
			return s, nil, exit.Usagef("--worker %s and --workers %d differ: leave one of them out", &o.share, o.spec.Deal.Workers)
		}
		// Treat it as if --workers had been given, so that a checkpoint's value does not apply.
		if err := o.flags.Set("workers", fmt.Sprint(o.share.workers)); err != nil {
			return s, nil, exit.Usagef("--worker: %w", err)
		}
	}
	if o.resume != "" && o.given("from") {
		return s, nil, exit.Usagef("--from and --resume both set where to begin: leave one of them out")
	}
	if s, r, err = o.resolve(dataset); err != nil {
		return s, r, err
	}
	if o.share.worker >= s.Deal.Workers {
		return s, r, exit.Usagef("--worker (%d) must be below the number of workers (%d): workers count from 0", o.share.worker, s.Deal.Workers)
	}
	return s, r, nil
}

// position returns where the stream begins.
func (o *streamFlags) position(d *pipeline.Dataset, resume *resuming.Checkpoint) (checkpoint.Position, error) {
	if resume != nil {
		return resume.Position(d)
	}
	s := d.Spec()
	if o.from > d.Records() {
		return checkpoint.Position{}, exit.Usagef("--from (%d) must be at most the number of records (%d)", o.from, d.Records())
	}
	return checkpoint.Position{Epoch: s.Epoch, Done: resuming.Prefix(s.Order, o.from)}, nil
}
