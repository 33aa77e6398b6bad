package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/resuming"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/order"
)

type mergeOptions struct {
	files  []string
	output string
}

func newCheckpointMergeCommand(g *globals) *cobra.Command {
	o := &mergeOptions{}
	c := &cobra.Command{
		Use:   "merge FILE…",
		Short: "Merge the checkpoints of several machines into one",
		Long: `In a cluster, each mount knows only the positions of its own workers. merge combines
checkpoints that have the same dataset, order, epoch and entries except for the last
one. For each worker in the last entry it takes the greatest number. One FILE may be -,
which is standard input.`,
		Example: `  lsiofs checkpoint merge node-*.json -o ckpt.json`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Usagef("%s takes at least one FILE, but there are none (see %s --help)", c.CommandPath(), c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			o.files = args
			return runCheckpointMerge(o, g.ui)
		},
	}
	c.Flags().StringVarP(&o.output, "output", "o", "", "write the document to this `file`, atomically (default: stdout)")
	return c
}

func runCheckpointMerge(o *mergeOptions, u *terminal.UI) error {
	var states []checkpoint.State
	for _, path := range o.files {
		doc, err := resuming.ReadDocument(path)
		if err != nil {
			return err
		}
		s, err := checkpoint.Parse(doc)
		if err != nil {
			return exit.Errorf(exit.Checkpoint, "%s: %w", path, err)
		}
		states = append(states, s)
	}
	merged, err := checkpoint.Merge(states)
	if e, is := errors.AsType[*checkpoint.MergeError](err); is && e.Number > 1 {
		return exit.Errorf(exit.Checkpoint, "%s can't be merged with %s, the first file: %w", o.files[e.Number-1], o.files[0], e.Err)
	}
	if err != nil {
		return exit.With(exit.Checkpoint, err)
	}
	doc := merged.Marshal(widest(merged.Done))
	if o.output == "" || o.output == resuming.Stdin { // as in all commands, - is also standard output
		_, err := u.Out.Write(doc)
		return err
	}
	if err := checkpoint.WriteFile(o.output, doc); err != nil {
		return exit.With(exit.Failure, err)
	}
	return saved(o.output, merged, u)
}

// widest returns the largest count in the entries. Marshal takes it as the width of numbers when
// the number of records is not known.
func widest(done []order.Done) (n uint64) {
	for _, d := range done {
		for _, c := range d.Consumed {
			n = max(n, c)
		}
	}
	return n
}
