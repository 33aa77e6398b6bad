package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/bench"
	"github.com/lsiofs/lsiofs/pipeline/format/inflate/inflatebench"
	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/uring"
	"github.com/lsiofs/lsiofs/uring/uringbench"
)

// CheckConfig configures a check.
type CheckConfig struct {
	// Config is used for each dataset. If Spec.Dataset is set, only that one is checked, otherwise
	// datasets that are made for the check.
	bench.Config
	Only     []Section // sections to check; empty: all
	Promises []Promise
	Dir      string // for datasets that are made; empty: a temporary directory, which is removed
}

// CheckReport is the result of a check.
type CheckReport struct {
	Machine bench.Machine           `json:"machine"`
	Checks  []Check                 `json:"checks"`
	Reports []bench.Report          `json:"reports"` // of datasets
	Engine  []uringbench.Comparison `json:"engine,omitempty"`
}

// Short reports whether a promise was not kept.
func (r CheckReport) Short() bool {
	return slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Verdict == VerdictShort })
}

// RunCheck checks the promises. When ctx ends, it unmounts and removes everything and returns ctx's
// error.
func RunCheck(ctx context.Context, p bench.Program, c CheckConfig) (report CheckReport, err error) {
	if err := c.Validate(); err != nil {
		return CheckReport{}, err
	}
	dir, remove, err := checkDirectory(c.Dir)
	if err != nil {
		return CheckReport{}, err
	}
	defer func() {
		err = errors.Join(err, remove())
		if ctx.Err() != nil {
			err = ctx.Err()
		}
	}()
	k := &check{program: p, config: c, dir: dir, report: CheckReport{Machine: bench.ThisMachine(dir, p.Version)}}
	if c.wants(SectionEngine) {
		if err := k.engine(ctx); err != nil {
			return CheckReport{}, err
		}
	}
	if err := k.gzipAlone(ctx); err != nil {
		return CheckReport{}, err
	}
	if err := k.datasets(ctx); err != nil {
		return CheckReport{}, err
	}
	if err := k.zarr(ctx); err != nil {
		return CheckReport{}, err
	}
	if err := k.network(ctx); err != nil {
		return CheckReport{}, err
	}
	if err := k.growing(ctx); err != nil {
		return CheckReport{}, err
	}
	return k.report, nil
}

func (c CheckConfig) wants(s Section) bool { return len(c.Only) == 0 || slices.Contains(c.Only, s) }

// check is a check in progress.
type check struct {
	program bench.Program
	config  CheckConfig
	dir     string
	report  CheckReport
}

// checkDirectory returns a directory on a disk where files are made.
func checkDirectory(dir string) (path string, remove func() error, err error) {
	remove = func() error { return nil }
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err == nil {
			err = os.MkdirAll(cache, 0o700)
		}
		if err == nil {
			dir, err = os.MkdirTemp(cache, "lsiofs-bench-")
		}
		if err != nil {
			return "", nil, fmt.Errorf("a directory for data: %w: name one with --dir", err)
		}
		remove = func() error { return os.RemoveAll(dir) } // nothing is mounted in it
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "", nil, errors.Join(fmt.Errorf("%s: %w", dir, err), remove())
	}
	if st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC {
		return "", nil, errors.Join(fmt.Errorf("%s is in memory: name a directory on a disk with --dir", dir), remove())
	}
	return dir, remove, nil
}

