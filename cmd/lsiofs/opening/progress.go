package opening

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/growing/snapshot"
)

// Pass shows a pass over the shards: a bar on a terminal, otherwise a line every few seconds. Its
// clock is the progress's own. It is not safe for concurrent use: the catalog calls it from one
// goroutine.
type Pass struct {
	ui *terminal.UI
	// Verb describes the pass. Only an index pass prints a summary at its end.
	Verb string
	bar  *terminal.Bar
	pace terminal.Pace
	done bool
}

// Indexing is the verb of an index pass.
const Indexing = "indexing"

// NewPass returns a view of an index pass. Verb may be changed before the pass begins.
func NewPass(u *terminal.UI) *Pass {
	return &Pass{ui: u, Verb: Indexing, bar: u.NewBytesBar(terminal.RedrawEvery), pace: terminal.NewPace()}
}

// Show shows the next state of the pass.
func (v *Pass) Show(p catalog.Progress) {
	switch {
	case v.done:
	case p.Done:
		v.finish(p)
	case v.ui.JSON:
		if v.pace.Due(p.Elapsed) {
			v.ui.WriteProgress(LineOf(p))
		}
	case v.ui.Terminal:
		v.redraw(p)
	case v.pace.Due(p.Elapsed):
		v.ui.Notef("%s: %s", v.Verb, LineOf(p))
	}
}

func (v *Pass) redraw(p catalog.Progress) {
	if p.BytesTotal == 0 {
		return
	}
	v.bar.Draw(fmt.Sprintf("%s %d/%d shards, %s", v.Verb, p.Shards, p.ShardsTotal, terminal.Plural(p.Records, "record")),
		min(p.Bytes, p.BytesTotal), p.BytesTotal)
}

// finish clears the bar and prints what was indexed, if anything.
func (v *Pass) finish(p catalog.Progress) {
	v.done = true
	v.Clear()
	if v.Verb == Indexing && p.Reused < p.ShardsTotal {
		v.ui.Notef("indexed %s in %s (%d reused): %s", terminal.Plural(uint64(p.ShardsTotal-p.Reused), "shard"),
			terminal.Round(p.Elapsed), p.Reused, terminal.Plural(p.Records, "record"))
	}
}

// Clear removes the bar from the screen. It is also called when the pass has failed.
func (v *Pass) Clear() { v.bar.Clear() }

// Line is a state of the pass with derived values.
type Line struct {
	Shards         int     `json:"shards"`
	ShardsTotal    int     `json:"shards_total"`
	Bytes          int64   `json:"bytes"`
	BytesTotal     int64   `json:"bytes_total"`
	Records        uint64  `json:"records"`
	BytesPerSecond float64 `json:"bytes_per_second"`
	LeftSeconds    float64 `json:"left_seconds"` // 0 while unknown
}

// LineOf converts a state of the pass to a line.
func LineOf(p catalog.Progress) Line {
	l := Line{Shards: p.Shards, ShardsTotal: p.ShardsTotal, Bytes: p.Bytes, BytesTotal: p.BytesTotal, Records: p.Records}
	if s := p.Elapsed.Seconds(); s > 0 {
		l.BytesPerSecond = float64(p.Bytes) / s
	}
	if l.BytesPerSecond > 0 {
		l.LeftSeconds = float64(max(p.BytesTotal-p.Bytes, 0)) / l.BytesPerSecond
	}
	return l
}

func (l Line) String() string {
	if l.ShardsTotal == 0 {
		return "listing the dataset"
	}
	percent := 100.0
	if l.BytesTotal > 0 {
		percent = 100 * float64(l.Bytes) / float64(l.BytesTotal)
	}
	left := "?"
	if l.BytesPerSecond > 0 {
		left = terminal.Round(time.Duration(l.LeftSeconds * float64(time.Second))).String()
	}
	return fmt.Sprintf("%d of %d shards, %s of %s (%.0f %%), %s, %s/s, %s left", l.Shards, l.ShardsTotal,
		humanize.IBytes(uint64(l.Bytes)), humanize.IBytes(uint64(l.BytesTotal)), percent,
		terminal.Plural(l.Records, "record"), humanize.IBytes(uint64(l.BytesPerSecond)), left)
}

// Filled is the progress of filling a cache.
type Filled struct {
	Bytes      int64         `json:"filled_bytes"` // in the cache or being fetched
	BytesTotal int64         `json:"filled_bytes_total"`
	Elapsed    time.Duration `json:"elapsed_nanos"`
	Done       bool          `json:"filled"`
}

// Fill fills a dataset's cache. It calls tell with the progress, from this goroutine.
func Fill(ctx context.Context, d *pipeline.Dataset, tell func(Filled)) error {
	return fill(tell, func(progress func(done, total int64)) error { return d.Warm(ctx, progress) })
}

