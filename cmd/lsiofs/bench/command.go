package bench

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"time"

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
	v := NewRowView(b.UI, b.Log)
	c.Progress = v.Show
	run := Run
	if pipeline.IsRemote(c.Spec.Dataset) {
		run = RunURL
	}
	r, err := Measured(b, v, &c, func(p Program) (Report, error) { return run(ctx, p, c) })
	if err != nil {
		return err
	}
	if b.UI.JSON {
		return b.UI.Emit(r)
	}
	return r.Print(b.UI.Out)
}

// Measured runs a measurement if the configuration is valid and mounting is possible. It removes
// the view from the screen.
func Measured[R any](b Command, v *RowView, c interface{ Validate() error }, run func(Program) (R, error)) (r R, err error) {
	defer v.Clear()
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

// RowView shows which row is being measured: a line that is redrawn on a terminal, otherwise a line
// every few seconds. It is not safe for concurrent use.
type RowView struct {
	ui    *terminal.UI
	log   *slog.Logger
	line  *terminal.StatusLine
	begin time.Time
	pace  terminal.Pace
}

// NewRowView returns a view that shows nothing yet.
func NewRowView(u *terminal.UI, log *slog.Logger) *RowView {
	return &RowView{ui: u, log: log, line: u.NewStatusLine(), begin: time.Now(), pace: terminal.NewPace()}
}

// Show shows what is being done. total is 0 if it is not known how long that takes.
func (v *RowView) Show(text string, done, total int) {
	v.log.Debug("measuring", "row", text)
	if total > 0 {
		text = fmt.Sprintf("%d %% %s", 100*done/total, text)
	}
	switch {
	case v.ui.JSON:
	case v.ui.Terminal:
		v.line.Show(text)
	case v.pace.Due(time.Since(v.begin)):
		v.ui.Notef("measuring: %s", text)
	}
}

// Clear removes the line from the screen.
func (v *RowView) Clear() { v.line.Clear() }
