package tune

import (
	"context"
	"errors"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	storagetune "github.com/lsiofs/lsiofs/pipeline/tune"
	"github.com/lsiofs/lsiofs/pipeline/tune/probe"
)

// Options select what is measured, and whether it is stored.
type Options struct {
	Path    string
	Seconds float64
	DryRun  bool
	Show    bool
	Yes     bool              // for services: allows transferring more than probe.FreeBytes
	Service probe.Options     // how requests to the service are made
	Trials  func() probe.Plan // what is measured of a service; nil for the default (tests use less)
	// Measured returns what is measured for a path; nil for the default (tests use less).
	Measured func(path string) storagetune.Config
}

// Run measures the storage of o.Path, or shows what is known about it.
func Run(ctx context.Context, o Options, u *terminal.UI) error {
	if o.Measured == nil {
		o.Measured = storagetune.Default
	}
	if !(o.Seconds >= 0.1 && o.Seconds <= 86400) {
		return exit.Usagef("--seconds (%v) must be between 0.1 and 86400", o.Seconds)
	}
	if o.Show && o.DryRun {
		return exit.Usagef("--show and --dry-run can't be combined, because --show measures nothing: leave one of them out")
	}
	if discover.IsRemote(o.Path) {
		return runService(ctx, o, u)
	}
	target, err := discover.ParseTarget(o.Path)
	if err != nil {
		return exit.With(exit.Dataset, err)
	}
	root := target.Root()
	if o.Show {
		return showProfile(root, u)
	}
	v := newView(u)
	c := o.Measured(root)
	c.Duration = time.Duration(o.Seconds * float64(time.Second))
	c.Progress = v.show
	r, err := storagetune.Run(ctx, c)
	v.clear()
	if err != nil {
		return exit.With(exit.Dataset, err)
	}
	report := Report{Result: r}
	if !o.DryRun {
		report.File, err = saveProfile(r)
	}
	return errors.Join(report.write(u), err)
}

func saveProfile(r storagetune.Result) (string, error) {
	dir, err := profile.Dir()
	if err != nil {
		return "", err
	}
	return profile.Save(dir, profile.Stored{Place: r.Place, Profile: r.Profile, Cells: r.Cells})
}
