package watch

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
	"github.com/lsiofs/lsiofs/pipeline/storage/local/hints"
	"github.com/lsiofs/lsiofs/uring"
)

// DefaultPoll is how often directories without change reports are looked at.
const DefaultPoll = 30 * time.Second

// Config configures a Watcher. Its functions are called by one goroutine at a time, and must not
// call the watcher. Nothing is looked at while they run.
type Config struct {
	// Root is the directory to watch; an absolute path.
	Root string
	// Match reports whether a file may be a shard, or a directory may have some, by its path
	// relative to Root. It is not called for hidden names and those of unfinished files.
	Match func(path string, isDir bool) bool
	// LeftOut is called with a name that is left out, and the reason: a name that Match rejects and
	// for which LeavesOut returns a reason, a hidden one, that of an unfinished file, or that of a
	// link that leads back. It is called again with reason "" once the name no longer exists. The
	// path of a directory ends in '/'. Both functions may be nil. At most storage.MaxOmitted names
	// are reported.
	LeftOut   func(path, reason string)
	LeavesOut func(path string) (reason string)
	// Known reports whether a file was already settled in this exact state before: then there is no
	// wait. It may be nil.
	Known func(o storage.Object) bool
	// StatStable is called with a file that no process writes any more, and again after it has
	// changed; Gone with a path that was reported as settled, and that no longer exists or is no
	// longer settled.
	StatStable func(o storage.Object)
	Gone       func(path string)
	// Settle is how long a file must stay unchanged if there are no leases; 0 is
	// discover.DefaultSettle, or NetworkSettle on network file systems.
	Settle time.Duration
	// Poll is how often directories without change reports are looked at; 0 is DefaultPoll.
	Poll time.Duration
	// NoChangeTimes leaves Version.ChangeTimeNanos unset. Set it if hard links to the files are
	// made: a new link changes the change time.
	NoChangeTimes bool
	// NoHints disables inotify.
	NoHints bool
	Log     *slog.Logger
}

// Status is the state of a watcher.
type Status struct {
	// Watch is "inotify" if all changes are reported, else "poll", and Why is the reason for that.
	Watch, Why string
	// Files is the number of settled files, Settling of those that are not yet.
	Files, Settling int
	// Overflows is how often the kernel lost reports.
	Overflows uint64
	// Scan is how long the last look at everything took.
	Scan time.Duration
	// Replaced is when the root was found to be a different directory than before; zero if never,
	// or if it is the original directory again.
	Replaced time.Time
	// Err is the error of the last look at the directories: files may be missing.
	Err error
}

// Watcher watches the files below a directory until it is closed. Its methods may be called
// concurrently.
type Watcher struct {
	config Config
	hints  *hints.Watcher // nil without inotify
	scans  chan chan error
	stop   context.CancelFunc
	done   chan struct{}

	// Owned by the goroutine.
	root     *directory
	never    *filesystem.Never
	entered  filesystem.Entered
	round    uint32 // number of listings so far
	settled  int
	left     int // number of names reported to LeftOut
	systems  filesystem.Systems
	settling discover.Settling
	due      dueFiles
	troubled map[string]error // directories that could not be listed
	loops    map[string]bool  // paths that lead back and were logged
	agenda   agenda
	first    [2]uint64 // device and inode of the root at its first listing

	mu     sync.Mutex
	status Status
}

