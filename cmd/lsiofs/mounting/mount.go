package mounting

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/resuming"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/fs"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/growing/taking"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/cached"
)

// RingsFlag is the name of the flag of Config.Rings.
const RingsFlag = "fuse-io-uring"

// Config is what is mounted where, and how it is served.
type Config struct {
	Dataset, Point string
	// Sources are those of a mixture, in the place of Dataset.
	Sources []spec.Source
	// Resolve makes the spec of the dataset, and gives the checkpoint to go on from,
	// nil for none. It may be called more than once.
	Resolve func() (spec.Spec, *resuming.Checkpoint, error)
	// AllowOther lets other users read; Readers says whose reads count in the
	// checkpoint, nil where nobody has said so.
	AllowOther bool
	Readers    *fs.Readers
	// OthersRestore lets other users write the checkpoint, with AllowOther.
	OthersRestore bool
	// Rings asks for FUSE over io_uring.
	Rings bool
	// WhilePID, when not 0, is the process that the mount must not outlive.
	WhilePID int
	// RemovePoint removes the mount point's directory at the end.
	RemovePoint bool
	// ReadyFD, when above 2, is where a parent waits for word of the mount. If it goes
	// before that, the mount ends.
	ReadyFD int
	// LogAside says that the log is a file, in which nobody sees warnings while the mount comes up.
	LogAside bool

	UI        *terminal.UI
	Log       *slog.Logger
	StatusLog *slog.Logger // for lines of status that were asked for
	Version   string       // of this program
}

// Run mounts and serves until ctx ends (the first signal), an unmount from outside
// or the end of the mount's owner. When force ends, too, readers are not waited for.
func Run(ctx, force context.Context, o *Config) error {
	// Whoever reads stdout and stderr may go: a line of the log that nobody reads
	// is no reason to leave a dead mount behind.
	signal.Ignore(syscall.SIGPIPE)
	if o.RemovePoint {
		// It fails where something is in it, or still mounted on it: then it stays.
		defer func() { _ = os.Remove(o.Point) }()
	}
	asked := make(chan os.Signal, 1) // for a line of status; a second one before that is the same
	signal.Notify(asked, syscall.SIGUSR1)
	defer signal.Stop(asked)
	rep, err := newReporter(o.ReadyFD, o.UI)
	if err != nil {
		return err
	}
	if o.ReadyFD == 0 {
		// Of a detached process no service manager knows.
		rep = withService(rep)
	}
	if p, ok := rep.(*pipeReporter); ok {
		waited, cancel := context.WithCancel(ctx)
		defer cancel()
		err := p.untilReady(func() {
			o.Log.Warn("the process that waited for this mount has ended before it was ready: it ends, too")
			cancel()
		})
		if err != nil {
			return exit.With(exit.Mount, err)
		}
		ctx = waited
		if o.LogAside {
			o.Log = forwardWarnings(o.Log, p.Warn)
		}
	}
	ctx, force, release, err := whileAlive(ctx, force, o.WhilePID)
	if err == nil {
		err = exit.OrInterrupted(ctx, mountAndServe(ctx, force, asked, o, rep))
		release()
	}
	if o.WhilePID != 0 && errors.Is(err, errReadersLeft) {
		// They are the owner's, who has gone or has asked twice.
		o.Log.Info("ended under readers", "error", err)
		err = nil
	}
	rep.Ended(err)
	if p, ok := rep.(*pipeReporter); ok && p.toldError && o.WhilePID != 0 {
		// The parent lives, and says it; a daemon's log has to say it, too.
		return exit.With(exit.CodeOf(err), exit.ErrSilent)
	}
	return err
}

func mountAndServe(ctx, force context.Context, asked <-chan os.Signal, o *Config, rep Reporter) error {
	s, resume, err := o.Resolve()
	if err != nil {
		return err
	}
	if o.Point, err = preparePoint(ctx, o, s); err != nil {
		return err
	}
	if text := opening.MemoryWarning(s); text != "" {
		rep.Warn(text)
	}
	d, err := opening.Open(ctx, o.Log, s, pipeline.Options{
		Progress: rep.Progress, Trouble: rep.Trouble, Ahead: true, Waiting: func(s taking.Status) { rep.Waiting(opening.WaitingFor(s)) },
	})
	if err != nil {
		return err
	}
	if s.Cache.Warm {
		err = opening.Fill(ctx, d, rep.Filling)
		if errors.Is(err, cached.ErrNotFilled) {
			rep.Warn(err.Error())
			err = nil // what is missing is fetched when it is read
		}
		if err != nil {
			return opening.Close(d, err, o.Log)
		}
	}
	fs.MoreThreads() // the dataset has seen how many processors there are
	m, err := startMount(ctx, o, d, resume, rep)
	if err != nil {
		return opening.Close(d, err, o.Log)
	}
	h := boundHeap(s.MemoryBytes)
	stop := tellStatus(ctx, m, asked, o.StatusLog)
	err = serve(ctx, force, m, h, rep, o.Log)
	stop()
	if errors.Is(err, errReadersLeft) {
		// The dataset can't be closed under readers: the process' end does it.
		return err
	}
	return opening.Close(d, err, o.Log)
}

// startMount mounts an open dataset and reports that it is ready.
func startMount(ctx context.Context, o *Config, d *pipeline.Dataset, resume *resuming.Checkpoint, rep Reporter) (*fs.Mount, error) {
	position, err := resume.Position(d)
	if err != nil {
		return nil, err
	}
	set, err := d.Set(ctx, position.Epoch, position.Done, d.Spec().Deal)
	if err != nil {
		return nil, exit.With(exit.Checkpoint, err)
	}
	start, err := d.Expect(set.View(), position.Epoch)
	if err != nil {
		return nil, err
	}
	counts := make([]uint64, d.Spec().Deal.Workers)
	for w := range counts {
		counts[w] = set.View().Count(uint64(w))
	}
	warnings, err := findWarnings(ctx, d, counts, resume.BringsOrder())
	if err != nil {
		return nil, err
	}
	if o.AllowOther && o.Readers == nil {
		warnings = append(warnings, "the checkpoint counts what you and root read, not what other users read (--allow-other): name those who train with --readers")
	}
	for _, w := range warnings {
		rep.Warn(w)
	}
	var readers fs.Readers
	if o.Readers != nil {
		readers = *o.Readers
	}
	m, err := fs.New(ctx, fs.Config{
		Dataset: d, MountPoint: o.Point, Position: position, Explain: d.Explain,
		AllowOther: o.AllowOther, Readers: readers, OthersRestore: o.OthersRestore, Rings: o.Rings, Log: o.Log, Version: o.Version,
	})
	if err != nil {
		return nil, exit.With(exit.Mount, err)
	}
	info := describeMount(d, o.Point, position.Epoch, set.View().Dealt(), start)
	info.MountID = m.Identity()
	rep.Mounted(info)
	return m, nil
}
