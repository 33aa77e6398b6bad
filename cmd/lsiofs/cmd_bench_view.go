package main

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/schollz/progressbar/v3"
)

// makingView shows how much of a dataset has been made: a bar on a terminal, a
// line now and then elsewhere. It is not for concurrent use.
type makingView struct {
	ui    *ui
	bar   *progressbar.ProgressBar
	begin time.Time
	next  time.Duration // when the next line is due
}

func newMakingView(u *ui) *makingView {
	return &makingView{ui: u, begin: time.Now(), next: lineEvery}
}

func (v *makingView) show(bytes, total int64) {
	elapsed := time.Since(v.begin)
	switch {
	case v.ui.json:
	case v.ui.terminal:
		if v.bar == nil {
			v.bar = progressbar.NewOptions64(total,
				progressbar.OptionSetWriter(v.ui.err), progressbar.OptionSetDescription("making"),
				progressbar.OptionShowBytes(true), progressbar.OptionUseIECUnits(true), progressbar.OptionShowTotalBytes(true),
				progressbar.OptionSetWidth(20), progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish())
		}
		// It only fails when its writer does, and then there is no one to tell.
		_ = v.bar.Set64(min(bytes, total))
	case elapsed >= v.next:
		v.next = elapsed + lineEvery
		v.ui.notef("making: %s of about %s", bytesText(bytes), bytesText(total))
	}
}

func (v *makingView) clear() {
	if v.bar != nil {
		_ = v.bar.Clear()
	}
}

// benchView shows which row is being measured: a line that is redrawn on a
// terminal, elsewhere the log's. It is not for concurrent use.
type benchView struct {
	ui    *ui
	log   *slog.Logger
	shown bool
}

func newBenchView(g *globals) *benchView { return &benchView{ui: g.ui, log: g.log()} }

// show takes what is being done; total is 0 where nobody knows how long that takes.
func (v *benchView) show(text string, done, total int) {
	v.log.Debug("measuring", "row", text)
	if v.ui.json || !v.ui.terminal {
		return
	}
	v.shown = true
	if total > 0 {
		text = fmt.Sprintf("%d %% %s", 100*done/total, text)
	}
	fmt.Fprintf(v.ui.err, "\r\x1b[K%s", text)
}

func (v *benchView) clear() {
	if v.shown {
		fmt.Fprint(v.ui.err, "\r\x1b[K")
		v.shown = false
	}
}
