package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/inspect"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/resuming"
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
	if path != resuming.Stdin {
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
