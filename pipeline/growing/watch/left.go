package watch

import (
	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// left is a name that was reported to LeftOut.
type left struct {
	path   string // as reported
	reason string
	round  uint32 // the last listing that had it
}

// whyNot returns why an unwanted file is left out; "" if the dataset's name does not cover it.
func (l *Watcher) whyNot(name, path string) string {
	if !discover.Finished(name) {
		return discover.UnfinishedReason
	}
	if l.config.LeavesOut == nil {
		return ""
	}
	return l.config.LeavesOut(path)
}

// hidden reports a name that begins with a dot, if it still exists.
func (l *Watcher) hidden(d *directory, name string, round uint32) {
	if l.config.LeftOut == nil {
		return
	}
	path := d.join(name)
	what, err := l.stat(path, false)
	switch {
	case err != nil:
		l.leaveOut(d, name, path, "", round)
	case what.isDirectory():
		l.leaveOut(d, name, path+"/", storage.OmittedHidden, round)
	default:
		l.leaveOut(d, name, path, storage.OmittedHidden, round)
	}
}

// leaveOut reports, once, that a name is left out, or that it no longer is if reason is "".
func (l *Watcher) leaveOut(d *directory, name, path, reason string, round uint32) {
	if l.config.LeftOut == nil {
		return
	}
	before, known := d.left[name]
	if known && (before.path != path || before.reason != reason) {
		delete(d.left, name)
		l.left--
		l.config.LeftOut(before.path, "")
		known = false
	}
	if reason == "" || !known && l.left >= storage.MaxOmitted {
		return
	}
	if !known {
		l.left++
		l.config.LeftOut(path, reason)
	}
	if d.left == nil {
		d.left = map[string]left{}
	}
	d.left[name] = left{path, reason, round}
}
