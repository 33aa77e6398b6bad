package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/inspect"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/resuming"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/fs"
	"github.com/lsiofs/lsiofs/pipeline"
)

// drainTime is how long open files may be read on after a signal: enough for a
// program to finish a batch, short of the 10 s after which docker stop kills.
const drainTime = 8 * time.Second

type mountOptions struct {
	datasetFlags
	dataset, point string
	allowOther     bool
	readers        readerUsers
	daemon         bool
	logFile        string
	// whilePID, when not 0, is the process that the mount must not outlive.
	whilePID int
	// removePoint removes the mount point's directory at the end.
	removePoint bool
	// readyFD, when above 2, is where a parent waits for word of the mount.
	readyFD int
}

func (o *mountOptions) addFlags(c *cobra.Command) {
	o.add(c)
	o.addResume()
	f := c.Flags()
	f.BoolVar(&o.allowOther, "allow-other", false, "let other users read; needs root, or user_allow_other in /etc/fuse.conf")
	f.Var(&o.readers, "readers", "with --allow-other: `users` (names or numbers, or all) whose reads count in the checkpoint, besides you and root")
	f.BoolVar(&o.daemon, "daemon", false, "return when the mount is ready, and serve in the background")
	f.StringVar(&o.logFile, "log-file", "", "with --daemon: the `file` to log to (default: beside the indexes)")
	f.IntVar(&o.whilePID, "while-pid", 0, "unmount when the process of this `number` has ended, however it ended; its readers are not waited for")
	f.BoolVar(&o.removePoint, "rmdir", false, "remove the directory MNT at the end")
	f.IntVar(&o.readyFD, "ready-fd", 0, "")
	if err := f.MarkHidden("ready-fd"); err != nil {
		panic(err)
	}
}

func newMountCommand(g *globals) *cobra.Command {
	o := &mountOptions{}
	c := &cobra.Command{
		Use:   "mount DATASET MNT",
		Short: "Mount a dataset as shuffled streams, one file a worker",
		Long: `Mounts DATASET (a directory, a file, or a quoted pattern with ** and {000..146})
on the directory MNT. Every worker's shuffled epoch is then a file:

  MNT/worker-0.tar …     what the workers still have to read, from the checkpoint on
  MNT/epoch-N/           whole epochs, by name
  MNT/checkpoint         read it to save, write it to restore
  MNT/README             more

The first mount of a dataset indexes it; later ones start at once. Without
--daemon the mount is served in the foreground: Ctrl-C unmounts it and lets open
files be read on for some seconds, a second Ctrl-C does not wait for them. SIGUSR1
writes a line of status to the log.`,
		Example: `  lsiofs mount /data/train /mnt/train --workers 4 --seed 42
  lsiofs mount '/data/**/shard-{000..146}.tar.zst' /mnt/train --workers 8 --batch 32 --daemon
  lsiofs mount /data/train /mnt/train --workers 6 --resume ckpt.json`,
		Args: exactArgs("DATASET", "MNT"),
		RunE: func(c *cobra.Command, args []string) error {
			o.dataset, o.point = args[0], args[1]
			// A detached process never detaches another one.
			if !o.daemon && o.logFile != "" && o.readyFD == 0 {
				return exit.Usagef("--log-file needs --daemon: in the foreground the log goes to stderr")
			}
			if !o.allowOther && o.readers.given() {
				return exit.Usagef("--readers needs --allow-other: without it nobody else can read")
			}
			if o.whilePID < 0 {
				return exit.Usagef("--while-pid (%d) must be the number of a process", o.whilePID)
			}
			if o.daemon && o.readyFD == 0 {
				return runDaemon(c.Context(), o, g)
			}
			return runMount(c.Context(), o, g)
		},
	}
	o.addFlags(c)
	return c
}

