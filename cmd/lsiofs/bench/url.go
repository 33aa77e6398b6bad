package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/tune/probe"
)

// Rows for a dataset at a bucket or web server.
const (
	rowURLBare  = "bare-requests"
	rowURLCat   = "cat"
	rowURLAgain = "cat-from-cache"
)

// RunURL measures a dataset at a bucket or web server: its streams, compared with bare requests of
// the same size. It transfers what arrives in the configured time. When ctx ends, it removes
// everything and returns ctx's error.
func RunURL(ctx context.Context, p Program, c Config) (report Report, err error) {
	if err := c.Validate(); err != nil {
		return Report{}, err
	}
	u := &url{network: network{program: p, config: c, asIs: true}}
	if u.dir, err = os.MkdirTemp("", "lsiofs-bench-"); err != nil {
		return Report{}, err
	}
	defer func() {
		if err = errors.Join(err, u.close()); ctx.Err() != nil {
			err = ctx.Err()
		}
	}()
	if u.log, err = os.Create(filepath.Join(u.dir, "lsiofs.log")); err != nil {
		return Report{}, err
	}
	s := c.Spec
	s.Cache.Off = true       // this process reads no data
	d, err := p.Open(ctx, s) // this also indexes it for all commands
	if err != nil {
		return Report{}, err
	}
	report = Report{Machine: thisMachine(u.dir, p.Version), Dataset: describe(d)}
	report.Dataset.MeasuredBytes = report.Dataset.StreamBytes
	if err := d.Close(); err != nil {
		return Report{}, err
	}
	rows := u.rows()
	u.slot = c.Total / time.Duration((len(rows)+1)*c.Rounds) // the last row reads twice
	r := rounds{most: c.Rounds, total: c.Total, progress: c.progress}
	if report.Rounds, err = r.run(ctx, rows); err != nil {
		return Report{}, err
	}
	report.Rows = finished(rows, report.Dataset.RecordBytes)
	report.Notes = append(report.Notes, fmt.Sprintf("each row reads for %v, or to the end of an epoch if that comes first; nothing is kept but for the row that says so", u.slot.Round(100*time.Millisecond)))
	return report, nil
}

// url measures a dataset at a third-party service.
type url struct {
	network
	filled int // number of caches filled so far
}

func (u *url) rows() []*row {
	s := &u.config.Spec
	l := &rowList{only: u.config.Rows}
	l.add(row{
		id: rowURLBare, name: fmt.Sprintf("bare requests of %d KiB, %d at a time", s.Order.ChunkBytes>>10, s.Remote.Connections), noRecords: true, measure: u.bareRequests,
	})
	l.add(row{id: rowURLCat, name: "cat | reader, nothing kept", against: rowURLBare, measure: u.catFor})
	l.add(row{id: rowURLAgain, name: "cat | reader, the same once more, from the disk cache", against: rowURLBare, measure: u.fromCache})
	return l.rows
}

// bareRequests requests ranges of the size of chunks at random places and discards them.
func (u *url) bareRequests(ctx context.Context) (r reading, err error) {
	s := &u.config.Spec
	service, err := probe.Open(ctx, s.Dataset, probe.Options{
		Region: s.Remote.Region, Endpoint: s.Remote.Endpoint, Addressing: string(s.Remote.Addressing), Anonymous: s.Remote.Anonymous, RequesterPays: s.Remote.RequesterPays,
		CAFile: s.Remote.CAFile, AuthFile: s.Remote.AuthFile, Unversioned: s.Remote.Unversioned,
	})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	objects, err := service.Objects(ctx)
	if err != nil {
		return r, err
	}
	before, err := processCPU(os.Getpid())
	if err != nil {
		return r, err
	}
	each := min(int64(s.Order.ChunkBytes), objects[0].SizeBytes) // of the largest object
	rates, err := service.Rates(ctx, probe.Plan{ReadBytes: []int64{each}, Depths: []int{s.Remote.Connections}, Duration: u.slot})
	if err != nil {
		return r, err
	}
	after, err := processCPU(os.Getpid())
	return reading{bytes: rates.Bytes, elapsed: time.Duration(rates.Seconds * float64(time.Second)), cpu: after - before, mallocs: -1}, err
}

// catFor measures a cat for some time after the number of its requests has settled, or a whole
// epoch if it is over before that.
func (u *url) catFor(ctx context.Context) (reading, error) {
	args := []string{u.config.Spec.Dataset}
	run, err := u.cat(ctx, args, catPart{settle: u.slot / 4, slot: u.slot * 3 / 4})
	if errors.Is(err, errNotMeasured) {
		run, err = u.cat(ctx, args, catPart{})
	}
	return run.steady(), err
}

// steady returns the reading without the time before the first byte.
func (r catRun) steady() reading {
	r.elapsed -= r.waited
	return r.reading
}

// fromCache reads the beginning of an epoch twice and measures the second time.
func (u *url) fromCache(ctx context.Context) (r reading, err error) {
	if !u.program.Caches {
		return r, notMeasured("there is no --cache-dir")
	}
	u.filled++
	dir := filepath.Join(u.dir, "cache-"+strconv.Itoa(u.filled))
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	args := []string{u.config.Spec.Dataset, "--cache-dir", dir, "--cache-size", "50%"}
	first, err := u.cat(ctx, args, catPart{slot: u.slot})
	if err != nil {
		return r, err
	}
	again, err := u.cat(ctx, args, catPart{most: first.bytes})
	return again.steady(), err
}
