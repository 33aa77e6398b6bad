package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
)

// runDaemon starts this command again, detached, and returns when its mount is
// ready or has failed.
func runDaemon(ctx context.Context, o *mountOptions, g *globals) error {
	// What can be said at once is said here, before there is a log.
	if _, _, err := o.resolve(o.dataset); err != nil {
		return err
	}
	if _, err := checkMountPoint(o.point, o.dataset, g.log()); err != nil {
		return err
	}
	logPath, err := o.logPath()
	if err != nil {
		return err
	}
	log, err := openLog(logPath, o.logFile != "")
	if err != nil {
		return coded(exitMount, err)
	}
	defer log.Close()
	rep := &daemonReporter{uiReporter{ui: g.ui, view: newProgressView(g.ui)}, logPath}
	c := mountChild{args: daemonArgs(g.args), output: log, detach: true}
	if err := c.start(ctx, rep); err != nil {
		return namingLog(err, logPath)
	}
	return c.cmd.Process.Release()
}

// errWordless is a process that ended and did not say why.
var errWordless = errors.New("the process ended before the mount was ready")

// namingLog adds where the log is to an error that does not say what went wrong.
func namingLog(err error, logPath string) error {
	if errors.Is(err, errWordless) {
		return fmt.Errorf("%w (log: %s)", err, logPath)
	}
	return err
}

// daemonReporter adds what only the parent knows.
type daemonReporter struct {
	uiReporter
	logPath string
}

func (r *daemonReporter) mounted(i mountInfo) {
	i.LogFile, i.detached = r.logPath, true
	r.uiReporter.mounted(i)
}

// daemonArgs are the arguments for the detached process: the same without the
// verb and --daemon. Only arguments before "--" can be that flag.
func daemonArgs(args []string) []string {
	var out []string
	verb := false
	for i, a := range args {
		if a == "--" {
			return append(out, args[i:]...)
		}
		switch {
		case a == "mount" && !verb:
			verb = true
		case a == "--daemon" || strings.HasPrefix(a, "--daemon="):
		default:
			out = append(out, a)
		}
	}
	return out
}

// logPath is --log-file, or a file beside the indexes that is named after the
// mount point.
func (o *mountOptions) logPath() (string, error) {
	if o.logFile != "" {
		return filepath.Abs(o.logFile)
	}
	dir, _, err := catalog.DirectoryFor(o.spec.IndexDir, o.dataset)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("log directory: %w (choose a file with --log-file)", err)
	}
	point, err := filepath.Abs(o.point)
	if err != nil {
		return "", err
	}
	h := fnv.New32a()
	io.WriteString(h, point)
	return filepath.Join(dir, fmt.Sprintf("mount-%s-%08x.log", filepath.Base(point), h.Sum32())), nil
}

// openLog opens a log to be appended to. One that nobody has asked for by its name
// may lie in a directory of others, who could have put a link, a pipe or a file that
// they read there: it has to be believable as an index is.
func openLog(path string, asked bool) (*os.File, error) {
	flags := os.O_CREATE | os.O_APPEND | os.O_WRONLY
	if asked {
		return os.OpenFile(path, flags, 0o600)
	}
	f, err := os.OpenFile(path, flags|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log: %w (choose a file with --log-file)", err)
	}
	if err := believableLog(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("log %s: %w: remove it, or choose a file with --log-file", path, err)
	}
	return f, nil
}

// believableLog says why others may have made a log, or get at it.
func believableLog(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Sys().(*syscall.Stat_t).Nlink > 1 {
		return errors.New("it has another name as well")
	}
	trusted, err := catalog.TrustIn(filepath.Dir(f.Name()))
	if err != nil {
		return err
	}
	return trusted.Believable(info)
}

// mountChild is a mount in a process of its own.
type mountChild struct {
	args   []string // of the mount, without the verb
	output *os.File // its stdout and stderr
	detach bool     // in a session of its own, outliving this process
	cmd    *exec.Cmd
}

// start starts the process and waits until its mount is ready, passing on to
// rep what it says meanwhile. On an error the process has ended. When ctx ends
// first, the process is told to stop, and waited for.
func (c *mountChild) start(ctx context.Context, rep reporter) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	c.cmd = exec.Command(self, append([]string{"mount", "--ready-fd=3"}, c.args...)...)
	c.cmd.Stdout, c.cmd.Stderr = c.output, c.output
	c.cmd.ExtraFiles = []*os.File{w}
	// Either way a Ctrl-C at the terminal is for this process to deal with.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: c.detach, Setpgid: !c.detach}
	err = c.cmd.Start()
	w.Close()
	if err != nil {
		return coded(exitMount, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	err = follow(r, rep)
	if !stop() {
		err = context.Canceled // it was told to stop, whatever it came to
	}
	rep.ended(err)
	if err != nil {
		_ = c.cmd.Wait() // its exit code says less than err
	}
	return err
}

// follow reads a child's messages until it is ready or has failed.
func follow(r io.Reader, rep reporter) error {
	messages := json.NewDecoder(r)
	for {
		var m readyMessage
		if err := messages.Decode(&m); err != nil {
			if errors.Is(err, io.EOF) {
				err = errWordless
			}
			return coded(exitMount, err)
		}
		switch {
		case m.Progress != nil:
			rep.progress(*m.Progress)
		case m.Warning != "":
			rep.warn(m.Warning)
		case m.Error != nil:
			return codedf(m.Error.Code, "%s", m.Error.Text)
		case m.Mounted != nil:
			rep.mounted(*m.Mounted)
			return nil
		}
	}
}
