package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"

	"github.com/lsiofs/lsiofs/pipeline/printable"
)

// ui is where a command writes: data to out, everything else to err. Its
// methods may be called concurrently.
type ui struct {
	out, err io.Writer
	json     bool
	terminal bool // err is one: redrawing is welcome

	mu sync.Mutex
}

func newUI(out, err io.Writer) *ui {
	u := &ui{out: out, err: err}
	if f, ok := err.(*os.File); ok {
		u.terminal = term.IsTerminal(int(f.Fd()))
	}
	return u
}

// notef writes a line for people; nothing under --json.
func (u *ui) notef(format string, args ...any) {
	if u.json {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	fmt.Fprintln(u.err, printable.Text(fmt.Sprintf(format, args...)))
}

// warn writes a warning.
func (u *ui) warn(text string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.json {
		writeJSON(u.err, map[string]string{"warning": text})
		return
	}
	fmt.Fprintf(u.err, "warning: %s\n", printable.Text(text))
}

// emit writes one JSON object, on a line of its own, to stdout.
func (u *ui) emit(v any) error { return writeJSON(u.out, v) }

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

// printf writes text for people to stdout.
func (u *ui) printf(format string, args ...any) error {
	_, err := io.WriteString(u.out, printable.Text(fmt.Sprintf(format, args...)))
	return err
}

// reportError prints err, once, and gives the code to exit with.
func (u *ui) reportError(err error) exitCode {
	code := errorCode(err)
	text := err.Error()
	if text == "" || code == exitPipe {
		return code
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.json {
		writeJSON(u.err, struct {
			Error string   `json:"error"`
			Code  exitCode `json:"exit_code"`
			Name  string   `json:"exit_name"`
		}{text, code, code.name()})
		return code
	}
	for line := range strings.Lines(text) {
		prefix := "lsiofs: "
		if strings.HasPrefix(line, "    ") {
			prefix = "" // a program, to be copied
		}
		fmt.Fprintf(u.err, "%s%s\n", prefix, printable.Text(strings.TrimSuffix(line, "\n")))
	}
	return code
}

// logger writes to stderr what happens at level and above.
func (u *ui) logger(level slog.Level, format logFormat) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if format == logJSON || format == "" && u.json {
		return slog.New(slog.NewJSONHandler(lockedWriter{u, true}, o))
	}
	return slog.New(slog.NewTextHandler(lockedWriter{u, false}, o))
}

// lockedWriter keeps log lines and the ui's own lines whole.
type lockedWriter struct {
	u    *ui
	json bool // what is written is
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.u.mu.Lock()
	defer w.u.mu.Unlock()
	if !w.json { // what can't be printed is quoted by then
		return w.u.err.Write(p)
	}
	if _, err := w.u.err.Write(printable.JSON(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}
