package opening

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
)

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
