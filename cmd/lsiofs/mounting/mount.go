package mounting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/inspect"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/fs"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/growing/snapshot"
	"github.com/lsiofs/lsiofs/pipeline/order/quality"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// RingsFlag is the name of the flag that sets Config.Rings.
const RingsFlag = "fuse-io-uring"

// Config describes what is mounted where, and how it is served.
type Config struct {
	Dataset, Point string
	// Sources are the sources of a mixture, used in place of Dataset.
	Sources []spec.Source
	// Resolve returns the dataset's spec and the checkpoint to resume from, nil for none. It may be
	// called more than once.
	Resolve func() (spec.Spec, *opening.Checkpoint, error)
	// AllowOther lets other users read. Readers are the users whose reads count in the checkpoint,
	// nil if not specified.
	AllowOther bool
	Readers    *fs.Readers
	// OthersRestore lets other users write the checkpoint if AllowOther is set.
	OthersRestore bool
	// Rings asks for FUSE over io_uring.
	Rings bool
	// WhilePID, if not 0, is a process that the mount must not outlive.
	WhilePID int
	// RemovePoint removes the mount point's directory at the end.
	RemovePoint bool
	// ReadyFD, if above 2, is the descriptor on which a parent waits for the mount's report. If the
	// parent goes away before that, the mount ends.
	ReadyFD int
	// LogAside means that the log is a file, whose warnings the user does not see while the mount
	// starts.
	LogAside bool

	UI        *terminal.UI
	Log       *slog.Logger
	StatusLog *slog.Logger // for lines of status on request
	Version   string       // of this program
}

