package mounting

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
)

// Daemon starts this command, whose arguments were args, again as a detached process. It returns
// when the mount is ready or has failed. The daemon logs to logFile or, if that is "", to a file
// next to the indexes.
func Daemon(ctx context.Context, o *Config, logFile string, args []string) error {
	// Errors that can be found immediately are reported here, before there is a log.
	s, _, err := o.Resolve()
	if err != nil {
		return err
	}
	point, err := preparePoint(ctx, o, s)
	if err != nil {
		return err
	}
	log, err := o.openDaemonLog(logFile, s.IndexDir, point)
	if err != nil {
		return exit.With(exit.Mount, err)
	}
	defer log.Close()
	logPath := log.Name()
	rep := &daemonReporter{*newUIReporter(o.UI), logPath}
	c := Child{Args: daemonArgs(args, logPath), Output: log, detach: true}
	if err := c.Start(ctx, rep); err != nil {
		return namingLog(err, logPath)
	}
	return c.Cmd.Process.Release()
}

// errWordless means that the process ended without reporting a reason.
var errWordless = errors.New("the mount's process ended before the mount was ready")

// namingLog adds the log's path to an error without a reason.
func namingLog(err error, logPath string) error {
	if errors.Is(err, errWordless) {
		return fmt.Errorf("%w: its log may give the reason (%s)", err, logPath)
	}
	return err
}

// daemonReporter adds facts that only the parent knows.
type daemonReporter struct {
	uiReporter
	logPath string
}

func (r *daemonReporter) Mounted(i Info) {
	i.LogFile, i.detached = r.logPath, true
	r.uiReporter.Mounted(i)
}

// daemonArgs returns the arguments of the detached process: the same without the verb and --daemon,
// and with the log's path. Only arguments before "--" can be flags. If a flag is repeated, the last
// one counts.
func daemonArgs(args []string, logPath string) []string {
	var out []string
	logFlag := "--log-file=" + logPath
	verb := false
	for i, a := range args {
		if a == "--" {
			return append(append(out, logFlag), args[i:]...)
		}
		switch {
		case a == "mount" && !verb:
			verb = true
		case a == "--daemon" || strings.HasPrefix(a, "--daemon="):
		default:
			out = append(out, a)
		}
	}
	return append(out, logFlag)
}

// openDaemonLog opens the log of a mount at point: the requested file, or one named after the mount
// point next to the indexes or, if that is not possible, in a temporary directory.
func (o *Config) openDaemonLog(asked, indexDir, point string) (*os.File, error) {
	if asked != "" {
		path, err := filepath.Abs(asked)
		if err != nil {
			return nil, err
		}
		if err := outside(point, "--log-file", path); err != nil {
			return nil, err
		}
		f, err := os.OpenFile(existing(path), logFlags, 0o600)
		if err != nil {
			err = fmt.Errorf("log file: %w: choose another one with --log-file", err)
		}
		return f, err
	}
	name := logName(point)
	dir, _, err := catalog.DirectoryFor(indexDir, o.Dataset)
	if err == nil {
		var f *os.File
		if f, err = openOwnLog(filepath.Join(dir, name)); err == nil || errors.Is(err, errDoubtful) {
			return f, err
		}
	}
	if dir, ownErr := ownTemporary(); ownErr == nil {
		if f, ownErr := openOwnLog(filepath.Join(dir, name)); ownErr == nil || errors.Is(ownErr, errDoubtful) {
			return f, ownErr
		}
	}
	return nil, fmt.Errorf("log file: %w: choose another one with --log-file", err)
}

// logName returns the file name of the log of a mount at point.
func logName(point string) string {
	h := fnv.New32a()
	io.WriteString(h, point)
	return fmt.Sprintf("mount-%s-%08x.log", filepath.Base(point), h.Sum32())
}

// ownTemporary returns a directory for temporary files that only this user can access.
func ownTemporary() (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("lsiofs-%d", os.Geteuid()))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		return "", fmt.Errorf("%s must be a directory that only this user can access", dir)
	}
	return dir, nil
}

// logFlags open a log for appending.
const logFlags = os.O_CREATE | os.O_APPEND | os.O_WRONLY

// errDoubtful is wrapped if other users may have created the log or can access it.
var errDoubtful = errors.New("it can't be trusted")

// openOwnLog opens a log whose path the user did not choose. It may be in a directory of other
// users, who could have put a link, a pipe or a readable file there. So it has to meet the same
// conditions as an index.
func openOwnLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, logFlags|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) { // a link, a pipe
		err = fmt.Errorf("log %s: %w: %w: remove it, or choose a file with --log-file", path, errDoubtful, err)
	}
	if err != nil {
		return nil, err
	}
	if err := believableLog(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("log %s: %w: %w: remove it, or choose a file with --log-file", path, errDoubtful, err)
	}
	return f, nil
}

// believableLog returns an error if other users may have created the log or can access it.
func believableLog(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Sys().(*syscall.Stat_t).Nlink > 1 {
		return errors.New("it has more than one hard link")
	}
	trusted, err := index.TrustIn(filepath.Dir(f.Name()))
	if err != nil {
		return err
	}
	return trusted.Believable(info)
}

// ReopenLog makes a daemon write to a new file at its log's path, after a log rotator has moved the
// old file away. If that fails, the old file stays in use.
func ReopenLog(path string, log *slog.Logger) {
	if info, err := os.Stderr.Stat(); err == nil && !info.Mode().IsRegular() {
		return // such as /dev/null
	}
	f, err := openOwnLog(path)
	for _, fd := range []int{1, 2} {
		if err == nil {
			err = unix.Dup3(int(f.Fd()), fd, 0)
		}
	}
	if err != nil {
		log.Warn("SIGHUP: the log continues in the old file", "error", err)
		return
	}
	_ = f.Close()
	log.Info("SIGHUP: the log was reopened", "file", path)
}