// FillRecords is like Fill, but only fetches what an epoch reads for its records from … to-1.
func FillRecords(ctx context.Context, d *pipeline.Dataset, epoch, from, to uint64, tell func(Filled)) error {
	return fill(tell, func(progress func(done, total int64)) error { return d.WarmRecords(ctx, epoch, from, to, progress) })
}

func fill(tell func(Filled), warm func(progress func(done, total int64)) error) error {
	began := time.Now()
	var f Filled
	err := warm(func(done, total int64) {
		f = Filled{Bytes: done, BytesTotal: total, Elapsed: time.Since(began)}
		tell(f)
	})
	f.Done = true
	tell(f)
	if errors.Is(err, pipeline.ErrNoCache) {
		return exit.With(exit.Usage, err)
	}
	return err
}

// Filling shows the progress of filling a cache: a bar on a terminal, otherwise a line every few
// seconds. It is not safe for concurrent use.
type Filling struct {
	ui   *terminal.UI
	bar  *terminal.Bar
	pace terminal.Pace
}

// NewFilling returns a view that shows nothing yet.
func NewFilling(u *terminal.UI) *Filling {
	return &Filling{ui: u, bar: u.NewBytesBar(terminal.RedrawEvery), pace: terminal.NewPace()}
}

// Show shows the next state.
func (v *Filling) Show(f Filled) {
	switch {
	case f.Done:
		v.bar.Clear()
	case v.ui.JSON:
		if v.pace.Due(f.Elapsed) {
			v.ui.WriteProgress(f)
		}
	case v.ui.Terminal:
		v.bar.Draw("filling the cache", f.Bytes, f.BytesTotal)
	case v.pace.Due(f.Elapsed):
		v.ui.Notef("filling the cache: %s", f)
	}
}

// Clear removes the bar from the screen.
func (v *Filling) Clear() { v.bar.Clear() }

func (f Filled) String() string {
	percent := 100.0
	if f.BytesTotal > 0 {
		percent = 100 * float64(f.Bytes) / float64(f.BytesTotal)
	}
	return fmt.Sprintf("%s of %s (%.0f %%)", humanize.IBytes(uint64(f.Bytes)), humanize.IBytes(uint64(f.BytesTotal)), percent)
}

// Waited is what is reported while waiting for an epoch of a growing dataset.
type Waited struct {
	For      string `json:"waiting"` // why it can't start yet
	Shards   int    `json:"shards"`
	Indexing int    `json:"indexing"`
	Settling int    `json:"settling"`
	Waiting  int    `json:"waiting_shards"`
	// Why is the reason for the first of these.
	Why string `json:"waiting_why,omitempty"`
}

// WaitingFor returns the report for a dataset's status.
func WaitingFor(s snapshot.Status) Waited {
	w := Waited{For: cmp.Or(s.NextEpoch, "an epoch"), Shards: s.Shards, Indexing: s.Indexing, Settling: s.Settling, Waiting: s.WaitingShards}
	if len(s.Waiting) > 0 {
		w.Why = s.Waiting[0].Path + ": " + s.Waiting[0].Reason
	}
	return w
}

func (w Waited) String() string {
	parts := []string{w.For}
	for _, p := range []struct {
		n    int
		what string
	}{{w.Indexing, "to be indexed"}, {w.Settling, "that may still be being written"}, {w.Waiting, "not complete yet"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", terminal.Plural(uint64(p.n), "file"), p.what))
		}
	}
	if w.Why != "" {
		parts = append(parts, w.Why)
	}
	return strings.Join(parts, "; ")
}

// Waiting shows what is being waited for: one line that is overwritten on a terminal, otherwise a
// line every waitingEvery. It is not safe for concurrent use.
type Waiting struct {
	ui    *terminal.UI
	line  *terminal.StatusLine
	began time.Time
	next  time.Duration
	said  bool
}

// waitingEvery is the interval of lines that can't be overwritten, after the first.
const waitingEvery = 30 * time.Second

// NewWaiting returns a view that shows nothing yet.
func NewWaiting(u *terminal.UI) *Waiting {
	return &Waiting{ui: u, line: u.NewStatusLine(), began: time.Now()}
}

// Show shows the next state.
func (v *Waiting) Show(w Waited) {
	if v.ui.Terminal && !v.ui.JSON {
		v.line.Show("waiting: " + w.String())
		return
	}
	elapsed := time.Since(v.began)
	if v.said && elapsed < v.next {
		return
	}
	v.said, v.next = true, elapsed+waitingEvery
	if v.ui.JSON {
		v.ui.WriteProgress(w)
		return
	}
	v.ui.Notef("waiting: %s", w)
}

// Clear removes the line from the screen.
func (v *Waiting) Clear() { v.line.Clear() }
