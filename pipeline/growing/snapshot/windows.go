package snapshot

import (
	"fmt"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/run"
)

// lookAtClocks records and logs shards with times in the future, if times decide what an epoch has:
// they count as the newest until then, whatever is written meanwhile.
func (t *Snapshotter) lookAtClocks(shards []catalog.LiveShard, now time.Time) {
	if t.config.Window.Measure != growing.Age && t.config.Newest != growing.ByTime {
		return
	}
	count, latest := 0, catalog.LiveShard{}
	for i := range shards {
		if s := &shards[i]; growing.IsAhead(s, now) {
			if count++; s.ModTimeNanos > latest.ModTimeNanos {
				latest = *s
			}
		}
	}
	text := ""
	if count > 0 {
		text = fmt.Sprintf("%s has the time %s, which is in the future: a clock is ahead; it counts as the newest until then", latest.Path, time.Unix(0, latest.ModTimeNanos).UTC().Format(time.RFC3339))
	}
	if count > 1 {
		text = fmt.Sprintf("%s, and %d more shards are so", text, count-1)
	}
	t.mu.Lock()
	before := t.ahead
	t.ahead = text
	t.mu.Unlock()
	if text != "" && text != before {
		t.config.Log.Warn("a shard has a time in the future: set the clocks, or touch the file", "why", text)
	}
}

// warnOfWindow logs that the latest epoch has another --window than this node's, once for each such
// window. This is not an error: the node that starts an epoch decides, and all read the same. But
// then the size of an epoch depends on which node happens to be first, which is hardly intended.
func (t *Snapshotter) warnOfWindow(e *run.Epoch) {
	mine := t.config.Window.String()
	t.mu.Lock()
	warn := e.Window != mine && e.Window != t.window && e.Epoch == t.latest
	if warn {
		t.window = e.Window
	}
	t.mu.Unlock()
	if warn {
		t.config.Log.Warn("an epoch was taken with another --window, and the first one to take an epoch decides for all: give it the same everywhere",
			"epoch", e.Epoch, "taken_by", e.By, "its_window", e.Window, "window_here", mine)
	}
}
