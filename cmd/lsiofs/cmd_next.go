package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/fs"
)

func newNextCommand(g *globals) *cobra.Command {
	wait := false
	c := &cobra.Command{
		Use:   "next MNT",
		Short: "Advance a mount to the next epoch",
		Long: `Writes {"epoch": N+1} to MNT/checkpoint, where N is the epoch of the worker files. For a
growing dataset, this starts epoch N+1 unless another node has started it. If there is
not enough new data for it, the command fails, or waits with --wait. It prints which
snapshot the epoch uses.`,
		Example: `  lsiofs next /mnt/games --wait
  lsiofs next /mnt/games --json | jq .records`,
		Args: exactArgs("MNT"),
		RunE: func(c *cobra.Command, args []string) error { return runNext(c.Context(), args[0], wait, g.ui) },
	}
	c.Flags().BoolVar(&wait, "wait", false, "wait until there is enough new data for the next epoch")
	return c
}

// begun describes an epoch that a mount has advanced to.
type begun struct {
	Epoch    uint64 `json:"epoch"`
	Snapshot string `json:"snapshot"` // the dataset's fingerprint in this epoch
	Records  uint64 `json:"records"`
	// Set for growing datasets if the epoch is the latest of its run.
	NewRecords *uint64 `json:"new_records,omitempty"`
	NewUnits   *uint64 `json:"new_units,omitempty"`
	NewShards  *uint64 `json:"new_shards,omitempty"`
}

func (b begun) String() string {
	text := fmt.Sprintf("epoch %d, snapshot %.12s…: %s", b.Epoch, b.Snapshot, terminal.Plural(b.Records, "record"))
	if b.NewRecords != nil {
		text += fmt.Sprintf("; %s in %s are new", terminal.Plural(*b.NewRecords, "record"), terminal.Plural(*b.NewShards, "shard"))
	}
	return text
}

// nextEvery is the interval between requests for the next epoch.
const nextEvery = time.Second

func runNext(ctx context.Context, mnt string, wait bool, u *terminal.UI) error {
	control, err := controlFile(ctx, mnt, u)
	if err != nil {
		return err
	}
	s, err := readMountStatus(mnt)
	if err != nil {
		return err
	}
	w := opening.NewWaiting(u)
	defer w.Clear()
	next := s.Epoch + 1
	for {
		err := writeControl(control, fmt.Appendf(nil, "{\"epoch\": %d}\n", next), u)
		if err == nil {
			break
		}
		notYet := errors.Is(err, unix.EBUSY)
		if !notYet || !wait {
			if notYet {
				return exit.Errorf(exit.NotYet, "%s: %s: add --wait to wait for it", mnt, refusalReason(mnt, err))
			}
			if errors.Is(err, unix.EINVAL) {
				return exit.Errorf(exit.Checkpoint, "%s: %s", mnt, refusalReason(mnt, err))
			}
			return exit.With(exit.Checkpoint, err)
		}
		if s, err = readMountStatus(mnt); err != nil {
			return err
		}
		if s.Growing != nil {
			w.Show(opening.WaitingFor(*s.Growing))
		}
		timer := time.NewTimer(nextEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
	w.Clear()
	if s, err = readMountStatus(mnt); err != nil {
		return err
	}
	b := begun{Epoch: s.Epoch, Snapshot: s.Fingerprint, Records: s.Records}
	if g := s.Growing; g != nil && g.Latest != nil && g.Latest.Epoch == s.Epoch {
		b.NewRecords, b.NewUnits, b.NewShards = &g.Latest.NewRecords, &g.Latest.NewUnits, &g.Latest.NewShards
	}
	if g := s.Growing; g != nil && g.Warning != "" {
		u.Warn(g.Warning)
	}
	if u.JSON {
		return u.Emit(b)
	}
	return u.Printf("%s\n", b)
}

// readMountStatus reads a mount's status.json.
func readMountStatus(mnt string) (*fs.Status, error) {
	path := filepath.Join(mnt, "status.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, exit.With(exit.Mount, fs.Unreachable(mnt, err))
	}
	s := &fs.Status{}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, exit.Errorf(exit.Mount, "%s is not the status of a mount: %w", path, err)
	}
	return s, nil
}
