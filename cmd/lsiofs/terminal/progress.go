package terminal

import (
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"
)

// lineEvery is how often progress is told where nothing can be redrawn: often
// enough to see that it moves, seldom enough for a log.
const lineEvery = 5 * time.Second

// Pace says when the next line about a long work is due. Its clock is the work's
// own: the time since that began.
type Pace struct{ next time.Duration }

// NewPace is the pace of a work that begins now: no line is due at once.
func NewPace() Pace { return Pace{lineEvery} }

// Due says whether a line is to be written, which puts the next one off.
func (p *Pace) Due(elapsed time.Duration) bool {
	if elapsed < p.next {
		return false
	}
	p.next = elapsed + lineEvery
	return true
}

// Bar is a bar on a terminal's err that is redrawn in place. It is not for
// concurrent use; what the ui writes meanwhile comes before or after it, whole.
type Bar struct {
	ui  *UI
	bar *progressbar.ProgressBar // nil while nothing is shown
	// options are those of the bar, which is made when it is first drawn.
	options []progressbar.Option
}

const barWidth = 20 // columns

// NewBytesBar makes a bar of bytes, with their rate and the time that is left. It is
// drawn anew once every so often at most, 0 for whenever Draw is called.
func (u *UI) NewBytesBar(every time.Duration) *Bar {
	return &Bar{ui: u, options: []progressbar.Option{
		progressbar.OptionSetWriter(u.Err),
		progressbar.OptionShowBytes(true), progressbar.OptionUseIECUnits(true), progressbar.OptionShowTotalBytes(true),
		progressbar.OptionSetWidth(barWidth), progressbar.OptionThrottle(every),
		progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish(),
	}}
}

// NewShareBar makes a bar of something that has no unit.
func (u *UI) NewShareBar() *Bar {
	return &Bar{ui: u, options: []progressbar.Option{
		progressbar.OptionSetWriter(u.Err), progressbar.OptionSetWidth(barWidth),
		progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish(),
	}}
}

// RedrawEvery is how often a bar is drawn anew that is told of every step.
const RedrawEvery = 100 * time.Millisecond

// Draw shows the bar at done of total, with a text before it.
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
	// It only fails when its writer does, and then there is no one to tell.
	_ = b.bar.Set64(done)
	b.ui.drawn = b.ui.Terminal
}

// Clear takes the bar off the screen.
func (b *Bar) Clear() {
	if b.bar == nil {
		return
	}
	b.ui.mu.Lock()
	defer b.ui.mu.Unlock()
	_ = b.bar.Clear()
	b.bar, b.ui.drawn = nil, false
}

// StatusLine is a line on a terminal's err that is written over. It is not for
// concurrent use.
type StatusLine struct {
	ui    *UI
	shown bool
}

// NewStatusLine makes a line; nothing is shown yet.
func (u *UI) NewStatusLine() *StatusLine { return &StatusLine{ui: u} }

// Show shows a text in the place of the last one.
func (l *StatusLine) Show(text string) {
	l.ui.mu.Lock()
	defer l.ui.mu.Unlock()
	l.shown, l.ui.drawn = true, l.ui.Terminal
	fmt.Fprintf(l.ui.Err, "\r\x1b[K%s", text)
}

// Clear takes the line off the screen.
func (l *StatusLine) Clear() {
	if !l.shown {
		return
	}
	l.ui.mu.Lock()
	defer l.ui.mu.Unlock()
	fmt.Fprint(l.ui.Err, "\r\x1b[K")
	l.shown, l.ui.drawn = false, false
}