// engine compares package uring with fio, and checks how long the garbage collector stops the
// world.
func (k *check) engine(ctx context.Context) error {
	const fileBytes, each, stopTime = 1 << 30, 500 * time.Millisecond, time.Second
	path := filepath.Join(k.dir, "engine.data")
	k.config.Tell("making a file of 1 GiB", 0, 0)
	if err := uringbench.Make(ctx, path, fileBytes); err != nil {
		return err
	}
	ring, modes := "", []uring.Mode{uring.ModePread, uring.ModeUring}
	if e, err := uring.Open(uring.ModeUring); err != nil {
		ring, modes = err.Error(), modes[:1]
	} else if err := e.Close(); err != nil {
		return err
	}
	rows := slices.DeleteFunc(uringbench.Rows(path, fileBytes, each, true), func(r uringbench.Row) bool {
		return r.MinThroughput == 0 && r.MaxCPU == 0 // no promise
	})
	for i, row := range rows {
		k.config.Tell(row.Name, i, len(rows))
		if ring != "" && row.Job.Mode == uring.ModeUring {
			k.add(notChecked(SectionEngine, row.Name, ring))
			continue
		}
		c, err := uringbench.Compare(ctx, row, min(k.config.Rounds, engineRounds))
		switch {
		case errors.Is(err, uringbench.ErrNoFio), errors.Is(err, uringbench.ErrNotDirect):
			k.add(notChecked(SectionEngine, row.Name, err.Error()))
			continue
		case err != nil:
			return fmt.Errorf("%s: %w", row.Name, err)
		}
		k.report.Engine = append(k.report.Engine, c)
		k.add(engineChecks(c)...)
	}
	for _, mode := range modes {
		k.config.Tell("stopping the world", len(rows), len(rows))
		r, err := uringbench.StopTheWorld(ctx, path, mode, stopTime)
		if err != nil {
			return err
		}
		ms := float64(r.Worst) / 1e6
		k.add(Check{Section: SectionEngine, What: fmt.Sprintf("%s, stopping the world amid cache hits, worst of %d", mode, r.Stops),
			Figure: FigureValue, Unit: "ms", Measured: &bench.Spread{Median: ms, Min: ms, Max: ms}, AtMost: 20, Verdict: verdict(ms, 0, 20)})
	}
	if k.config.Dir == "" {
		return os.Remove(path)
	}
	return nil
}

// engineRounds bounds the rounds of each of the engine's many rows.
const engineRounds = 3

func engineChecks(c uringbench.Comparison) []Check {
	checks := []Check{{Section: SectionEngine, What: fmt.Sprintf("%s, to fio %s", c.Row.Name, c.Row.FioEngine), Figure: FigureRatio,
		Measured: &bench.Spread{Median: c.Throughput, Min: c.Spread[0], Max: c.Spread[1]}, AtLeast: c.Row.MinThroughput, Verdict: verdict(c.Throughput, c.Row.MinThroughput, 0)}}
	if c.Row.MaxCPU > 0 {
		checks = append(checks, Check{Section: SectionEngine, What: fmt.Sprintf("%s, CPU time to that of fio %s", c.Row.Name, c.Row.FioEngine), Figure: FigureRatio,
			Measured: &bench.Spread{Median: c.CPU, Min: c.CPU, Max: c.CPU}, AtMost: c.Row.MaxCPU, Verdict: verdict(c.CPU, 0, c.Row.MaxCPU)})
	}
	return checks
}

func notChecked(s Section, what, why string) Check {
	return Check{Section: s, What: what, Figure: FigureRatio, Verdict: VerdictNotMeasured, Why: why}
}

func (k *check) add(c ...Check) { k.report.Checks = append(k.report.Checks, c...) }

// standard are the datasets that are made, 0.7 GB each, except the games: they have 3 GB decoded,
// which does not fit into memory, because real ones never do.
var standard = []struct {
	section Section
	shape   synthetic.Shape
	records uint64
}{
	{SectionTar, synthetic.Shape{Format: "tar", RecordBytes: 12500}, 56_000},
	{SectionJSONL, synthetic.Shape{Format: "jsonl", RecordBytes: 1200}, 600_000},
	{SectionZstd, synthetic.Shape{Format: "jsonl", RecordBytes: 1200, Codec: "zst"}, 600_000},
	{SectionGzip, synthetic.Shape{Format: "jsonl", RecordBytes: 1200, Codec: "gz"}, 600_000},
	{SectionNpy, synthetic.Shape{Format: "npy", RecordBytes: 4096}, 170_000},
	{SectionLc0, synthetic.Shape{Format: "lc0", RecordBytes: synthetic.FrameBytes, Codec: "gz"}, 360_000},
	{SectionFiles, synthetic.Shape{Format: "files", RecordBytes: 12 << 10}, 56_000},
}

