package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/inspect"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/fs"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func newCheckpointCommand(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:   "checkpoint",
		Short: "Show, save, restore and merge checkpoints",
		Long: `A checkpoint is a small JSON document with the dataset, the order, the epoch, and how
far the epoch has been read. MNT/checkpoint is the mount's own checkpoint: read the file
to save, write it to restore. These commands do the same, with clear error messages.`,
		Example: `  lsiofs checkpoint save /mnt/train ckpt.json
  lsiofs checkpoint show ckpt.json
  lsiofs checkpoint restore ckpt.json /mnt/train`,
		Args: cobra.ArbitraryArgs,
		RunE: runParent,
	}
	c.AddCommand(newCheckpointShowCommand(g), newCheckpointSaveCommand(g), newCheckpointRestoreCommand(g), newCheckpointMergeCommand(g))
	return c
}

func newCheckpointShowCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "show FILE|MNT",
		Short: "Show a checkpoint, or the checkpoint of a mount",
		Long:  `Shows a checkpoint in readable form. FILE - is standard input.`,
		Example: `  lsiofs checkpoint show ckpt.json
  lsiofs checkpoint show /mnt/train --json`,
		Args: exactArgs("FILE|MNT"),
		RunE: func(c *cobra.Command, args []string) error { return runCheckpointShow(c.Context(), args[0], g.ui) },
	}
}

// runCheckpointShow prints a checkpoint as a table or, with --json, its full form on one line.
func runCheckpointShow(ctx context.Context, path string, u *terminal.UI) error {
	if path != opening.Stdin {
		if err := answers(ctx, path, u); err != nil {
			return err
		}
		if _, mounted := fs.MountOf(path); mounted || isDirectory(path) {
			control, err := controlFile(ctx, path, u)
			if err != nil {
				return err
			}
			path = control
		}
	}
	r, err := opening.ReadCheckpoint(path)
	if err != nil {
		return err
	}
	if u.JSON {
		var compact json.RawMessage = r.Doc
		return u.Emit(compact)
	}
	if r.State == nil {
		rows := [][2]string{{"epoch", fmt.Sprint(*r.Short.Epoch)}}
		if r.Short.Samples != nil {
			rows = append(rows, [2]string{"consumed", terminal.Plural(*r.Short.Samples, "record")})
		}
		return terminal.Table(u.Out, append(rows, [2]string{"form", "short: dataset and order are those of the mount"}))
	}
	return terminal.Table(u.Out, stateRows(*r.State))
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func stateRows(s checkpoint.State) [][2]string {
	o := s.Order
	rows := [][2]string{
		{"dataset", s.Dataset},
		{"order", fmt.Sprintf("seed %d, shuffle %s of %s, %d lanes in %s, chunks of %s or %s", o.Seed, o.Shuffle,
			terminal.Plural(o.SizeRecords, "record"), o.Lanes, terminal.Plural(o.Groups, "group"), terminal.Size(o.ChunkBytes), terminal.Plural(o.ChunkRecords, "record"))},
		{"epoch", fmt.Sprint(s.Epoch)},
	}
	if split := o.Split; split != (spec.Split{}) {
		rows = append(rows, [2]string{"split", inspect.SplitText(split)})
	}
	if sample := o.Sample; sample != (spec.Subsample{}) {
		rows = append(rows, [2]string{"sample", inspect.SampleText(sample)})
	}
	total := uint64(0)
	for i, d := range s.Done {
		name := fmt.Sprintf("resume %d", i+1)
		if i == len(s.Done)-1 {
			name = "workers now"
		}
		rows = append(rows, [2]string{name, doneText(d)})
		total += d.Taken()
	}
	return append(rows, [2]string{"consumed", terminal.Plural(total, "record") + " of the epoch"})
}

// doneText describes an entry. It shows the counts of the first 16 workers at most.
func doneText(d order.Done) string {
	const shown = 16
	text := fmt.Sprintf("%s in batches of %d", terminal.Plural(uint64(len(d.Consumed)), "worker"), d.Batch)
	if d.Dealing == spec.DealContiguous {
		text = terminal.Plural(uint64(len(d.Consumed)), "worker") + ", contiguous"
	}
	text += ": " + fmt.Sprint(d.Consumed[:min(shown, len(d.Consumed))])
	if len(d.Consumed) > shown {
		text += " …"
	}
	return text
}

// saved reports what was written.
func saved(path string, s checkpoint.State, u *terminal.UI) error {
	total := uint64(0)
	for _, d := range s.Done {
		total += d.Taken()
	}
	if u.JSON {
		return u.Emit(map[string]any{"saved": path, "epoch": s.Epoch, "consumed": total})
	}
	u.Notef("saved %s: epoch %d, %s consumed", path, s.Epoch, terminal.Plural(total, "record"))
	return nil
}

// mountRecords returns T, the mount's number of records, from its dataset.json.
func mountRecords(mnt string) (uint64, error) {
	b, err := os.ReadFile(filepath.Join(mnt, "dataset.json"))
	if err != nil {
		return 0, err
	}
	var d struct {
		Records *uint64 `json:"records"`
	}
	if err := json.Unmarshal(b, &d); err != nil || d.Records == nil {
		return 0, fmt.Errorf("%s/dataset.json has no number of records", mnt)
	}
	return *d.Records, nil
}

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
		doc, err := opening.ReadDocument(path)
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
	if o.output == "" || o.output == opening.Stdin { // as in all commands, - is also standard output
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
