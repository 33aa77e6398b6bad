package looking

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/identity"
	"github.com/lsiofs/lsiofs/pipeline/storage/local/hints"
)

// DefaultPoll is how often directories are looked at that nothing is reported of.
const DefaultPoll = 30 * time.Second

// Config says what is looked at, and who is told. Functions are called by one goroutine at
// a time, and must not call the looker. While they run nothing is looked at.
type Config struct {
	// Root is the directory below which files are looked for; an absolute path.
	Root string
	// Match says whether a file may be a shard, or a directory have some, by its path
	// relative to Root. Hidden names, and those of unfinished files, are not asked about.
	Match func(path string, isDir bool) bool
	// LeftOut is told of a name that is left out, and why: one that Match refuses and LeavesOut
	// has a reason for, one that is hidden, that of an unfinished file, or of a link that leads
	// back. reason is "" once it is not there any more. The path of a directory ends in '/'. Both
	// may be nil. At most storage.MaxOmitted are told.
	LeftOut   func(path, reason string)
	LeavesOut func(path string) (reason string)
	// Known says that a file was seen settled before just as it is now: it is not waited
	// for. It may be nil.
	Known func(o storage.Object) bool
	// Settled is told of a file that nobody writes any more, also once more after it has
	// changed; Gone of a path that it was told of and that is not there, or is not settled
	// any more.
	Settled func(o storage.Object)
	Gone    func(path string)
	// Settle is how long a file has to stay as it is where leases say nothing; 0 is
	// growing.DefaultSettle, or NetworkSettle on network file systems.
	Settle time.Duration
	// Poll is how often directories without reports are looked at; 0 is DefaultPoll.
	Poll time.Duration
	// NoChangeTimes leaves Version.ChangeTimeNanos out, which changes whenever a file gets
	// another name: where somebody makes hard links to it.
	NoChangeTimes bool
	// NoHints: do without inotify.
	NoHints bool
	Log     *slog.Logger
}

// Status is what a looker says about itself.
type Status struct {
	// Watch is "inotify" where everything is reported, else "poll". Why says why not.
	Watch, Why string
	// Files are settled, Settling not yet.
	Files, Settling int
	// Overflows is how often the kernel lost reports.
	Overflows uint64
	// Scan is how long it took to look at everything for the last time.
	Scan time.Duration
	// Replaced is when the root was found to be another directory than before; zero for never, or where
	// it is the one again that it was at first.
	Replaced time.Time
	// Err is what was wrong with the directories the last time: files may be missing.
	Err error
}

// Looker follows the files below a directory until it is closed. Its methods may be called
// at the same time.
type Looker struct {
	config Config
	hints  *hints.Watcher // nil without
	scans  chan chan error
	stop   context.CancelFunc
	done   chan struct{}

	// Of the goroutine alone.
	root     *directory
	never    *identity.Never
	entered  identity.Entered
	round    uint32 // of listings
	settled  int
	left     int // names that LeftOut was told of
	systems  identity.Systems
	settling growing.Settling
	due      dueFiles
	troubled map[string]error // directories that could not be looked at
	loops    map[string]bool  // paths that lead back, which were logged
	agenda   agenda
	first    [2]uint64 // device and inode of the root when it was listed first

	mu     sync.Mutex
	status Status
}

// Open looks at everything below c.Root, and goes on looking. An error means that something
// can't be looked at, so that files may be missing; later such errors are in Status, and
// those of Scan, and are tried again.
func Open(ctx context.Context, c Config) (*Looker, error) {
	if c.Poll == 0 {
		c.Poll = DefaultPoll
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	never, err := identity.NeverOf()
	if err != nil {
		return nil, err
	}
	l := &Looker{config: c, never: never, scans: make(chan chan error), done: make(chan struct{}), troubled: map[string]error{}, loops: map[string]bool{}}
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
func (l *Looker) begin(ctx context.Context) error {
	now := time.Now()
	l.root = &directory{}
	_ = l.list(ctx, l.root, now) // tell has it
	l.agenda = agenda{poll: now.Add(l.config.Poll), everything: now.Add(everythingEvery)}
	l.mu.Lock()
	l.status.Scan = time.Since(now)
	l.mu.Unlock()
	return l.tell(ctx)
}

// run looks until it is told to stop.
func (l *Looker) run(ctx context.Context) {
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
			_ = l.step(ctx, time.Now(), false) // Status has it
		}
		timer.Reset(time.Until(l.nextStep()))
	}
}

// Scan looks now at all that has changed before the call; it returns when that is done.
// The error says what could not be looked at.
func (l *Looker) Scan(ctx context.Context) error {
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

var errClosed = errors.New("the dataset is not looked at any more: the mount is being closed")

// Status is how things stand.
func (l *Looker) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.status
	if l.hints != nil {
		s.Overflows = l.hints.Overflows()
	}
	return s
}

// Close ends looking, and waits for what is being looked at.
func (l *Looker) Close() error {
	l.stop()
	<-l.done
	return l.closeHints()
}

func (l *Looker) closeHints() error {
	if l.hints == nil {
		return nil
	}
	return l.hints.Close()
}

// pollBecause notes that not everything is reported.
func (l *Looker) pollBecause(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.status.Watch != "poll" {
		l.config.Log.Warn("new files are found by polling", "every", l.config.Poll, "why", why)
	}
	l.status.Watch, l.status.Why = "poll", why
}
