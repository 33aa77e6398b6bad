package bench

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"slices"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/doctor"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/mounting"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/fs/rings"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Command holds what all measurements share: where they are shown, and which program is measured.
type Command struct {
	UI      *terminal.UI
	Log     *slog.Logger
	Version string
	// Lsiofs is the path of the lsiofs that is measured; "" for this program.
	Lsiofs string
	Caches bool // it has --cache-dir and --cache-size
	Rings  bool // mounts take requests through io_uring
}

// Dataset measures a dataset and prints the table.
func (b Command) Dataset(ctx context.Context, c Config) error {
	v := newRowView(b.UI, b.Log)
	c.Progress = v.show
	run := Run
	if pipeline.IsRemote(c.Spec.Dataset) {
		run = RunURL
	}
	r, err := measured(b, v, &c, func(p Program) (Report, error) { return run(ctx, p, c) })
	if err != nil {
		return err
	}
	if b.UI.JSON {
		return b.UI.Emit(r)
	}
	return r.Print(b.UI.Out)
}

// Check checks the promises, prints the results, and returns an error if a promise is not kept.
func (b Command) Check(ctx context.Context, c CheckConfig) error {
	v := newRowView(b.UI, b.Log)
	c.Progress = v.show
	r, err := measured(b, v, &c, func(p Program) (CheckReport, error) { return RunCheck(ctx, p, c) })
	if err != nil {
		return err
	}
	if b.UI.JSON {
		err = b.UI.Emit(r)
	} else {
		err = r.Print(b.UI.Out)
	}
	if err == nil && r.Short() {
		err = exit.Errorf(exit.Check, "some promises were not kept")
	}
	return err
}

// Make makes a dataset and reports what it has made.
func (b Command) Make(ctx context.Context, m Make) error {
	v := newMakingView(b.UI)
	m.Progress = v.show
	if err := m.Validate(); err != nil {
		return exit.With(exit.Usage, err)
	}
	made, err := m.Run(ctx)
	v.clear()
	if err != nil {
		return err
	}
	if b.UI.JSON {
		return b.UI.Emit(made)
	}
	b.UI.Notef("made %s: %s of %s in %s, %s (%s of files) in %s", made.Dir, terminal.Plural(made.Records, "record"), made.Format,
		terminal.Plural(made.Shards, "shard"), terminal.Bytes(made.DecodedBytes), terminal.Bytes(made.FileBytes), terminal.Round(made.Took))
	return nil
}

// MakeZarr makes a Zarr array and reports what it has made.
func (b Command) MakeZarr(ctx context.Context, m MakeZarr) error {
	v := newMakingView(b.UI)
	m.Progress = v.show
	if err := m.Validate(); err != nil {
		return exit.With(exit.Usage, err)
	}
	made, err := m.Run(ctx)
	v.clear()
	if err != nil {
		return err
	}
	if b.UI.JSON {
		return b.UI.Emit(made)
	}
	b.UI.Notef("made %s: an array of %v in %s of zarr, %s (%s of files) in %s", made.Dir, m.Shape,
		terminal.Plural(made.Shards, "shard"), terminal.Bytes(made.DecodedBytes), terminal.Bytes(made.FileBytes), terminal.Round(made.Took))
	return nil
}

// measured runs a measurement if the configuration is valid and mounting is possible. It removes
// the view from the screen.
func measured[R any](b Command, v *rowView, c interface{ Validate() error }, run func(Program) (R, error)) (r R, err error) {
	defer v.clear()
	if err := c.Validate(); err != nil {
		return r, exit.With(exit.Usage, err)
	}
	if missing := doctor.CanMount(); missing != nil {
		return r, missing
	}
	if b.Rings {
		if err := rings.Offered(); err != nil {
			return r, exit.With(exit.Mount, err)
		}
	}
	p, err := b.program()
	if err != nil {
		return r, err
	}
	return run(p)
}

// program returns how measurements run this program.
func (b Command) program() (Program, error) {
	self, err := os.Executable()
	if err != nil {
		return Program{}, err
	}
	lsiofs := b.Lsiofs
	if lsiofs == "" {
		lsiofs = self
	}
	return Program{
		Self: self, Lsiofs: lsiofs, Version: b.Version, Caches: b.Caches, Rings: b.Rings,
		Mount: func(ctx context.Context, args []string, output *os.File) (*exec.Cmd, error) {
			if b.Rings {
				args = append(slices.Clone(args), "--"+mounting.RingsFlag)
			}
			c := mounting.Child{Program: b.Lsiofs, Args: args, Output: output}
			err := c.Start(ctx, mounting.Silent{})
			return c.Cmd, err
		},
		Open: func(ctx context.Context, s spec.Spec) (*pipeline.Dataset, error) {
			return opening.OpenShowing(ctx, b.UI, b.Log, s, pipeline.Options{})
		},
	}, nil
}