// Open looks at everything below c.Root, and then keeps watching. It returns an error if something
// can't be looked at, so that files may be missing. Later errors of this kind are in Status and
// returned by Scan, and the look is repeated.
func Open(ctx context.Context, c Config) (*Watcher, error) {
	if c.Poll == 0 {
		c.Poll = DefaultPoll
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	never, err := filesystem.NeverOf()
	if err != nil {
		return nil, err
	}
	l := &Watcher{config: c, never: never, scans: make(chan chan error), done: make(chan struct{}), troubled: map[string]error{}, loops: map[string]bool{}}
	l.status.Watch = "inotify"
	if c.NoHints {
		l.pollBecause("it was asked to poll")
	} else if w, err := hints.New(); err == nil {
		l.hints = w
	} else {
		l.pollBecause(err.Error())
	}
	running, stop := context.WithCancel(context.Background())
	l.stop = stop
	if err := l.begin(ctx); err != nil {
		stop()
		l.closeHints()
		return nil, err
	}
	go l.run(running)
	return l, nil
}

// begin lists everything for the first time.
func (l *Watcher) begin(ctx context.Context) error {
	now := time.Now()
	l.root = &directory{}
	_ = l.list(ctx, l.root, now) // tell returns the error
	l.agenda = agenda{poll: now.Add(l.config.Poll), everything: now.Add(everythingEvery)}
	l.mu.Lock()
	l.status.Scan = time.Since(now)
	l.mu.Unlock()
	return l.tell(ctx)
}

// run looks at what is due until ctx ends.
func (l *Watcher) run(ctx context.Context) {
	defer close(l.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var wake <-chan struct{}
	if l.hints != nil {
		wake = l.hints.Wake()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
			l.hinted(time.Now())
		case asker := <-l.scans:
			asker <- l.step(ctx, time.Now(), true)
		case <-timer.C:
			_ = l.step(ctx, time.Now(), false) // the error is in Status
		}
		timer.Reset(time.Until(l.nextStep()))
	}
}

// Scan looks now at everything that changed before the call, and returns when that is done. The
// error lists what could not be looked at.
func (l *Watcher) Scan(ctx context.Context) error {
	asker := make(chan error, 1)
	select {
	case l.scans <- asker:
	case <-l.done:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-asker:
		return err
	case <-l.done:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errClosed = errors.New("watching the dataset has ended: the mount is being closed")

// Status returns the current state.
func (l *Watcher) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.status
	if l.hints != nil {
		s.Overflows = l.hints.Overflows()
	}
	return s
}

// Close stops watching, and waits for the current look.
func (l *Watcher) Close() error {
	l.stop()
	<-l.done
	return l.closeHints()
}

func (l *Watcher) closeHints() error {
	if l.hints == nil {
		return nil
	}
	return l.hints.Close()
}

// pollBecause records that not all changes are reported.
func (l *Watcher) pollBecause(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.status.Watch != "poll" {
		l.config.Log.Warn("new files are found by polling", "every", l.config.Poll, "why", why)
	}
	l.status.Watch, l.status.Why = "poll", why
}

// seen is the result of a look at a path.
type seen struct {
	filesystem.Attributes
	traits uring.Traits
}

func (l *Watcher) full(path string) string { return filepath.Join(l.config.Root, path) }

// stat looks at a path. If follow is false, a symbolic link itself is described, even one to a
// directory. On network file systems the server is asked, not a cache.
func (l *Watcher) stat(path string, follow bool) (seen, error) {
	full := l.full(path)
	flags := unix.AT_STATX_SYNC_AS_STAT
	if !follow {
		flags |= unix.AT_SYMLINK_NOFOLLOW
	}
	a, err := statx(full, flags)
	if err != nil {
		return seen{}, err
	}
	s := seen{a, l.systems.Traits(unix.AT_FDCWD, full, a.Device)}
	if s.traits.Remote {
		s.Attributes, err = statx(full, flags|unix.AT_STATX_FORCE_SYNC)
	}
	return s, err
}

func statx(path string, flags int) (filesystem.Attributes, error) {
	var st unix.Statx_t
	for {
		switch err := unix.Statx(unix.AT_FDCWD, path, flags, filesystem.StatxMask, &st); err {
		case nil:
			return filesystem.FromStatx(&st), nil
		case unix.EINTR:
		case unix.ENOSYS, unix.EPERM: // a sandbox without statx
			return statPlain(path, flags)
		default:
			return filesystem.Attributes{}, &fs.PathError{Op: "stat", Path: path, Err: err}
		}
	}
}

func statPlain(path string, flags int) (filesystem.Attributes, error) {
	var st unix.Stat_t
	for {
		switch err := unix.Fstatat(unix.AT_FDCWD, path, &st, flags&unix.AT_SYMLINK_NOFOLLOW); err {
		case nil:
			return filesystem.FromStat(&st), nil
		case unix.EINTR:
		default:
			return filesystem.Attributes{}, &fs.PathError{Op: "stat", Path: path, Err: err}
		}
	}
}

func (s *seen) isDirectory() bool { return s.Mode&unix.S_IFMT == unix.S_IFDIR }
func (s *seen) isLink() bool      { return s.Mode&unix.S_IFMT == unix.S_IFLNK }

func (s *seen) object(path string) storage.Object {
	return storage.Object{Path: path, SizeBytes: s.SizeBytes, Version: s.Version(s.traits)}
}

func lookOf(o storage.Object) discover.Look {
	return discover.Look{SizeBytes: o.SizeBytes, ModTimeNanos: o.Version.ModTimeNanos, Inode: o.Version.Inode}
}

// wants reports whether a file may be a shard, judging by its name.
func (l *Watcher) wants(name, path string) bool {
	return discover.Finished(name) && l.config.Match(path, false)
}

// quiet returns how long a file must stay unchanged if there are no leases.
func (l *Watcher) quiet(t uring.Traits) time.Duration {
	switch {
	case l.config.Settle > 0:
		return l.config.Settle
	case t.Remote:
		return discover.NetworkSettle
	}
	return discover.DefaultSettle
}

// gone reports whether err means that nothing exists under the path.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) }

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
