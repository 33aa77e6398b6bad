package looking

import (
	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// left is a name that LeftOut was told of.
type left struct {
	path   string // as it was told
	reason string
	round  uint32 // the last listing that it was in
}

// whyNot returns why a file is left out that is not wanted; "" where the dataset does not name it.
func (l *Looker) whyNot(name, path string) string {
	if !growing.Finished(name) {
		return growing.UnfinishedReason
	}
	if l.config.LeavesOut == nil {
		return ""
	}
	return l.config.LeavesOut(path)
}

// hidden looks whether a name is there that begins with a dot.
func (l *Looker) hidden(d *directory, name string, round uint32) {
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

// leaveOut tells that a name is left out, once, or that it is not any more where reason is "".
func (l *Looker) leaveOut(d *directory, name, path, reason string, round uint32) {
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
