package terminal

import (
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"
)

// lineEvery is the interval of progress lines if nothing can be redrawn: short enough to show that
// work advances, long enough for a log.
const lineEvery = 5 * time.Second

// Pace determines when the next line about a long task is due. Its clock is the task's own: the
// time since its start.
type Pace struct{ next time.Duration }

// NewPace returns the pace of a task that begins now. No line is due immediately.
func NewPace() Pace { return Pace{lineEvery} }

// Due reports whether a line is due. If so, the next one is due lineEvery later.
func (p *Pace) Due(elapsed time.Duration) bool {
	if elapsed < p.next {
		return false
	}
	p.next = elapsed + lineEvery
	return true
}

// Bar is a bar on a terminal's stderr that is redrawn in place. It is not safe for concurrent use.
// Lines that the ui writes meanwhile stay intact before or after it.
type Bar struct {
	ui  *UI
	bar *progressbar.ProgressBar // nil while nothing is shown
	// options are used to create the bar when it is first drawn.
	options []progressbar.Option
}

const barWidth = 20 // columns

// NewBytesBar returns a bar for bytes, with their rate and the remaining time. It is redrawn at
// most once per every; 0 means at each call of Draw.
func (u *UI) NewBytesBar(every time.Duration) *Bar {
	return &Bar{ui: u, options: []progressbar.Option{
		progressbar.OptionSetWriter(u.Err),
		progressbar.OptionShowBytes(true), progressbar.OptionUseIECUnits(true), progressbar.OptionShowTotalBytes(true),
		progressbar.OptionSetWidth(barWidth), progressbar.OptionThrottle(every),
		progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish(),
	}}
}

// NewShareBar returns a bar without a unit.
func (u *UI) NewShareBar() *Bar {
	return &Bar{ui: u, options: []progressbar.Option{
		progressbar.OptionSetWriter(u.Err), progressbar.OptionSetWidth(barWidth),
		progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish(),
	}}
}

// RedrawEvery is the redraw interval of a bar that is updated at every step.
const RedrawEvery = 100 * time.Millisecond

// Draw shows the bar at done of total, preceded by text.
func (b *Bar) Draw(text string, done, total int64) {
	b.ui.mu.Lock()
	defer b.ui.mu.Unlock()
	if b.bar == nil {
		b.bar = progressbar.NewOptions64(total, b.options...)
	}
	if b.bar.GetMax64() != total {
		b.bar.ChangeMax64(total)
	}
	b.bar.Describe(text)
	// It fails only if its writer does, and then the error can't be shown either.
	_ = b.bar.Set64(done)
	b.ui.drawn = b.ui.Terminal
}

// Clear removes the bar from the screen.
func (b *Bar) Clear() {
	if b.bar == nil {
		return
	}
	b.ui.mu.Lock()
	defer b.ui.mu.Unlock()
	_ = b.bar.Clear()
	b.bar, b.ui.drawn = nil, false
}

// StatusLine is a line on a terminal's stderr that is overwritten. It is not safe for concurrent
// use.
type StatusLine struct {
	ui    *UI
	shown bool
}

// NewStatusLine returns a line that shows nothing yet.
func (u *UI) NewStatusLine() *StatusLine { return &StatusLine{ui: u} }

// Show replaces the text of the line.
func (l *StatusLine) Show(text string) {
	l.ui.mu.Lock()
	defer l.ui.mu.Unlock()
	l.shown, l.ui.drawn = true, l.ui.Terminal
	fmt.Fprintf(l.ui.Err, "\r\x1b[K%s", text)
}

// Clear removes the line from the screen.
func (l *StatusLine) Clear() {
	if !l.shown {
		return
	}
	l.ui.mu.Lock()
	defer l.ui.mu.Unlock()
	fmt.Fprint(l.ui.Err, "\r\x1b[K")
	l.shown, l.ui.drawn = false, false
}