// Run mounts and serves until ctx ends (the first signal), an unmount from outside, or the end of
// the mount's owner. Once force ends as well, it does not wait for readers.
func Run(ctx, force context.Context, o *Config) error {
	// The reader of stdout and stderr may go away. A log line that can't be written must not leave
	// a dead mount behind.
	signal.Ignore(syscall.SIGPIPE)
	if o.RemovePoint {
		// Fails, and leaves the directory, if it is not empty or still a mount point.
		defer func() { _ = os.Remove(o.Point) }()
	}
	asked := make(chan os.Signal, 1) // requests for a line of status; pending ones coalesce
	signal.Notify(asked, syscall.SIGUSR1)
	defer signal.Stop(asked)
	rep, err := newReporter(o.ReadyFD, o.UI)
	if err != nil {
		return err
	}
	if o.ReadyFD == 0 {
		// A service manager does not know about a detached process.
		rep = withService(rep)
	}
	if p, ok := rep.(*pipeReporter); ok {
		waited, cancel := context.WithCancel(ctx)
		defer cancel()
		err := p.untilReady(func() {
			o.Log.Warn("the process that waited for this mount ended before it was ready: the mount ends too")
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
		// The readers belong to the owner, which has ended or asked twice.
		o.Log.Info("ended while files were open", "error", err)
		err = nil
	}
	rep.Ended(err)
	if p, ok := rep.(*pipeReporter); ok && p.toldError && o.WhilePID != 0 {
		// The parent is alive and prints the error. A daemon's log has to contain it as well.
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
		Progress: rep.Progress, Trouble: rep.Trouble, StartFetcher: true, Ahead: true, Waiting: func(s snapshot.Status) { rep.Waiting(opening.WaitingFor(s)) },
	})
	if err != nil {
		return err
	}
	if s.Cache.Warm {
		err = opening.Fill(ctx, d, rep.Filling)
		if errors.Is(err, diskcache.ErrNotFilled) {
			rep.Warn(err.Error())
			err = nil // missing parts are fetched when they are read
		}
		if err != nil {
			return opening.Close(d, err, o.Log)
		}
	}
	fs.MoreThreads() // the dataset has already determined the number of processors
	m, err := startMount(ctx, o, d, resume, rep)
	if err != nil {
		return opening.Close(d, err, o.Log)
	}
	h := boundHeap(s.MemoryBytes)
	stop := tellStatus(ctx, m, asked, o.StatusLog)
	err = serve(ctx, force, m, h, rep, o.Log)
	stop()
	if errors.Is(err, errReadersLeft) {
		// The dataset can't be closed while there are readers. The end of the process does that.
		return err
	}
	return opening.Close(d, err, o.Log)
}

// startMount mounts an open dataset and reports that it is ready.
func startMount(ctx context.Context, o *Config, d *pipeline.Dataset, resume *opening.Checkpoint, rep Reporter) (*fs.Mount, error) {
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
		warnings = append(warnings, "with --allow-other, the checkpoint still counts only what you and root read: name the users who train with --readers")
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

// preparePoint refuses early what checkMountPoint refuses, and mounts that this process may not
// make.
func preparePoint(ctx context.Context, o *Config, s spec.Spec) (string, error) {
	point, err := checkMountPoint(ctx, o, s)
	if err != nil {
		return "", err
	}
	return point, exit.With(exit.Mount, fs.MayMount(point, o.AllowOther))
}

// checkMountPoint refuses early, before a dataset is indexed in vain, what a mount would refuse
// late. It also refuses a point that would hide what the mount itself writes. Nothing has been
// created by then.
func checkMountPoint(ctx context.Context, o *Config, s spec.Spec) (string, error) {
	datasets := []string{o.Dataset}
	if o.Sources != nil {
		datasets = nil
		for _, s := range o.Sources {
			datasets = append(datasets, s.Dataset)
		}
	}
	point, err := fs.PreparePoint(ctx, o.Point, datasets, o.Log)
	if err != nil {
		return "", exit.With(exit.Mount, err)
	}
	// If there is no directory of one's own, a later message reports it when it is needed.
	index, _, _ := catalog.DirectoryFor(s.IndexDir, "")
	cache, _ := pipeline.CacheDirectory(s.Cache.Dir)
	for _, w := range []struct{ flag, path string }{{"--index-dir", index}, {"--cache-dir", cache}, {"--spool-dir", s.SpoolDir}, {"--run", s.Grow.Run}} {
		if err := outside(point, w.flag, w.path); err != nil {
			return "", exit.With(exit.Mount, err)
		}
	}
	return point, nil
}

// outside refuses a path inside the mount point.
func outside(point, flag, path string) error {
	if path == "" {
		return nil
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if inside(existing(abs), point) {
		return fmt.Errorf("mount point %s would hide %s, which the mount uses: choose a place outside of it with %s", point, path, flag)
	}
	return nil
}

// existing returns an absolute path with symbolic links resolved in the part of it that exists.
func existing(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil || path == "/" {
		return real
	}
	return filepath.Join(existing(filepath.Dir(path)), filepath.Base(path))
}

// findWarnings returns warnings that the user should see before training starts. A shuffle from a
// checkpoint (resumed) can't be changed and was measured when the run began, so resuming does not
// wait for that measurement.
func findWarnings(ctx context.Context, d *pipeline.Dataset, counts []uint64, resumed bool) ([]string, error) {
	warnings := append(opening.DamageLines(d.Catalog().Damaged(), 5), opening.ReasonLines(d.Catalog().DamageReasons())...)
	s := d.Spec()
	warnings = append(warnings, d.Catalog().Selection().Notes...)
	if w := passedOver(d.Catalog()); w != "" {
		warnings = append(warnings, w)
	}
	if d.Records() == 0 {
		return append(warnings, opening.NothingSelected(d, s.Epoch, "the worker files are empty")), nil
	}
	if w := emptyWorkers(counts, s.Deal); w != "" {
		warnings = append(warnings, w)
	}
	if s.Order.Shuffle == spec.ShuffleNone || resumed || s.Mix.Asked() { // a mixture is not meant to be even
		return warnings, nil
	}
	m, err := inspect.MeasureMixing(ctx, d, quality.Poor)
	if err != nil {
		return warnings, err
	}
	if m.Poor() {
		warnings = append(warnings, fmt.Sprintf("the shuffle is poor: the expected χ²/df of shards in batches of %d is %.1f, "+
			"and %.1f in one worker's stream, where 1.0 is perfect; %s",
			quality.BatchRecords, m.Global.Value, m.Worker.Value, inspect.AdviceText(m.Advice)))
	}
	return warnings, nil
}

// passedOver returns a warning if at least as many files are skipped as read: folders of images,
// each with a text or an array next to it, are not meant as lines or rows. Other formats often have
// a file next to each shard.
func passedOver(c *catalog.Catalog) string {
	name := c.Format().Name
	if name != "lines" && name != "npy" || c.PassedOver() < c.Shards() {
		return ""
	}
	return fmt.Sprintf("%s of format %s found, and %s skipped: if each file is a sample, or files with the same name up to the dot are, use --format files; "+
		"otherwise name only the shards with a pattern",
		terminal.Plural(uint64(c.Shards()), "shard"), name, terminal.Plural(uint64(c.PassedOver()), "file"))
}

// emptyWorkers returns a warning about workers whose files hold no records because of the tail
// rule.
func emptyWorkers(counts []uint64, deal spec.Assignment) string {
	if deal.Tail != spec.TailDrop {
		return ""
	}
	empty := 0
	for _, n := range counts {
		if n == 0 {
			empty++
		}
	}
	if empty == 0 {
		return ""
	}
	round := deal.Workers * deal.Batch
	if deal.Dealing == spec.DealContiguous {
		round = deal.Workers
	}
	return fmt.Sprintf("--tail drop leaves %d of %d workers without records: a round of all workers takes %s, more than are left; "+
		"use --tail pad or keep, fewer workers, or a smaller --batch", empty, len(counts), terminal.Count(round))
}
