package mounting

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
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
