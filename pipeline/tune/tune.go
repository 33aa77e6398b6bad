// Package tune measures which reads a storage is fast at. It measures the throughput of random
// reads for each size and number in flight. It reads real data, bypassing the page cache, through
// package uring like the rest of lsiofs. The result is a storage.Profile.
//
//	PATH ──► data (its files, or a temporary one) ──► meter ──► cells ──► Derive
//
// Cells are measured in rounds, each in another order, and the median counts. So other load on the
// machine affects all of them alike.
package tune

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
)

// Config configures a measurement.
type Config struct {
	// Path is a directory or a file on the storage.
	Path string
	// Duration is about how long it takes, not including the writing of a temporary file. It takes
	// longer if the storage's reads are very slow.
	Duration time.Duration
	// ReadBytes and Depths are the axes of the table. Reads are multiples of 4 KiB.
	ReadBytes []int64
	Depths    []int
	// Files below Path are measured if they contain MinDataBytes, and at most DataBytes of them are
	// read; otherwise a temporary file of TempBytes is used.
	MinDataBytes, DataBytes, TempBytes int64
	// Progress is called often with the progress made, from one goroutine. It may be
	// nil.
	Progress func(Progress)
}

// Progress is the progress of a measurement.
type Progress struct {
	Stage string  `json:"stage"` // "writing", "warming up", "measuring"
	Done  float64 `json:"done"`  // of the stage, 0 … 1
}

// Default returns a Config that measures 62 cells in a minute: three rounds of a quarter of a
// second each.
func Default(path string) Config {
	return Config{
		Path: path, Duration: time.Minute,
		ReadBytes:    []int64{4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20},
		Depths:       []int{1, 2, 4, 8, 16, 32, 64, 128},
		MinDataBytes: 256 << 20, DataBytes: 1 << 30, TempBytes: 1 << 30,
	}
}

func (c *Config) validate() error {
	if c.Duration <= 0 {
		return fmt.Errorf("duration (%v) must be above 0", c.Duration)
	}
	if len(c.ReadBytes) == 0 || len(c.Depths) == 0 {
		return errors.New("there is nothing to measure: no sizes of reads, or no depths")
	}
	for _, n := range c.ReadBytes {
		if n < storage.MinReadBytes || n%blockBytes != 0 || n > inFlightBytes {
			return fmt.Errorf("reads of %d bytes: must be a multiple of %d, from %d to %d", n, blockBytes, storage.MinReadBytes, inFlightBytes)
		}
	}
	for _, d := range c.Depths {
		if d < 1 || d > storage.MaxDepth {
			return fmt.Errorf("depth (%d) must be between 1 and %d", d, storage.MaxDepth)
		}
	}
	if least := max(2*c.largestRead(), warmBytes); c.TempBytes < least {
		return fmt.Errorf("temporary file (%d bytes) must be at least %d", c.TempBytes, least)
	}
	return nil
}

func (c *Config) largestRead() int64 { return slices.Max(c.ReadBytes) }

const (
	rounds = 3
	// warmShare is the fraction of the time (1/warmShare) that the warm-up may take.
	warmShare = 6
	// warmBytes is the least number of bytes that are warmed up and measured.
	warmBytes = 8 << 20
)

// Result is the outcome of Run.
type Result struct {
	Profile storage.Profile          `json:"profile"`
	Place   filesystem.Place         `json:"place"`
	Reasons []string                 `json:"reasons"`
	Cells   []filesystem.Measurement `json:"measured"`
	// Costs are the basis for the gap, together with the speed of copying.
	Costs              []Cost  `json:"costs"`
	CopyBytesPerSecond float64 `json:"copy_bytes_per_second"`
	Data               string  `json:"data"`   // description of the data that was read
	Engine             string  `json:"engine"` // the engine that read it
	// Direct is false if the file system does not support direct reads. Then the page cache was
	// emptied before each cell, and its readahead took part.
	Direct  bool    `json:"direct"`
	Rounds  int     `json:"rounds"`
	Seconds float64 `json:"seconds"`
}

