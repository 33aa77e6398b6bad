package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/mounting"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/fs"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

type mountOptions struct {
	datasetFlags
	dataset, point string
	allowOther     bool
	readers        readerUsers
	restore        restorers
	rings          bool // FUSE over io_uring
	daemon         bool
	logFile        string
	whilePID       int
	removePoint    bool
	readyFD        int // the descriptor on which a parent waits for the mount's report; 0: none waits
}

// addRings adds the flag that makes mounts take their requests through io_uring.
func addRings(f *pflag.FlagSet, rings *bool) {
	f.BoolVar(rings, mounting.RingsFlag, false, "receive the kernel's requests through io_uring if the kernel has this enabled; makes small reads faster (see lsiofs help storage)")
}

// restorers is the value of --restore: which users may write a mount's checkpoint.
type restorers string

const (
	restoreOwner restorers = "owner"
	restoreAll   restorers = "all"
)

func (o *mountOptions) addFlags(c *cobra.Command) {
	o.add(c)
	o.addMix(c)
	o.addGrow(c)
	o.addResume()
	addFill(c, &o.spec.Cache)
	f := c.Flags()
	f.BoolVar(&o.allowOther, "allow-other", false, "allow other users to read; needs root, or user_allow_other in /etc/fuse.conf")
	f.Var(&o.readers, "readers", "with --allow-other: `users` (names or numbers, or all) whose reads count for the checkpoint, in addition to yours and root's")
	o.restore = restoreOwner
	enumFlag(c, "restore", "with --allow-other: who may restore a checkpoint by writing to MNT/checkpoint", &o.restore, restoreOwner, restoreAll)
	addRings(f, &o.rings)
	f.BoolVar(&o.daemon, "daemon", false, "serve in the background, and return as soon as the mount is ready")
	f.StringVar(&o.logFile, "log-file", "", "with --daemon: log to this `file` (default: next to the indexes)")
	f.IntVar(&o.whilePID, "while-pid", 0, "unmount when the process with this `number` ends, for whatever reason, without waiting for readers")
	f.BoolVar(&o.removePoint, "rmdir", false, "remove the directory MNT after unmounting")
	f.IntVar(&o.readyFD, "ready-fd", 0, "")
	if err := f.MarkHidden("ready-fd"); err != nil {
		panic(err)
	}
}

func newMountCommand(g *globals) *cobra.Command {
	o := &mountOptions{}
	c := &cobra.Command{
		Use:   "mount DATASET MNT",
		Short: "Mount a dataset as shuffled streams, one file per worker",
		Long: `Mounts DATASET (a directory, a file, or a quoted pattern with ** and {000..146})
on the directory MNT. Each worker reads its shuffled epoch from one file:

  MNT/worker-0.tar …     what the workers have not read yet, counted from the checkpoint
  MNT/epoch-N/           whole epochs, by number
  MNT/checkpoint         read it to save, write it to restore
  MNT/README             how to use the mount

The first mount of a dataset indexes it; later mounts start at once. Without --daemon,
lsiofs serves the mount in the foreground. Ctrl-C unmounts it; open files stay readable
for a few seconds, or until a second Ctrl-C. SIGUSR1 writes a status line to the log.
With --daemon, SIGHUP reopens the log file.`,
		Example: `  lsiofs mount /data/train /mnt/train --workers 4 --seed 42
  lsiofs mount '/data/**/shard-{000..146}.tar.zst' /mnt/train --workers 8 --batch 32 --daemon
  lsiofs mount --mix web=70:/data/web --mix code=30:/data/code /mnt/train --workers 4
  lsiofs mount /data/train /mnt/train --workers 6 --resume ckpt.json`,
		Args: o.arguments("DATASET", "MNT"),
		RunE: func(c *cobra.Command, args []string) error {
			args = o.withDataset(args)
			o.dataset, o.point = args[0], args[1]
			// A detached process never detaches another one, hence the test of readyFD.
			if !o.daemon && o.logFile != "" && o.readyFD == 0 {
				return exit.Usagef("--log-file needs --daemon: in the foreground the log goes to stderr")
			}
			if !o.allowOther && o.readers.given() {
				return exit.Usagef("--readers needs --allow-other: without it nobody else can read")
			}
			if !o.allowOther && o.restore == restoreAll {
				return exit.Usagef("--restore all needs --allow-other: without it nobody else can write")
			}
			if o.restore != restoreOwner && o.restore != restoreAll {
				return exit.Usagef("--restore (%q) must be one of %s, %s", o.restore, restoreOwner, restoreAll)
			}
			if o.whilePID < 0 || o.whilePID == 0 && c.Flags().Changed("while-pid") {
				return exit.Usagef("--while-pid (%d) must be the number of a process", o.whilePID)
			}
			if o.daemon && o.readyFD == 0 {
				return mounting.Daemon(c.Context(), o.config(g), o.logFile, g.args)
			}
			if o.isDaemon() {
				if err := o.leaveDirectory(); err != nil {
					return err
				}
				g.onHangup(func() { mounting.ReopenLog(o.logFile, g.log()) })
			}
			return mounting.Run(c.Context(), g.takeForce(), o.config(g))
		},
	}
	o.addFlags(c)
	return c
}

