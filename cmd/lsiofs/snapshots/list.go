// Package snapshots does the work of the verb snapshots: it lists the epochs of a run over a
// growing dataset, and the shards that no epoch needs any more. It reads the run directory, and
// looks at shards without opening them.
package snapshots

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"text/tabwriter"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/printable"
	"github.com/lsiofs/lsiofs/pipeline/run"
)

// Open opens a run directory for reading.
func Open(path string) (*run.Directory, error) {
	d, err := run.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: name a run directory, which contains run.json", err)
	}
	return d, err
}

// listedEpoch is an epoch in the output of snapshots --json.
type listedEpoch struct {
	run.Epoch
	Kept bool `json:"kept"`
}

// List lists the epochs that were taken.
func List(d *run.Directory, u *terminal.UI) error {
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
