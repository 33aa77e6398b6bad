package filtering

import (
	"fmt"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/filter"
)

// view shows progress while a filter runs: a bar on a terminal, otherwise a line every few seconds.
type view struct {
	stop, stopped chan struct{}
}

func show(u *terminal.UI, p *filter.Progress) *view {
	v := &view{make(chan struct{}), make(chan struct{})}
	go v.run(u, p)
	return v
}

// end removes it from the screen.
func (v *view) end() {
	close(v.stop)
	<-v.stopped
}

func (v *view) run(u *terminal.UI, p *filter.Progress) {
	defer close(v.stopped)
	bar := u.NewBytesBar(terminal.RedrawEvery)
	defer bar.Clear()
	pace, began := terminal.NewPace(), time.Now()
	tick := time.NewTicker(terminal.RedrawEvery)
	defer tick.Stop()
	last := filter.Counts{}
	for {
		select {
		case <-v.stop:
			return
		case <-tick.C:
		}
		c := p.Counts()
		switch {
		case c.Bytes == c.Total: // no work is pending
			bar.Clear()
		case u.Terminal && !u.JSON:
			bar.Draw(text(c), c.Bytes, c.Total)
		case c == last || !pace.Due(time.Since(began)):
			continue
		case u.JSON:
			u.WriteProgress(c)
		default:
			u.Notef("filtering: %s", text(c))
		}
		last = c
	}
}

func text(c filter.Counts) string {
	return fmt.Sprintf("%d of %d shards, %s", c.Filtered+c.Unchanged+c.Failed, c.Shards, terminal.Plural(c.UnitsIn, "unit"))
}