// runMount mounts and serves until a signal, an unmount from outside or the end of
// the mount's owner.
func runMount(ctx context.Context, o *mountOptions, g *globals) error {
	// Whoever reads stdout and stderr may go: a line of the log that nobody reads
	// is no reason to leave a dead mount behind.
	signal.Ignore(syscall.SIGPIPE)
	if o.removePoint {
		// It fails where something is in it, or still mounted on it: then it stays.
		defer func() { _ = os.Remove(o.point) }()
	}
	asked := make(chan os.Signal, 1) // for a line of status; a second one before that is the same
	signal.Notify(asked, syscall.SIGUSR1)
	defer signal.Stop(asked)
	rep, err := newReporter(o.readyFD, g.ui)
	if err != nil {
		return err
	}
	if o.readyFD == 0 {
		// Of a detached process no service manager knows.
		rep = withService(rep)
	}
	ctx, force, release, err := whileAlive(ctx, g.takeForce(), o.whilePID)
	if err == nil {
		err = exit.OrInterrupted(ctx, mountAndServe(ctx, force, asked, o, g, rep))
		release()
	}
	if o.whilePID != 0 && errors.Is(err, errReadersLeft) {
		// They are the owner's, who has gone or has asked twice.
		g.log().Info("ended under readers", "error", err)
		err = nil
	}
	rep.ended(err)
	if p, ok := rep.(*pipeReporter); ok && p.toldError && o.whilePID != 0 {
		// The parent lives, and says it; a daemon's log has to say it, too.
		return exit.With(exit.CodeOf(err), exit.Silent)
	}
	return err
}

func mountAndServe(ctx, force context.Context, asked <-chan os.Signal, o *mountOptions, g *globals, rep reporter) error {
	s, resume, err := o.resolve(o.dataset)
	if err != nil {
		return err
	}
	if o.point, err = checkMountPoint(o.point, o.dataset, g.log()); err != nil {
		return err
	}
	d, err := opening.Open(ctx, g.log(), s, pipeline.Options{Progress: rep.progress, Ahead: true})
	if err != nil {
		return err
	}
	fs.MoreThreads() // the dataset has seen how many processors there are
	m, err := startMount(ctx, o, g, d, resume, rep)
	if err != nil {
		return opening.Close(d, err, g.log())
	}
	collectOften()
	stop := tellStatus(ctx, m, asked, g)
	err = serve(ctx, force, m, rep, g.log())
	stop()
	if errors.Is(err, errReadersLeft) {
		// The dataset can't be closed under readers: the process' end does it.
		return err
	}
	return opening.Close(d, err, g.log())
}

// servedHeapPercent is by how much the heap grows from one garbage collection to
// the next while a mount is served. FUSE's library keeps a buffer for every
// length of reads that it has seen, and gives up those that were not used from
// one collection to the one after the next. With Go's 100 % a client that reads
// in many lengths makes new buffers faster than old ones go: 350 MiB of them,
// whatever --memory says; from 50 % down they settle, at about as much as the rest
// of the heap with 30 %. Answering reads makes no garbage, so that collections
// stay rare.
const servedHeapPercent = 30

// collectOften sets that, but where the user has set something else.
func collectOften() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(servedHeapPercent)
	}
}

// tellStatus logs a line of status for each signal, whatever the level of the log,
// until it is stopped.
func tellStatus(ctx context.Context, m *fs.Mount, asked <-chan os.Signal, g *globals) (stop func()) {
	log := g.ui.Logger(slog.LevelInfo, g.logFormat)
	ended := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		for {
			select {
			case <-asked:
				m.LogStatus(ctx, log)
			case <-ended:
				return
			}
		}
	})
	return func() { close(ended); telling.Wait() }
}

// startMount mounts an open dataset and reports that it is ready.
func startMount(ctx context.Context, o *mountOptions, g *globals, d *pipeline.Dataset, resume *resuming.Checkpoint, rep reporter) (*fs.Mount, error) {
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
	warnings, err := mountWarnings(ctx, d, counts, resume.BringsOrder())
	if err != nil {
		return nil, err
	}
	if o.allowOther && !o.readers.given() {
		warnings = append(warnings, "the checkpoint counts what you and root read, not what other users read (--allow-other): name those who train with --readers")
	}
	for _, w := range warnings {
		rep.warn(w)
	}
	m, err := fs.New(ctx, fs.Config{
		Dataset: d, MountPoint: o.point, Position: position, Explain: d.Explain,
		AllowOther: o.allowOther, Readers: o.readers.Readers, Log: g.log(), Version: versionOf().Version,
	})
	if err != nil {
		return nil, exit.With(exit.Mount, err)
	}
	rep.mounted(describeMount(d, o.point, position.Epoch, set.View().Dealt(), start))
	return m, nil
}

// stateEvery is how often a served mount says how it is doing, to whom wants it.
const stateEvery = 5 * time.Second