// isDaemon reports whether mounting.Daemon has started this process.
func (o *mountOptions) isDaemon() bool { return o.readyFD != 0 && o.logFile != "" }

// leaveDirectory makes the paths of the command line absolute and changes to /, because the
// directory that a daemon was started in may be unmounted or removed.
func (o *mountOptions) leaveDirectory() error {
	datasets := []*string{&o.dataset}
	for i := range o.spec.Mix.Sources {
		datasets = append(datasets, &o.spec.Mix.Sources[i].Dataset)
	}
	paths := append(o.paths(), &o.point, &o.logFile)
	for _, d := range datasets {
		if _, err := os.Lstat(*d); err == nil || !strings.Contains(*d, "://") {
			paths = append(paths, d)
		}
	}
	for _, p := range paths {
		if *p == "" {
			continue
		}
		var err error
		if *p, err = filepath.Abs(*p); err != nil {
			return exit.With(exit.Mount, err)
		}
	}
	for _, name := range pathVariables {
		if path := os.Getenv(name); path != "" && !filepath.IsAbs(path) {
			if path, err := filepath.Abs(path); err == nil {
				_ = os.Setenv(name, path)
			}
		}
	}
	return exit.With(exit.Mount, os.Chdir("/"))
}

// pathVariables are the environment variables that may name a file by a relative path and are read
// while the mount is served. Relative XDG_ variables count as unset.
var pathVariables = []string{
	"HOME", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE",
	"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_CA_BUNDLE",
}

// config returns the mount's configuration from the flags.
func (o *mountOptions) config(g *globals) *mounting.Config {
	c := &mounting.Config{
		Dataset: o.dataset, Sources: o.spec.Mix.Sources, Point: o.point,
		Resolve:    func() (spec.Spec, *opening.Checkpoint, error) { return o.resolve(o.dataset) },
		AllowOther: o.allowOther, OthersRestore: o.restore == restoreAll, Rings: o.rings, WhilePID: o.whilePID, RemovePoint: o.removePoint,
		ReadyFD: o.readyFD, LogAside: o.isDaemon(),
		UI: g.ui, Log: g.log(), StatusLog: g.ui.Logger(slog.LevelInfo, g.logFormat), Version: versionOf().Version,
	}
	if o.readers.given() {
		c.Readers = &o.readers.Readers
	}
	return c
}

// readerUsers is the value of --readers: user names or numbers, separated by commas, or "all". The
// flag may be repeated.
type readerUsers struct {
	fs.Readers
	text []string
}

func (r *readerUsers) given() bool    { return len(r.text) > 0 }
func (r *readerUsers) String() string { return strings.Join(r.text, ",") }
func (*readerUsers) Type() string     { return "users" }

func (r *readerUsers) Set(text string) error {
	for name := range strings.SplitSeq(text, ",") {
		if name == "all" {
			r.All = true
			continue
		}
		id := name
		if u, err := user.Lookup(name); err == nil {
			id = u.Uid
		}
		uid, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return fmt.Errorf("there is no user %q: give the name of a user of this machine, a user's number, or all", name)
		}
		r.Users = append(r.Users, uint32(uid))
	}
	r.text = append(r.text, text)
	return nil
}

func newUmountCommand(g *globals) *cobra.Command {
	o := &mounting.UnmountOptions{}
	c := &cobra.Command{
		Use:   "umount MNT",
		Short: "Unmount; if the mount is busy, show which processes use it",
		Long: `Unmounts MNT, even if its server was killed, and returns when the server has closed the
dataset. If files are in use, it fails and names the processes that use them. With
--lazy, the mount disappears at once, and its server exits when the last of these
processes has closed its files.`,
		Example: `  lsiofs umount /mnt/train
  lsiofs umount --lazy /mnt/train`,
		Args: exactArgs("MNT"),
		RunE: func(c *cobra.Command, args []string) error {
			o.Point = args[0]
			return mounting.Unmount(c.Context(), *o, g.ui)
		},
	}
	c.Flags().BoolVar(&o.Lazy, "lazy", false, "detach now, and finish when no process uses the mount any more")
	return c
}
