package terminal

import (
	"fmt"
	"log/slog"

	"github.com/lsiofs/lsiofs/pipeline/printable"
)

// LogFormat is the format of log lines, as a flag. The zero value is JSON if results are JSON,
// otherwise text.
type LogFormat string

// Log formats.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

func (f *LogFormat) String() string { return string(*f) }
func (f *LogFormat) Type() string   { return string(LogText + "|" + LogJSON) }

func (f *LogFormat) Set(s string) error {
	if *f = LogFormat(s); *f != LogText && *f != LogJSON {
		return fmt.Errorf("%q is not a log format: use %s or %s", s, LogText, LogJSON)
	}
	return nil
}

// Logger returns a logger that writes records of at least level to stderr.
func (u *UI) Logger(level slog.Level, format LogFormat) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if format == LogJSON || format == "" && u.JSON {
		return slog.New(slog.NewJSONHandler(lockedWriter{u, true}, o))
	}
	return slog.New(slog.NewTextHandler(lockedWriter{u, false}, o))
}

// lockedWriter keeps log lines and the ui's own lines intact.
type lockedWriter struct {
	u    *UI
	json bool // lines are JSON
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.u.mu.Lock()
	defer w.u.mu.Unlock()
	w.u.wipe()
	if !w.json { // slog has already quoted unprintable characters
		return w.u.Err.Write(p)
	}
	if _, err := w.u.Err.Write(printable.JSON(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}
