package taking

import "github.com/lsiofs/lsiofs/pipeline/run"

// warnOfWindow says that the latest epoch is of another --window than this node's, once as
// long as that one stays the same. Nodes may differ: whoever takes an epoch decides, and all read the same.
// But then epochs differ in size by who happens to be first, which nobody wants.
func (t *Taker) warnOfWindow(e *run.Epoch) {
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