// serve waits for the end of the mount. The first signal unmounts and lets
// readers finish for a while, the second (force) does not wait for them.
func serve(ctx, force context.Context, m *fs.Mount, rep reporter, log *slog.Logger) error {
	ended := make(chan error, 1)
	go func() { ended <- m.Wait() }()
	tick := time.NewTicker(stateEvery)
	defer tick.Stop()
	for signalled := false; !signalled; {
		select {
		case err := <-ended:
			return exit.With(exit.Mount, err)
		case <-tick.C:
			rep.serving(m.Sentence)
		case <-ctx.Done():
			signalled = true
		}
	}
	rep.unmounting()
	log.Info("unmounting", "readers may finish within", drainTime)
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	defer context.AfterFunc(force, cancel)()
	if err := m.Unmount(drain); err != nil && (drain.Err() == nil || !m.End()) {
		return exit.Errorf(exit.Mount, "%w: %w", errReadersLeft, err)
	}
	return exit.With(exit.Mount, <-ended)
}

// errReadersLeft is wrapped when programs still had files open at the end.
var errReadersLeft = errors.New("unmounted, but not cleanly")

// mountInfo describes a ready mount.
type mountInfo struct {
	Mount   string   `json:"mounted"`
	Dataset string   `json:"dataset"`
	Split   string   `json:"split,omitempty"` // in words
	Records uint64   `json:"records"`         // that it leaves
	Shards  int      `json:"shards"`
	Bytes   int64    `json:"stream_bytes"`
	Epoch   uint64   `json:"epoch"`
	Left    uint64   `json:"records_left"`
	Workers uint64   `json:"workers"`
	Files   []string `json:"files"` // the first ones
	// How records are read, why, and what the first bytes wait for.
	Strategy     string  `json:"read"`
	Reason       string  `json:"read_reason"`
	Start        string  `json:"start,omitempty"`
	StartSeconds float64 `json:"start_seconds"`
	LogFile      string  `json:"log_file,omitempty"`
	PID          int     `json:"pid,omitempty"`
	detached     bool
}

// namedFiles bounds mountInfo.Files: there may be 65536.
const namedFiles = 64

func describeMount(d *pipeline.Dataset, point string, epoch, left uint64, start pipeline.Start) mountInfo {
	f := d.Status().Fetch
	s, c := d.Spec(), d.Catalog()
	i := mountInfo{
		Mount: point, Dataset: s.Dataset, Records: d.Records(), Shards: c.Shards(), Bytes: d.StreamBytes(),
		Epoch: epoch, Left: left, Workers: s.Deal.Workers,
		Strategy: f.Strategy, Reason: f.Reason, Start: start.Text(), StartSeconds: start.Seconds,
	}
	if d.Part() != nil {
		i.Split = inspect.SplitText(s.Order.Split)
	}
	for w := range min(s.Deal.Workers, namedFiles) {
		i.Files = append(i.Files, filepath.Join(point, fmt.Sprintf("worker-%d%s", w, d.StreamExtension())))
	}
	return i
}

// sentence says what there is now.
func (i mountInfo) sentence() string {
	records := terminal.Plural(i.Records, "record")
	if i.Split != "" {
		records += " (split " + i.Split + ")"
	}
	return fmt.Sprintf("mounted %s on %s: %s in %s, %s; epoch %d, %s to read",
		i.Dataset, i.Mount, records, terminal.Plural(uint64(i.Shards), "shard"), terminal.Bytes(i.Bytes), i.Epoch, terminal.Plural(i.Left, "record"))
}

// text says what there is now, and what to type next.
func (i mountInfo) text() string {
	files := i.Files[0]
	if last := i.Workers - 1; last > 0 {
		files += " … worker-" + fmt.Sprint(last) + filepath.Ext(i.Files[0])
	}
	at := terminal.Quote(i.Mount)
	stop := "or Ctrl-C here"
	if i.detached {
		stop = fmt.Sprintf("the server is process %d, its log is %s", i.PID, i.LogFile)
	}
	start := ""
	if i.StartSeconds >= 1 {
		start = "\n  start    " + i.Start
	}
	return fmt.Sprintf(`%s
  read     %s
  look     ls -l %s; cat %s/README
  save     cp %s/checkpoint ckpt.json
  unmount  lsiofs umount %s   (%s)
  fetch    %s (%s)%s`,
		i.sentence(),
		files, at, at, at, at, stop, i.Strategy, i.Reason, start)
}
