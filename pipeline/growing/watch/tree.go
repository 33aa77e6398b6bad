package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
	"github.com/lsiofs/lsiofs/pipeline/storage/local/hints"
	"github.com/lsiofs/lsiofs/uring"
)

// directory has what was found in a directory when it was listed, and since.
type directory struct {
	path   string     // relative to the root, which is ""
	in     *directory // nil for the root
	linked bool       // its name is a symbolic link
	// polled means that it or one above it is linked: an inode may have several names, but has only
	// one watch.
	polled                      bool
	device, inode               uint64
	enteredDevice, enteredInode uint64 // as entered, if it is polled
	modTimeNanos                int64  // at the time of listing; 0: the listing is not reliable
	watched                     bool   // changes of its entries are reported
	round                       uint32
	dirs                        map[string]*directory
	files                       map[string]file
	left                        map[string]left // names that are left out
}

// file has what the last look found under a name.
type file struct {
	version   storage.Version
	sizeBytes int64
	round     uint32 // the last listing that had it
	settled   bool   // StatStable was called
}

func (d *directory) join(name string) string {
	if d.path == "" {
		return name
	}
	return d.path + "/" + name
}

// follows reports whether d is the target of its name.
func (d *directory) follows() bool { return d.in == nil || d.linked }

// isWithin reports whether what is d or one of its ancestors. It is only called for paths with a
// link: without one this is impossible, whatever inodes a file system reports.
func (d *directory) isWithin(what seen) bool {
	for ; d != nil; d = d.in {
		if d.device == what.Device && d.inode == what.Inode {
			return true
		}
	}
	return false
}

// find returns the directory with a path, or nil.
func (l *Watcher) find(path string) *directory {
	d := l.root
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && d != nil {
			d = d.dirs[name]
		}
	}
	return d
}

const (
	// listBatch is how many names are read at a time.
	listBatch = 1024
	// racy is the minimum age of a directory's modification time for it to be reliable: another
	// change in the same clock tick would not change it.
	racy = 2 * time.Second
	// mostLoops bounds the number of links leading back that are logged.
	mostLoops = 100
)

// list reads a directory and looks at all its entries; new directories below it are listed too.
// Errors are recorded in troubled, and returned.
func (l *Watcher) list(ctx context.Context, d *directory, now time.Time) error {
	err := l.read(ctx, d, now)
	if err == nil {
		delete(l.troubled, d.path)
		return nil
	}
	d.modTimeNanos = 0
	l.troubled[d.path] = err
	return err
}

