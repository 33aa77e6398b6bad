// Package snapshots does the work of the verb snapshots: it lists the epochs of a run over a
// growing dataset, and the shards that no epoch needs any more. It reads the run directory, and
// looks at shards without opening them.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/printable"
	rundir "github.com/lsiofs/lsiofs/pipeline/run"
)

func newSnapshotsCommand(g *globals) *cobra.Command {
	unused, keep := "", uint64(2)
	c := &cobra.Command{
		Use:   "snapshots RUN",
		Short: "List the epochs of a run over a growing dataset, or the shards that no epoch needs any more",
		Long: `Lists the epochs of a run that have started, with their numbers of shards and records.
RUN is the run directory. An epoch whose snapshot is "gone" can't be read any more: only
the newest 64 snapshots are kept.

--unused instead lists the files of DATASET, one path per line, that belong to an older
snapshot but to none of the newest epochs (--keep). You may delete them. Files that
belong to no snapshot are never listed. Neither are files that have changed since the
epoch that uses their names started, because they may be new.`,
		Example: `  lsiofs snapshots /data/games/.lsiofs/runs/default
  lsiofs snapshots /shared/run --json | jq .new_units
  lsiofs snapshots /shared/run --unused /data/games --keep 3 | xargs -d '\n' rm --`,
		Args: exactArgs("RUN"),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case unused == "" && c.Flags().Changed("keep"):
				return exit.Usagef("--keep needs --unused: name the run's dataset with --unused, or leave --keep out")
			case keep == 0:
				return exit.Usagef("--keep (0) must be at least 1: the shards of the latest epoch may still be read")
			}
			d, err := openRun(args[0])
			switch {
			case err == nil && unused != "":
				err = listUnused(d, unused, keep, g.ui)
			case err == nil:
				err = listEpochs(d, g.ui)
			}
			return exit.With(exit.Dataset, err)
		},
	}
	c.Flags().StringVar(&unused, "unused", "", "list the shards of this `dataset` that no epoch needs any more")
	c.Flags().Uint64Var(&keep, "keep", keep, "with --unused: number of newest epochs whose shards are still needed")
	return c
}

// openRun opens a run directory for reading.
func openRun(path string) (*rundir.Directory, error) {
	d, err := rundir.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: name a run directory, which contains run.json", err)
	}
	return d, err
}

// listedEpoch is an epoch in the output of snapshots --json.
type listedEpoch struct {
	rundir.Epoch
	Kept bool `json:"kept"`
}

// listEpochs lists the epochs that were taken.
func listEpochs(d *rundir.Directory, u *terminal.UI) error {
	kept, err := d.Kept()
	if err != nil {
		return err
	}
	numbers, err := d.Numbers()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(u.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for i, n := range numbers {
		e, err := d.Epoch(n)
		if err != nil {
			return err
		}
		if l := (listedEpoch{e, slices.Contains(kept, e.Snapshot)}); u.JSON {
			err = u.Emit(l)
		} else {
			if i == 0 {
				fmt.Fprintln(w, "epoch\tshards\trecords\tunits\tnew shards\tnew records\tgone shards\tsnapshot\ttaken\tby\t")
			}
			writeEpoch(w, &l)
		}
		if err != nil {
			return err
		}
	}
	if len(numbers) == 0 {
		u.Notef("%s: run %s has no epoch yet", d.Path(), d.Info().Run)
	}
	return w.Flush()
}

func writeEpoch(w *tabwriter.Writer, e *listedEpoch) {
	snapshot := e.Snapshot[:12]
	if !e.Kept {
		snapshot = "gone"
	}
	fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", e.Epoch.Epoch, terminal.Count(e.Shards), terminal.Count(e.Records), terminal.Count(e.Units),
		terminal.Count(e.NewShards), terminal.Count(e.NewRecords), terminal.Count(e.GoneShards), snapshot, printable.Line(e.Taken), printable.Line(e.By))
}

// unusedShard is a shard in the output of snapshots --unused --json.
type unusedShard struct {
	Path  string `json:"path"` // of the file
	Bytes int64  `json:"bytes"`
}

// listUnused lists the files in the dataset's directory that are in kept snapshots but not in those
// of the newest keep epochs, whose snapshots must exist. It leaves out files that were changed after
// the last epoch that contains them was taken: they may be different files, which no epoch has yet.
func listUnused(d *rundir.Directory, dataset string, keep uint64, u *terminal.UI) error {
	if info, err := os.Stat(dataset); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s is not a directory: name the one that holds the run's shards", dataset)
	}
	numbers, err := d.Numbers()
	if err != nil || len(numbers) == 0 {
		return err
	}
	taken, err := unusedPaths(d, numbers, keep)
	if err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(taken)) {
		file := filepath.Join(dataset, path)
		var st unix.Stat_t
		err := unix.Lstat(file, &st)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return &fs.PathError{Op: "stat", Path: file, Err: err}
		}
		if st.Mode&unix.S_IFMT != unix.S_IFREG || max(st.Mtim.Sec, st.Ctim.Sec) >= taken[path].Unix() {
			continue
		}
		if u.JSON {
			err = u.Emit(unusedShard{file, st.Size})
		} else {
			err = u.Printf("%s\n", file)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unusedPaths returns the paths that are in kept snapshots but not in those of the newest keep
// epochs, whose snapshots must exist. The values are the times when the last epoch with the path
// was taken.
func unusedPaths(d *rundir.Directory, numbers []uint64, keep uint64) (map[string]time.Time, error) {
	first := max(0, len(numbers)-int(min(keep, uint64(len(numbers)))))
	needed, old, seen := map[string]bool{}, map[string]time.Time{}, map[string]bool{}
	for i, n := range slices.Backward(numbers) {
		e, err := d.Epoch(n)
		if err != nil {
			return nil, err
		}
		if i < first && seen[e.Snapshot] {
			continue
		}
		seen[e.Snapshot] = true
		taken, err := time.Parse(time.RFC3339, e.Taken)
		if err != nil {
			return nil, fmt.Errorf("epoch %d of %s: %w", n, d.Path(), err)
		}
		text, err := d.Snapshot(e.Snapshot)
		if errors.Is(err, rundir.ErrGone) && i < first {
			continue
		}
		if err != nil {
			return nil, err
		}
		shards, err := catalog.ShardsOf(text)
		if err != nil {
			return nil, fmt.Errorf("snapshot %s of %s: %w", e.Snapshot, d.Path(), err)
		}
		for _, s := range shards {
			switch {
			case i >= first:
				needed[s.Path] = true
			case !needed[s.Path] && old[s.Path].IsZero() && filepath.IsLocal(s.Path):
				old[s.Path] = taken
			}
		}
	}
	return old, nil
}
