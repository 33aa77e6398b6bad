package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// zarr checks the promises about crops of Zarr arrays, with arrays that it makes.
func (k *check) zarr(ctx context.Context) error {
	if !k.config.wants(SectionZarr) || k.config.Spec.Dataset != "" {
		return nil
	}
	c := k.config.Config
	if c.Rows = zarrRowsOf(rowsOf(k.config.Promises, SectionZarr)); len(c.Rows) == 0 {
		return nil
	}
	path := filepath.Join(k.dir, "zarr")
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	r, err := runZarr(ctx, k.program, c, path)
	if err != nil {
		return err
	}
	k.report.Reports = append(k.report.Reports, r)
	for _, p := range k.config.Promises {
		if p.Section == SectionZarr {
			k.add(p.judge(r.Rows))
		}
	}
	if k.config.Dir == "" {
		return os.RemoveAll(path) // nothing is mounted in it
	}
	return nil
}

// runZarr measures crops of the arrays in a directory. It makes those that are missing.
func runZarr(ctx context.Context, p Program, c Config, data string) (report Report, err error) {
	a, err := newArrays(ctx, p, c, data)
	if err != nil {
		return Report{}, err
	}
	defer func() {
		err = errors.Join(err, a.close())
		if ctx.Err() != nil {
			err = ctx.Err()
		}
	}()
	rows := a.rows()
	a.slot = c.Total / time.Duration(2*len(rows)*(c.Rounds+1)) // half of the time is for mounts
	r := rounds{most: c.Rounds, warmUp: true, total: c.Total, progress: c.progress}
	report = Report{Machine: thisMachine(data, p.Version)}
	if report.Dataset, err = a.info(); err != nil {
		return Report{}, err
	}
	if report.Rounds, err = r.run(ctx, rows); err != nil {
		return Report{}, err
	}
	report.Rows = finished(rows, satelliteBytes)
	return report, nil
}
