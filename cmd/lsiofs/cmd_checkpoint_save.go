package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/fs"
	"github.com/lsiofs/lsiofs/pipeline/order"
)

type saveOptions struct {
	mnt, file string
	consumed  string
}

func newCheckpointSaveCommand(g *globals) *cobra.Command {
	o := &saveOptions{}
	c := &cobra.Command{
		Use:   "save MNT FILE",
		Short: "Save a mount's checkpoint to a file, atomically",
		Long: `Writes the mount's checkpoint to FILE, atomically: to a temporary file in the same
directory, which is fsynced and renamed. FILE - is standard output.

The mount counts what it has sent to the programs that read its worker files. Most
programs read ahead (Python's open by 1 MiB), so a resume would skip records that they
have not used yet. Pass the numbers of used records with --consumed, or copy
MNT/epoch-E/from-M/checkpoint, the checkpoint after M records of epoch E, counted over
all workers.`,
		Example: `  lsiofs checkpoint save /mnt/train ckpt.json --consumed 5120,5120,5120,5120`,
		Args:    exactArgs("MNT", "FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			o.mnt, o.file = args[0], args[1]
			return runCheckpointSave(c.Context(), o, c.Flags().Changed("consumed"), g.ui)
		},
	}
	c.Flags().StringVar(&o.consumed, "consumed", "", "number of records that each worker of the mount has used, one number per worker: n0,n1,…")
	return c
}

func runCheckpointSave(ctx context.Context, o *saveOptions, own bool, u *terminal.UI) error {
	control, err := controlFile(ctx, o.mnt, u)
	if err != nil {
		return err
	}
	doc, err := opening.ReadDocument(control)
	if err != nil {
		return err
	}
	state, err := checkpoint.Parse(doc)
	if err != nil {
		return exit.Errorf(exit.Checkpoint, "%s/checkpoint: %w", o.mnt, err)
	}
	if own {
		counts, err := parseCounts(o.consumed)
		if err != nil {
			return exit.Usagef("--consumed: %w", err)
		}
		records, err := mountRecords(o.mnt)
		if err != nil {
			return exit.With(exit.Mount, err)
		}
		if err := replaceConsumed(&state, counts, records); err != nil {
			return err
		}
		doc = state.Marshal(records)
	}
	if o.file == opening.Stdin { // as in all commands, - is also standard output
		_, err := u.Out.Write(doc)
		return err
	}
	if err := checkpoint.WriteFile(o.file, doc); err != nil {
		return err
	}
	return saved(o.file, state, u)
}

// controlFile returns the path of a mount's checkpoint. A directory without one is not a mount.
func controlFile(ctx context.Context, mnt string, u *terminal.UI) (string, error) {
	if err := answers(ctx, mnt, u); err != nil {
		return "", err
	}
	path := filepath.Join(mnt, "checkpoint")
	if _, err := os.Stat(path); err != nil {
		return "", exit.With(exit.Checkpoint, fs.Unreachable(mnt, err))
	}
	return path, nil
}

// answers waits until the file system of path answers.
func answers(ctx context.Context, path string, u *terminal.UI) error {
	defer u.WhenSlow("waiting for %s to answer", path)()
	return exit.With(exit.Mount, fs.Answers(ctx, path))
}

// replaceConsumed replaces the counts of the last entry by a program's own, if they are possible in
// a dataset of that many records.
func replaceConsumed(s *checkpoint.State, counts []uint64, records uint64) error {
	if len(s.Done) == 0 {
		return exit.Errorf(exit.Checkpoint, "--consumed: the mount's checkpoint has no entry for workers to replace")
	}
	last := &s.Done[len(s.Done)-1]
	if len(counts) != len(last.Consumed) {
		return exit.Usagef("--consumed has %s, but the mount has %s", terminal.Plural(uint64(len(counts)), "number"), terminal.Plural(uint64(len(last.Consumed)), "worker"))
	}
	last.Consumed = counts
	if _, err := order.Simplify(records, s.Order, s.Done); err != nil {
		return exit.Usagef("--consumed: %w", err)
	}
	return nil
}

func newCheckpointRestoreCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "restore FILE MNT",
		Short: "Restore a checkpoint into a running mount",
		Long: `Writes FILE (- is standard input) to MNT/checkpoint. The worker files then contain the
rest of that epoch. Reads of worker files that are already open fail with ESTALE. If the
checkpoint does not match the mount, the command prints the reason and changes nothing.`,
		Example: `  lsiofs checkpoint restore ckpt.json /mnt/train`,
		Args:    exactArgs("FILE", "MNT"),
		RunE: func(c *cobra.Command, args []string) error {
			return runCheckpointRestore(c.Context(), args[0], args[1], g.ui)
		},
	}
}

func runCheckpointRestore(ctx context.Context, file, mnt string, u *terminal.UI) error {
	if file != opening.Stdin {
		if err := answers(ctx, file, u); err != nil {
			return err
		}
		if isDirectory(file) {
			return exit.Usagef("%s is a directory: the file comes first, as in lsiofs checkpoint restore ckpt.json %s", file, terminal.Quote(file))
		}
	}
	doc, err := opening.ReadDocument(file)
	if err != nil {
		return err
	}
	control, err := controlFile(ctx, mnt, u)
	if err != nil {
		return err
	}
	if err := writeControl(control, doc, u); err != nil {
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EFBIG):
			return exit.Errorf(exit.Checkpoint, "%s: %s", file, refusalReason(mnt, err))
		case errors.Is(err, os.ErrPermission):
			return exit.Errorf(exit.Checkpoint, "%w: only the user who made the mount, and root, may restore into it: run this as one of them, or mount with --restore all", err)
		}
		return exit.With(exit.Checkpoint, err)
	}
	if u.JSON {
		return u.Emit(map[string]string{"restored": file, "mount": mnt})
	}
	u.Notef("restored %s: the worker files of %s hold what is left", file, mnt)
	return nil
}

// writeControl writes the document. It checks the errors of both write and close, since either may
// report a refusal.
func writeControl(path string, doc []byte, u *terminal.UI) error {
	defer u.WhenSlow("waiting for the mount to accept the position: %s", path)()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(doc)
	return errors.Join(err, f.Close())
}

// refusalReason returns the mount's own reason for a refusal, or the error of the write if it has
// none.
func refusalReason(mnt string, err error) string {
	f, openErr := os.Open(filepath.Join(mnt, "status.json"))
	if openErr != nil {
		return err.Error()
	}
	defer f.Close()
	b, readErr := io.ReadAll(io.LimitReader(f, 1<<20))
	var s struct {
		Refusal *struct {
			Reason string `json:"reason"`
		} `json:"last_checkpoint_refusal"`
	}
	if readErr != nil || json.Unmarshal(b, &s) != nil || s.Refusal == nil || s.Refusal.Reason == "" {
		return fmt.Sprintf("refused (%v); %s/status may have the reason", err, terminal.Quote(mnt))
	}
	return s.Refusal.Reason
}
