package main

import (
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
