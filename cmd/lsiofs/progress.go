package main

import (
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/schollz/progressbar/v3"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
)

// lineEvery is how often progress is told where nothing can be redrawn: often
// enough to see that it moves, seldom enough for a log.
const lineEvery = 5 * time.Second

// progressView shows a pass over the shards: a bar on a terminal, a line now and then
// elsewhere. Its clock is the progress' own. It is not for concurrent use, as
// the catalog calls from one goroutine.
type progressView struct {
	ui *ui
	// verb says what is being done. What indexing has done is said at its end.
	verb string
	bar  *progressbar.ProgressBar
	next time.Duration // when the next line is due
	done bool
}

const indexing = "indexing"

func newProgressView(u *ui) *progressView {
	return &progressView{ui: u, verb: indexing, next: lineEvery}
}

// show takes the next state of the pass.
func (v *progressView) show(p catalog.Progress) {
	switch {
	case v.done:
	case p.Done:
		v.finish(p)
	case v.ui.json:
		if v.due(p) {
			v.ui.mu.Lock()
			defer v.ui.mu.Unlock()
			writeJSON(v.ui.err, map[string]progressLine{"progress": lineOf(p)})
		}
	case v.ui.terminal:
		v.redraw(p)
	case v.due(p):
		v.ui.notef("%s: %s", v.verb, lineOf(p))
	}
}

func (v *progressView) due(p catalog.Progress) bool {
	if p.Elapsed < v.next {
		return false
	}
	v.next = p.Elapsed + lineEvery
	return true
}

func (v *progressView) redraw(p catalog.Progress) {
	if p.BytesTotal == 0 {
		return
	}
	v.ui.mu.Lock()
	defer v.ui.mu.Unlock()
	if v.bar == nil {
		v.bar = progressbar.NewOptions64(p.BytesTotal,
			progressbar.OptionSetWriter(v.ui.err),
			progressbar.OptionShowBytes(true), progressbar.OptionUseIECUnits(true), progressbar.OptionShowTotalBytes(true),
			progressbar.OptionSetWidth(20), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish())
	}
	v.bar.ChangeMax64(p.BytesTotal)
	v.bar.Describe(fmt.Sprintf("%s %d/%d shards, %s", v.verb, p.Shards, p.ShardsTotal, plural(p.Records, "record")))
	// It only fails when its writer does, and then there is no one to tell.
	_ = v.bar.Set64(min(p.Bytes, p.BytesTotal))
}

// finish clears the bar and says what was done, if anything was.
func (v *progressView) finish(p catalog.Progress) {
	v.done = true
	v.clear()
	if v.verb == indexing && p.Reused < p.ShardsTotal {
		v.ui.notef("indexed %s in %s (%d reused): %s", plural(uint64(p.ShardsTotal-p.Reused), "shard"),
			roundDuration(p.Elapsed), p.Reused, plural(p.Records, "record"))
	}
}

// clear takes the bar off the screen, also when the pass has failed.
func (v *progressView) clear() {
	if v.bar != nil {
		v.ui.mu.Lock()
		_ = v.bar.Clear()
		v.ui.mu.Unlock()
		v.bar = nil
	}
}

// progressLine is a state of the pass with what follows from it.
type progressLine struct {
	Shards         int     `json:"shards"`
	ShardsTotal    int     `json:"shards_total"`
	Bytes          int64   `json:"bytes"`
	BytesTotal     int64   `json:"bytes_total"`
	Records        uint64  `json:"records"`
	BytesPerSecond float64 `json:"bytes_per_second"`
	LeftSeconds    float64 `json:"left_seconds"` // 0 while nothing is known
}

func lineOf(p catalog.Progress) progressLine {
	l := progressLine{Shards: p.Shards, ShardsTotal: p.ShardsTotal, Bytes: p.Bytes, BytesTotal: p.BytesTotal, Records: p.Records}
	if s := p.Elapsed.Seconds(); s > 0 {
		l.BytesPerSecond = float64(p.Bytes) / s
	}
	if l.BytesPerSecond > 0 {
		l.LeftSeconds = float64(max(p.BytesTotal-p.Bytes, 0)) / l.BytesPerSecond
	}
	return l
}

func (l progressLine) String() string {
	percent := 100.0
	if l.BytesTotal > 0 {
		percent = 100 * float64(l.Bytes) / float64(l.BytesTotal)
	}
	left := "?"
	if l.BytesPerSecond > 0 {
		left = roundDuration(time.Duration(l.LeftSeconds * float64(time.Second))).String()
	}
	return fmt.Sprintf("%d of %d shards, %s of %s (%.0f %%), %s, %s/s, %s left", l.Shards, l.ShardsTotal,
		humanize.IBytes(uint64(l.Bytes)), humanize.IBytes(uint64(l.BytesTotal)), percent,
		plural(l.Records, "record"), humanize.IBytes(uint64(l.BytesPerSecond)), left)
}

// roundDuration leaves what a person wants to read.
func roundDuration(d time.Duration) time.Duration {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond)
	case d < time.Minute:
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}