// Run measures a storage. Whatever it creates in Path is removed when it returns, or when the
// process ends.
func Run(ctx context.Context, c Config) (r Result, err error) {
	if err := c.validate(); err != nil {
		return r, fmt.Errorf("tune: %w", err)
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	if r.Place, err = filesystem.Look(c.Path); err != nil {
		return r, err
	}
	d, err := openData(ctx, &c, r.Place.Kind, func(done, total int64) {
		c.Progress(Progress{"writing", float64(done) / float64(total)})
	})
	if err != nil {
		return r, fmt.Errorf("tune: %w", err)
	}
	defer func() { err = errors.Join(err, d.close()) }()
	m, err := newMeter(d)
	if err != nil {
		return r, fmt.Errorf("tune: %w", err)
	}
	defer func() { err = errors.Join(err, m.close()) }()
	if err := r.measure(ctx, &c, m); err != nil {
		return r, fmt.Errorf("tune %s: %w", c.Path, err)
	}
	return r, r.derive()
}

func (r *Result) measure(ctx context.Context, c *Config, m *meter) error {
	began := time.Now()
	warm := c.Duration / warmShare
	m.seeks = r.Place.Kind == storage.KindDisk
	err := m.warmUp(ctx, warm, max(warmBytes, 2*c.largestRead()), func(done int64) {
		c.Progress(Progress{"warming up", min(1, max(float64(done)/float64(m.data.bytes), float64(time.Since(began))/float64(warm)))})
	})
	if err != nil {
		return err
	}
	status := m.engine.Status()
	r.Engine, r.Direct = status.Engine, status.DirectReads > 0
	m.cold = !r.Direct && r.Place.Kind != storage.KindMemory
	r.Data = fmt.Sprintf("%s, of which %s were warmed up and read", m.data.about, size(m.data.bytes))
	t := newTimetable(c, c.Duration-time.Since(began))
	var copies []float64
	for ; r.Rounds < rounds && !t.late(); r.Rounds++ {
		copies = append(copies, m.copyRate())
		if err := t.round(ctx, m, r.Rounds, c.Progress); err != nil {
			return err
		}
	}
	r.Cells, r.CopyBytesPerSecond, r.Seconds = t.medians(), median(copies), time.Since(began).Seconds()
	return nil
}

func (r *Result) derive() error {
	defaults := storage.DefaultProfile(r.Place.Kind)
	d, err := Derive(r.Cells, r.CopyBytesPerSecond, defaults)
	if err != nil {
		return fmt.Errorf("tune: %w", err)
	}
	r.Reasons, r.Costs = d.Reasons, d.Costs
	r.Profile = defaults
	r.Profile.GapBytes, r.Profile.ReadBytes = d.GapBytes, d.ReadBytes
	r.Profile.Depth, r.Profile.InFlightBytes = d.Depth, d.InFlightBytes
	r.Profile.Tuned = time.Now().UTC().Truncate(time.Second)
	return r.Profile.Validate()
}

// timetable is which cells are measured, how long, and the results.
type timetable struct {
	cells  []filesystem.Measurement
	rates  [][]float64 // of each cell, one per round
	each   time.Duration
	latest time.Time
}

// newTimetable plans all cells that fit into the engine's bytes in flight.
func newTimetable(c *Config, left time.Duration) *timetable {
	t := &timetable{}
	for _, size := range c.ReadBytes {
		for _, depth := range c.Depths {
			if size*int64(depth) <= inFlightBytes {
				t.cells = append(t.cells, filesystem.Measurement{ReadBytes: size, Depth: depth})
			}
		}
	}
	t.rates = make([][]float64, len(t.cells))
	t.each = max(left/time.Duration(rounds*len(t.cells)), time.Millisecond)
	t.latest = time.Now().Add(left)
	return t
}

// late reports whether another round would take too long. The first is never late.
func (t *timetable) late() bool { return len(t.rates[0]) > 0 && time.Now().After(t.latest) }

// round measures all cells once, in a random order.
func (t *timetable) round(ctx context.Context, m *meter, round int, progress func(Progress)) error {
	for i, k := range rand.New(rand.NewPCG(uint64(round), 3)).Perm(len(t.cells)) {
		progress(Progress{"measuring", (float64(round) + float64(i)/float64(len(t.cells))) / rounds})
		v, err := m.cell(ctx, t.cells[k].ReadBytes, t.cells[k].Depth, t.each)
		if err != nil {
			return err
		}
		t.rates[k] = append(t.rates[k], v)
	}
	return nil
}

func (t *timetable) medians() []filesystem.Measurement {
	for i, rates := range t.rates {
		t.cells[i].BytesPerSecond = median(rates)
	}
	return t.cells
}

func median(rates []float64) float64 {
	slices.Sort(rates)
	return (rates[(len(rates)-1)/2] + rates[len(rates)/2]) / 2
}
