package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
)

// network checks the promises about datasets at services, with a web server on this machine that
// delays its answers.
func (k *check) network(ctx context.Context) error {
	if !k.config.wants(SectionNetwork) || k.config.Spec.Dataset != "" {
		return nil
	}
	c := k.config.Config
	if c.Rows = rowsOf(k.config.Promises, SectionNetwork); len(c.Rows) == 0 {
		return nil
	}
	path := filepath.Join(k.dir, "network-56000")
	// As many shards as the index reads at a time.
	if err := k.make(ctx, Make{Dir: path, Shape: synthetic.Shape{Format: "tar", RecordBytes: 12500}, Records: 56_000, Shards: passStreams}); err != nil {
		return err
	}
	r, err := runNetwork(ctx, k.program, c, path)
	if err != nil {
		return err
	}
	k.report.Reports = append(k.report.Reports, r)
	for _, p := range k.config.Promises {
		if p.Section == SectionNetwork {
			k.add(p.judge(r.Rows))
		}
	}
	if k.config.Dir == "" {
		return os.RemoveAll(path)
	}
	return nil
}

// networkSlot is how long each row for a web server is measured.
const networkSlot = 3 * time.Second

// runNetwork measures a directory's files served by a web server.
func runNetwork(ctx context.Context, p Program, c Config, local string) (report Report, err error) {
	n, err := newNetwork(ctx, p, c, local)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	n.slot = networkSlot
	s := c.Spec
	s.Dataset, s.IndexDir = n.address.Dataset(n.address.Objects), filepath.Join(n.dir, "index")
	s = withoutCache(s)
	d, err := p.Open(ctx, s) // this also indexes it for all commands
	if err != nil {
		return Report{}, err
	}
	report = Report{Machine: thisMachine(local, p.Version), Dataset: describe(d)}
	report.Dataset.MeasuredBytes = report.Dataset.StreamBytes
	if err := d.Close(); err != nil {
		return Report{}, err
	}
	rows := n.rows()
	r := rounds{most: c.Rounds, total: c.Total, progress: c.progress}
	if report.Rounds, err = r.run(ctx, rows); err != nil {
		return Report{}, err
	}
	report.Rows = finished(rows, report.Dataset.RecordBytes)
	return report, nil
}
