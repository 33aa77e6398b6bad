package main

import (
	"fmt"
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
// terminal, nothing elsewhere. It is not for concurrent use.
type benchView struct {
	ui    *ui
	shown bool
}

func newBenchView(u *ui) *benchView { return &benchView{ui: u} }

func (v *benchView) show(text string, done, total int) {
	if v.ui.json || !v.ui.terminal {
		return
	}
	v.shown = true
	fmt.Fprintf(v.ui.err, "\r\x1b[Kmeasuring %d of %d: %s", done+1, total, text)
}

func (v *benchView) clear() {
	if v.shown {
		fmt.Fprint(v.ui.err, "\r\x1b[K")
		v.shown = false
	}
}
