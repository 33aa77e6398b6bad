package opening

import (
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
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