// datasets checks the named dataset, or those that are made.
func (k *check) datasets(ctx context.Context) error {
	if k.config.Spec.Dataset != "" {
		return k.named(ctx)
	}
	for _, d := range standard {
		if !k.config.wants(d.section) {
			continue
		}
		path := filepath.Join(k.dir, fmt.Sprintf("%s-%d", d.section, d.records))
		if err := k.make(ctx, Make{Dir: path, Shape: d.shape, Records: d.records}); err != nil {
			return err
		}
		if err := k.dataset(ctx, path, d.section); err != nil {
			return err
		}
		if k.config.Dir == "" {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// make makes a standard dataset unless it exists.
func (k *check) make(ctx context.Context, m Make) error {
	index := filepath.Join(m.Dir, ".lsiofs") // otherwise its index would stay in the user's cache
	if _, err := os.Stat(index); err == nil {
		return nil
	}
	m.Progress = func(bytes, total int64) {
		k.config.Tell("making "+filepath.Base(m.Dir), int(bytes>>20), int(total>>20))
	}
	if _, err := m.Run(ctx); err != nil {
		return err
	}
	return os.Mkdir(index, 0o755)
}

// named checks the dataset named by the user.
func (k *check) named(ctx context.Context) error {
	open, err := k.program.Open(ctx, k.config.Spec)
	if err != nil {
		return err
	}
	d := bench.Describe(open)
	if err := open.Close(); err != nil {
		return err
	}
	section := sectionOf(d)
	if section == "" {
		k.add(notChecked("", d.Path, fmt.Sprintf("nothing is promised of %s%s with records of %.0f bytes: what is is of tar and files of 12 KiB, of npy rows of 4 KiB, of JSONL of 1.2 KiB, also .zst and .gz, and of lc0's games",
			d.Format, strings.TrimSuffix("."+d.Compression, "."), d.RecordBytes)))
		return nil
	}
	if !k.config.wants(section) {
		return nil
	}
	return k.dataset(ctx, d.Path, section)
}

// dataset measures the rows that a section's promises need.
func (k *check) dataset(ctx context.Context, path string, section Section) error {
	c := k.config.Config
	c.Spec.Dataset = path
	if section == SectionFiles && c.Spec.Format.Name != "files" { // this format is never detected
		c.Spec.Format.Name = "files"
		c.Flags = append(slices.Clone(c.Flags), "--format=files")
	}
	c.Rows = rowsOf(k.config.Promises, section)
	if len(c.Rows) == 0 {
		return nil
	}
	r, err := bench.Run(ctx, k.program, c)
	if err != nil {
		return err
	}
	k.report.Reports = append(k.report.Reports, r)
	for _, p := range k.config.Promises {
		if p.Section == section {
			k.add(p.judge(r.Rows))
		}
	}
	return nil
}

// Print writes the report for people.
func (r CheckReport) Print(out io.Writer) error {
	var b strings.Builder
	r.Machine.Print(&b)
	for _, one := range r.Reports {
		b.WriteString("\n")
		one.Dataset.Print(&b)
		one.Table(&b)
	}
	b.WriteString("\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "promise\tmeasured\t\twanted\t\n")
	for _, c := range r.Checks {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", c.What, bench.MedianText(c.Measured, "%.4g"), c.Measured.Ends("%.4g"), c.wanted(), c.outcome())
	}
	_ = w.Flush() // writing to memory does not fail
	_, err := io.WriteString(out, b.String())
	return err
}

func (c Check) wanted() string {
	unit := string(c.Figure)
	if c.Figure == FigureValue {
		unit = c.Unit
	}
	switch {
	case c.AtLeast != 0:
		return fmt.Sprintf("≥ %g %s", c.AtLeast, unit)
	case c.AtMost != 0:
		return fmt.Sprintf("≤ %g %s", c.AtMost, unit)
	}
	return ""
}

func (c Check) outcome() string {
	if c.Why != "" {
		return c.Verdict + ": " + c.Why
	}
	return c.Verdict
}

// Validate reports all problems.
func (c *CheckConfig) Validate() error {
	errs := []error{c.Config.Validate()}
	for _, s := range c.Only {
		if !slices.Contains(Sections, s) {
			errs = append(errs, fmt.Errorf("unknown section %q: use some of %v", s, Sections))
		}
	}
	return errors.Join(errs...)
}

const (
	gzipRounds = 5
	gzipTime   = 100 * time.Millisecond // per decoder and round
)

// gzipAlone checks how fast gzip members are decoded, without a dataset, compared with the library
// that most Go programs use.
func (k *check) gzipAlone(ctx context.Context) error {
	if !k.config.wants(SectionGzip) || k.config.Spec.Dataset != "" {
		return nil
	}
	rows := inflatebench.Rows()
	for i, row := range rows {
		k.config.Tell("gzip decoding alone, "+row.Name, i, len(rows))
		c, err := inflatebench.Compare(ctx, row, max(gzipRounds, k.config.Rounds), gzipTime)
		if err != nil {
			return err
		}
		k.add(Check{Section: SectionGzip, What: "gzip decoding alone, " + row.Name + ", to klauspost/compress", Figure: FigureRatio,
			Measured: &bench.Spread{Median: c.Ratio, Min: c.Least, Max: c.Most}, AtLeast: row.AtLeast, Verdict: verdict(c.Ratio, row.AtLeast, 0)})
	}
	return nil
}
