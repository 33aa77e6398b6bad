package bench

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
)

// rowView shows which row is being measured: a line that is redrawn on a terminal, otherwise a line
// every few seconds. It is not safe for concurrent use.
type rowView struct {
	ui    *terminal.UI
	log   *slog.Logger
	line  *terminal.StatusLine
	begin time.Time
	pace  terminal.Pace
}

func newRowView(u *terminal.UI, log *slog.Logger) *rowView {
	return &rowView{ui: u, log: log, line: u.NewStatusLine(), begin: time.Now(), pace: terminal.NewPace()}
}

// show shows what is being done. total is 0 if it is not known how long that takes.
func (v *rowView) show(text string, done, total int) {
	v.log.Debug("measuring", "row", text)
	if total > 0 {
		text = fmt.Sprintf("%d %% %s", 100*done/total, text)
	}
	switch {
	case v.ui.JSON:
	case v.ui.Terminal:
		v.line.Show(text)
	case v.pace.Due(time.Since(v.begin)):
		v.ui.Notef("measuring: %s", text)
	}
}

func (v *rowView) clear() { v.line.Clear() }

// makingView shows how much of a dataset has been made: a bar on a terminal, otherwise a line every
// few seconds. It is not safe for concurrent use.
type makingView struct {
	ui    *terminal.UI
	bar   *terminal.Bar
	begin time.Time
	pace  terminal.Pace
}

func newMakingView(u *terminal.UI) *makingView {
	return &makingView{ui: u, bar: u.NewBytesBar(0), begin: time.Now(), pace: terminal.NewPace()}
}

func (v *makingView) show(bytes, total int64) {
	switch {
	case v.ui.JSON:
	case v.ui.Terminal:
		v.bar.Draw("making", min(bytes, total), total)
	case v.pace.Due(time.Since(v.begin)):
		v.ui.Notef("making: %s of about %s", terminal.Bytes(bytes), terminal.Bytes(total))
	}
}

func (v *makingView) clear() { v.bar.Clear() }
