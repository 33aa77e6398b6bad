package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/inspect"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/resuming"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func newCheckpointCommand(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:   "checkpoint",
		Short: "Show, save, restore and merge checkpoints",
		Long: `A checkpoint is a small JSON document: which dataset, which order, which epoch, and
how far it has been read. MNT/checkpoint is the mount's own; reading it saves and
writing it restores. These commands do the same, and say in words what is wrong.`,
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
		Short: "Show a checkpoint, or that of a mount",
		Example: `  lsiofs checkpoint show ckpt.json
  lsiofs checkpoint show /mnt/train --json`,
		Args: exactArgs("FILE|MNT"),
		RunE: func(c *cobra.Command, args []string) error { return runCheckpointShow(args[0], g.ui) },
	}
}

// runCheckpointShow prints a checkpoint for people, or, as JSON, its full form
// on one line.
func runCheckpointShow(path string, u *terminal.UI) error {
	if isDirectory(path) {
		path = filepath.Join(path, "checkpoint")
	}
	r, err := resuming.Read(path)
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
		return terminal.Table(u.Out, append(rows, [2]string{"form", "short: dataset and order are the mount's"}))
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

// doneText describes an entry; of many workers it shows the first few.
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

type mergeOptions struct {
	files  []string
	output string
}

func newCheckpointMergeCommand(g *globals) *cobra.Command {
	o := &mergeOptions{}
	c := &cobra.Command{
		Use:   "merge FILE…",
		Short: "Make one checkpoint of those that the machines of a cluster saved",
		Long: `Each mount of a cluster knows its own workers only. merge takes documents that agree
in dataset, order, epoch and all entries but the last, and takes of the last
entry's numbers, element by element, the greatest.`,
		Example: `  lsiofs checkpoint merge node-*.json -o ckpt.json`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Usagef("%s takes at least one FILE (see %s --help)", c.CommandPath(), c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			o.files = args
			return runCheckpointMerge(o, g.ui)
		},
	}
	c.Flags().StringVarP(&o.output, "output", "o", "", "write the document to this `file`, whole or not at all (default: stdout)")
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
	if err != nil {
		return exit.With(exit.Checkpoint, err)
	}
	doc := merged.Marshal(widest(merged.Done))
	if o.output == "" {
		_, err := u.Out.Write(doc)
		return err
	}
	if err := checkpoint.WriteFile(o.output, doc); err != nil {
		return exit.With(exit.Failure, err)
	}
	return saved(o.output, merged, u)
}

// widest is the largest number of entries: it gives Marshal a width where the
// number of records is not known.
func widest(done []order.Done) (n uint64) {
	for _, d := range done {
		for _, c := range d.Consumed {
			n = max(n, c)
		}
	}
	return n
}

// saved says what was written.
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

// mountRecords is T of a mount, from its dataset.json.
func mountRecords(mnt string) (uint64, error) {
	b, err := os.ReadFile(filepath.Join(mnt, "dataset.json"))
	if err != nil {
		return 0, err
	}
	var d struct {
		Records *uint64 `json:"records"`
	}
	if err := json.Unmarshal(b, &d); err != nil || d.Records == nil {
		return 0, fmt.Errorf("%s/dataset.json does not say how many records there are", mnt)
	}
	return *d.Records, nil
}