func (l *Watcher) read(ctx context.Context, d *directory, now time.Time) error {
	self, err := l.stat(d.path, d.follows())
	if err != nil {
		return err
	}
	is := [2]uint64{self.Device, self.Inode}
	switch {
	case d != l.root:
	case l.first == [2]uint64{}:
		l.first = is
	case is != [2]uint64{d.device, d.inode}:
		l.replaced(is, now)
	}
	d.device, d.inode, d.modTimeNanos = self.Device, self.Inode, self.ModTimeNanos
	if time.Now().UnixNano()-d.modTimeNanos < int64(racy+self.traits.Granule) {
		d.modTimeNanos = 0
	}
	l.watch(d, self.traits)
	f, err := l.open(d)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	l.round++
	round := l.round
	var first error
	look := func(name string) {
		if err := l.entry(ctx, d, name, round, now); err != nil && first == nil {
			first = err
		}
	}
	for {
		names, err := f.Readdirnames(listBatch)
		for _, name := range names {
			look(name)
		}
		if err == io.EOF {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
	for name, of := range d.files {
		if of.round != round {
			look(name)
		}
	}
	for name, sub := range d.dirs {
		if sub.round != round {
			look(name)
		}
	}
	for name, of := range d.left {
		if of.round != round {
			look(name)
		}
	}
	return first
}

// open opens a directory.
func (l *Watcher) open(d *directory) (*os.File, error) {
	full := l.full(d.path)
	if !d.polled {
		return os.Open(full)
	}
	return l.never.Open(full)
}

// watch requests change reports for a directory, if possible.
func (l *Watcher) watch(d *directory, traits uring.Traits) {
	d.watched = false
	if l.hints == nil || d.polled {
		return
	}
	if !traits.Watched {
		l.pollBecause(fmt.Sprintf("%s is on a file system that does not report all changes", l.full(d.path)))
		return
	}
	err := l.hints.Watch(l.full(d.path), d.path)
	d.watched = err == nil
	if errors.Is(err, hints.ErrNoWatches) {
		l.pollBecause(err.Error())
	}
}

// entry looks at what a directory has under a name now.
func (l *Watcher) entry(ctx context.Context, d *directory, name string, round uint32, now time.Time) error {
	path := d.join(name)
	switch {
	case name == "":
		return nil
	case name[0] == '.':
		l.hidden(d, name, round)
		return nil
	}
	what, err := l.stat(path, false)
	linked := err == nil && what.isLink()
	if linked {
		what, err = l.stat(path, true)
		if never := l.never.Check(unix.AT_FDCWD, l.full(path)); errors.Is(never, fs.ErrPermission) {
			l.dropDirectory(d, name)
			l.dropFile(d, name)
			return &fs.PathError{Op: "open", Path: l.full(path), Err: never}
		}
	}
	dead := linked && err != nil && gone(err) // a link to nothing is skipped until its target exists
	leadsBack := err == nil && what.isDirectory() && (linked || d.polled) && d.isWithin(what)
	l.noteLoop(path, leadsBack)
	if err == nil && what.isDirectory() && !leadsBack {
		l.dropFile(d, name)
		return l.below(ctx, d, name, what, linked, round, now)
	}
	switch {
	case err != nil && !gone(err):
		return err
	case err != nil || !what.Regular() || !l.wants(name, path):
		l.dropDirectory(d, name)
		l.dropFile(d, name)
		switch {
		case leadsBack:
			l.leaveOut(d, name, path+"/", storage.OmittedLoop, round)
		case err == nil && what.Regular():
			l.leaveOut(d, name, path, l.whyNot(name, path), round)
		case err == nil && !what.isDirectory() && l.wants(name, path):
			l.leaveOut(d, name, path, storage.OmittedKind, round)
		case dead && (l.wants(name, path) || l.config.Match(path, true)):
			l.leaveOut(d, name, path, storage.OmittedDead, round)
		default:
			l.leaveOut(d, name, path, "", round)
		}
		return nil
	}
	l.dropDirectory(d, name)
	l.leaveOut(d, name, path, "", round)
	l.file(d, name, what, round, now)
	return nil
}

// noteLoop logs a path that leads back to a directory above it, once for as long as it does.
func (l *Watcher) noteLoop(path string, leadsBack bool) {
	switch {
	case !leadsBack:
		delete(l.loops, path)
	case !l.loops[path] && len(l.loops) < mostLoops:
		l.loops[path] = true
		l.config.Log.Warn("a symbolic link to a directory above it is left out", "path", l.full(path))
	}
}

// below looks into a subdirectory if it is new, or was replaced, or has changed and is not watched.
func (l *Watcher) below(ctx context.Context, d *directory, name string, what seen, linked bool, round uint32, now time.Time) error {
	path := d.join(name)
	sub := d.dirs[name]
	if sub != nil && (sub.linked != linked || sub.device != what.Device || sub.inode != what.Inode) {
		l.dropDirectory(d, name)
		sub = nil
	}
	switch {
	case sub == nil:
		if !l.config.Match(path, true) {
			if l.config.LeavesOut != nil {
				l.leaveOut(d, name, path+"/", l.config.LeavesOut(path), round)
			}
			return nil
		}
		polled := linked || d.polled
		if polled {
			if err := l.entered.Enter(what.Device, what.Inode); err != nil {
				return &fs.PathError{Op: "list", Path: l.full(path), Err: err}
			}
		}
		l.leaveOut(d, name, path, "", round)
		if d.dirs == nil {
			d.dirs = map[string]*directory{}
		}
		sub = &directory{path: path, in: d, linked: linked, polled: polled, enteredDevice: what.Device, enteredInode: what.Inode, device: what.Device, inode: what.Inode}
		d.dirs[name] = sub
	case sub.watched || sub.modTimeNanos == what.ModTimeNanos:
		sub.round = round
		return nil
	}
	sub.round = round
	if err := l.list(ctx, sub, now); err != nil && gone(err) {
		l.dropDirectory(d, name)
	}
	return ctx.Err() // other errors are recorded for the subdirectory itself
}

// file updates the state of a file after a look.
func (l *Watcher) file(d *directory, name string, what seen, round uint32, now time.Time) {
	path := d.join(name)
	o := what.object(path)
	if l.config.NoChangeTimes {
		o.Version.ChangeTimeNanos = 0
	}
	before, known := d.files[name]
	after := file{version: o.Version, sizeBytes: o.SizeBytes, round: round}
	if before.settled {
		if before.version == o.Version && before.sizeBytes == o.SizeBytes {
			after.settled = true
			d.files[name] = after
			return
		}
		l.settled--
		l.config.Gone(path)
	}
	switch {
	case !known && l.config.Known != nil && l.config.Known(o):
		after.settled = true
	default:
		look := lookOf(o)
		look.Written, look.Unknown = filesystem.Written(l.full(path))
		l.settling.Quiet = l.quiet(what.traits)
		done, wait := l.settling.See(path, look, now)
		if after.settled = done; !done {
			l.due.follow(path, now.Add(wait))
		}
	}
	if d.files == nil {
		d.files = map[string]file{}
	}
	d.files[name] = after
	if after.settled {
		l.settled++
		l.due.forget(path)
		l.config.StatStable(o)
	}
}

func (l *Watcher) dropFile(d *directory, name string) {
	f, ok := d.files[name]
	if !ok {
		return
	}
	delete(d.files, name)
	path := d.join(name)
	l.due.forget(path)
	l.settling.Forget(path)
	if f.settled {
		l.settled--
		l.config.Gone(path)
	}
}

func (l *Watcher) dropDirectory(d *directory, name string) {
	sub := d.dirs[name]
	if sub == nil {
		return
	}
	delete(d.dirs, name)
	if sub.polled {
		l.entered.Leave(sub.enteredDevice, sub.enteredInode)
	}
	delete(l.troubled, sub.path)
	for file := range sub.files {
		l.dropFile(sub, file)
	}
	for dir := range sub.dirs {
		l.dropDirectory(sub, dir)
	}
	for name := range sub.left {
		l.leaveOut(sub, name, "", "", 0)
	}
	if l.hints != nil {
		l.hints.Forget(sub.path)
	}
}
