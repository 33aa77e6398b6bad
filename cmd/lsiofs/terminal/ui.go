package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/pipeline/printable"
)

// UI is the output of a command: data goes to Out, everything else to Err. Its methods are safe for
// concurrent use; the fields are set before that.
type UI struct {
	Out, Err io.Writer
	JSON     bool // write objects, one a line, instead of sentences
	Terminal bool // Err is a terminal, so lines may be redrawn

	mu    sync.Mutex
	drawn bool // a bar or status line occupies the screen's last line
}

// wipe removes a bar or status line from the screen's last line before another line is written. It
// is redrawn at its next change. The caller holds mu.
func (u *UI) wipe() {
	if u.drawn {
		fmt.Fprint(u.Err, "\r\x1b[K")
		u.drawn = false
	}
}

// New returns a UI that writes sentences. It detects whether err is a terminal.
func New(out, err io.Writer) *UI {
	u := &UI{Out: out, Err: err}
	if f, ok := err.(*os.File); ok {
		u.Terminal = term.IsTerminal(int(f.Fd()))
	}
	return u
}

// Notef writes a line for people, or nothing with --json.
func (u *UI) Notef(format string, args ...any) {
	if u.JSON {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.wipe()
	fmt.Fprintln(u.Err, printable.Text(fmt.Sprintf(format, args...)))
}

// slow is how long a command may show no sign of life.
const slow = 3 * time.Second

// WhenSlow writes a line, like Notef, if what begins now takes longer than slow. The caller calls
// done once at its end.
func (u *UI) WhenSlow(format string, args ...any) (done func()) {
	said := make(chan struct{})
	timer := time.AfterFunc(slow, func() {
		defer close(said)
		u.Notef(format, args...)
	})
	return func() {
		if !timer.Stop() {
			<-said
		}
	}
}

// Warn writes a warning.
func (u *UI) Warn(text string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.wipe()
	if u.JSON {
		writeJSON(u.Err, map[string]string{"warning": text})
		return
	}
	fmt.Fprintf(u.Err, "warning: %s\n", printable.Text(text))
}

// Said writes, as JSON, a line that another program has written about something.
func (u *UI) Said(about, line string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	writeJSON(u.Err, map[string]string{"about": about, "stderr": line})
}

// Emit writes one JSON object on its own line to stdout.
func (u *UI) Emit(v any) error { return writeJSON(u.Out, v) }

func writeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(printable.JSON(b.Bytes()))
	return err
}

// WriteProgress writes the progress of a long task as JSON.
func (u *UI) WriteProgress(state any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	writeJSON(u.Err, map[string]any{"progress": state})
}

// Fail writes the error that the program ends with: one line per problem or, with --json, object.
func (u *UI) Fail(text string, object any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.wipe()
	if u.JSON {
		writeJSON(u.Err, object)
		return
	}
	for line := range strings.Lines(text) {
		prefix := "lsiofs: "
		if strings.HasPrefix(line, "    ") {
			prefix = "" // a script to copy
		}
		fmt.Fprintf(u.Err, "%s%s\n", prefix, printable.Text(strings.TrimSuffix(line, "\n")))
	}
}

// Printf writes text for people to stdout.
func (u *UI) Printf(format string, args ...any) error {
	_, err := io.WriteString(u.Out, printable.Text(fmt.Sprintf(format, args...)))
	return err
}

// Save writes the output of a command, such as a page or a report, to a file, atomically and
// readable only by the user, or to stdout for "-".
func (u *UI) Save(path string, doc []byte) error {
	if path == "-" {
		_, err := u.Out.Write(doc)
		return err
	}
	if err := checkpoint.WriteFile(path, doc); err != nil {
		return err
	}
	if u.JSON {
		return u.Emit(map[string]any{"saved": path, "bytes": len(doc)})
	}
	u.Notef("saved %s: %s", path, Bytes(int64(len(doc))))
	return nil
}

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
