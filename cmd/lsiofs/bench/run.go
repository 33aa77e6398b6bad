package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Config is the configuration for measuring one dataset.
type Config struct {
	Spec spec.Spec // includes the dataset
	// Flags give a mount the same spec.
	Flags []string
	// Rounds is the maximum number of measurements of each row. Total is about how long they may
	// take together.
	Rounds int
	Total  time.Duration
	// Rows are the IDs of the rows that are measured; empty for all.
	Rows []string
	// Progress, if set, is called with what is being done.
	Progress func(text string, done, total int)
}

// Validate reports all problems.
func (c *Config) Validate() error {
	var errs []error
	if c.Rounds < 1 || c.Rounds > 100 {
		errs = append(errs, fmt.Errorf("--rounds (%d) must be between 1 and 100", c.Rounds))
	}
	if c.Total < time.Second || c.Total > 24*time.Hour {
		errs = append(errs, fmt.Errorf("--seconds (%v) must be between 1 and 86400", c.Total.Seconds()))
	}
	return errors.Join(errs...)
}

// Tell calls Progress, if it is set.
func (c *Config) Tell(text string, done, total int) {
	if c.Progress != nil {
		c.Progress(text, done, total)
	}
}

// Report is the result of measuring a dataset.
type Report struct {
	Machine Machine     `json:"machine"`
	Dataset DatasetInfo `json:"dataset"`
	Rounds  int         `json:"rounds"` // that were completed
	Rows    []Row       `json:"rows"`
	Notes   []string    `json:"notes,omitempty"`
}

// DatasetInfo is the shape of the dataset.
type DatasetInfo struct {
	Path        string `json:"path"`
	Format      string `json:"format"`
	Compression string `json:"compression,omitempty"`
	Shards      int    `json:"shards"`
	opening.Selection
	FileBytes     int64   `json:"file_bytes"`
	Records       uint64  `json:"records"`
	RecordBytes   float64 `json:"record_bytes"` // mean
	StreamBytes   int64   `json:"stream_bytes"`
	MeasuredBytes int64   `json:"measured_bytes"` // less if it does not fit into the page cache
	Shuffle       string  `json:"shuffle"`
	ShuffleSize   uint64  `json:"shuffle_size"`
	Lanes         uint64  `json:"lanes"`
	MemoryBudget  int64   `json:"memory_budget_bytes"`
}

// Run measures a dataset. When ctx ends, it unmounts and removes everything and returns ctx's
// error.
func Run(ctx context.Context, p Program, c Config) (report Report, err error) {
	if err := c.Validate(); err != nil {
		return Report{}, err
	}
	s, err := newSession(ctx, p, c)
	if err != nil {
		return Report{}, err
	}
	defer func() {
		err = errors.Join(err, s.Close())
		if ctx.Err() != nil {
			err = ctx.Err()
		}
	}()
	return s.run(ctx)
}

func (s *Session) run(ctx context.Context) (Report, error) {
	rows := s.Rows()
	s.Slot = s.Config.Total / time.Duration(len(rows)*(s.Config.Rounds+1))
	rounds, err := s.rounds(ctx, rows)
	if err != nil {
		return Report{}, err
	}
	r := Report{Machine: ThisMachine(s.Scope.Shards[0], s.Program.Version), Dataset: Describe(s.dataset), Rounds: rounds}
	r.Dataset.MeasuredBytes = s.Scope.bytes
	r.Rows = Results(rows, s.Scope.recordBytes)
	return r, nil
}

// Results returns the report's lines about rows that were measured.
func Results(rows []*Measurement, recordBytes float64) []Row {
	byID := map[string]*Measurement{}
	for _, row := range rows {
		byID[row.ID] = row
	}
	var lines []Row
	for _, row := range rows {
		size := recordBytes
		if row.NoRecords {
			size = 0
		}
		lines = append(lines, row.finish(size, byID[row.Against]))
	}
	return lines
}

// rounds measures every row once to warm up, and then in rounds. It returns the number of rounds
// that count.
func (s *Session) rounds(ctx context.Context, rows []*Measurement) (int, error) {
	r := Rounds{Most: s.Config.Rounds, WarmUp: true, Total: s.Config.Total, Progress: s.Config.Tell, begin: func(warming bool) error {
		s.warming = warming
		return s.warm(ctx)
	}}
	return r.Run(ctx, rows)
}

// Rounds configures how rows are measured, one round after another.
type Rounds struct {
	Most     int
	WarmUp   bool // an additional first round does not count
	Total    time.Duration
	Progress func(text string, done, total int)
	begin    func(warming bool) error // called before each round, unless nil
}

// Run measures until the rounds are done or the time is over.
func (o Rounds) Run(ctx context.Context, rows []*Measurement) (int, error) {
	began, all, counted := time.Now(), o.Most, 0
	if o.WarmUp {
		all++
	}
	for round := range all {
		warming := o.WarmUp && round == 0
		if o.begin != nil {
			if err := o.begin(warming); err != nil {
				return 0, err
			}
		}
		for i, r := range rows {
			if r.missing != "" {
				continue
			}
			o.Progress(r.Name, round*len(rows)+i, all*len(rows))
			m, err := r.Measure(ctx)
			switch {
			case errors.Is(err, ErrNotMeasured):
				r.missing, r.readings = err.Error(), nil
			case err != nil:
				return 0, fmt.Errorf("%s: %w", r.Name, err)
			case !warming:
				r.readings = append(r.readings, m)
			}
		}
		if !warming {
			counted++
		}
		if spent := time.Since(began); !warming && spent+spent/time.Duration(round+1) > o.Total*5/4 {
			break // another round would take too long
		}
	}
	return counted, nil
}

// Describe returns the properties of a dataset.
func Describe(d *pipeline.Dataset) DatasetInfo {
	sp, c := d.Spec(), d.Catalog()
	i := DatasetInfo{
		Path: sp.Dataset, Format: sp.Format.Name, Shards: c.Shards(), Selection: opening.SelectionOf(c.Selection()), Records: d.Records(), StreamBytes: d.StreamBytes(),
		Shuffle: string(sp.Order.Shuffle), ShuffleSize: sp.Order.SizeRecords, Lanes: sp.Order.Lanes, MemoryBudget: sp.MemoryBytes,
	}
	i.RecordBytes = float64(i.StreamBytes) / float64(i.Records)
	for n := range c.Shards() {
		shard := c.Shard(n)
		i.FileBytes += shard.Object.SizeBytes
		if shard.Codec != nil {
			i.Compression = shard.Codec.Name()
		}
	}
	return i
}
