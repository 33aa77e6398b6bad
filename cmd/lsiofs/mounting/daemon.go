package mounting

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
)

// Daemon starts this command again, whose arguments were args, detached, and
// returns when its mount is ready or has failed. It logs to logFile; where that is ""
// to a file beside the indexes.
func Daemon(ctx context.Context, o *Config, logFile string, args []string) error {
	// What can be said at once is said here, before there is a log.
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

// errWordless is a process that ended and did not say why.
var errWordless = errors.New("the mount's process ended before the mount was ready")

// namingLog adds where the log is to an error that does not say what went wrong.
func namingLog(err error, logPath string) error {
	if errors.Is(err, errWordless) {
		return fmt.Errorf("%w: its log may have the reason (%s)", err, logPath)
	}
	return err
}

// daemonReporter adds what only the parent knows.
type daemonReporter struct {
	uiReporter
	logPath string
}

func (r *daemonReporter) Mounted(i Info) {
	i.LogFile, i.detached = r.logPath, true
	r.uiReporter.Mounted(i)
}

// daemonArgs are the arguments for the detached process: the same without the
// verb and --daemon, and with the log's path. Only arguments before "--" can be flags, of
// which the last one counts.
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
