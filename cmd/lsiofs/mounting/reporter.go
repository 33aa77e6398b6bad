package mounting

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/inspect"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Reporter receives the events of a mount. Unless noted otherwise, its methods are called one at a
// time.
type Reporter interface {
	Progress(catalog.Progress)
	// Filling is called while the cache is filled, before the dataset is mounted.
	Filling(opening.Filled)
	// Waiting is called while a growing dataset's first epoch can't start yet.
	Waiting(opening.Waited)
	Warn(text string)
	// Trouble receives the reason why requests to a service are waiting. It may be called at any
	// time, concurrently with the other methods.
	Trouble(text string)
	Mounted(Info)
	// Serving is called periodically while the mount is served.
	Serving(sentence func() string)
	// Unmounting is called after a signal. Readers then have a while to finish.
	Unmounting()
	// Ended is called once, last, with the error that the command returns.
	Ended(error)
}

// newReporter returns a reporter to a parent that waits at fd or, if there is none, to the ui.
func newReporter(fd int, u *terminal.UI) (Reporter, error) {
	if fd <= 2 {
		return newUIReporter(u), nil
	}
	f := os.NewFile(uintptr(fd), "ready-fd")
	if _, err := f.Stat(); err != nil {
		return nil, exit.Usagef("--ready-fd (%d) is not an open file", fd)
	}
	return &pipeReporter{file: f, encoder: json.NewEncoder(f)}, nil
}

// TellParent reports an error in a command line that could not be parsed to the parent that waits
// at --ready-fd. It returns false if there is none.
func TellParent(args []string, err error) bool {
	for _, a := range args {
		if number, found := strings.CutPrefix(a, "--ready-fd="); found {
			fd, perr := strconv.Atoi(number)
			if perr != nil || fd <= 2 {
				return false
			}
			rep, rerr := newReporter(fd, nil)
			if rerr == nil {
				rep.Ended(err)
			}
			return rerr == nil
		}
	}
	return false
}

// uiReporter reports to the user, or as JSON.
type uiReporter struct {
	ui      *terminal.UI
	view    *opening.Pass
	filling *opening.Filling
	waiting *opening.Waiting
}

func newUIReporter(u *terminal.UI) *uiReporter {
	return &uiReporter{ui: u, view: opening.NewPass(u), filling: opening.NewFilling(u), waiting: opening.NewWaiting(u)}
}

func (r *uiReporter) Progress(p catalog.Progress) { r.view.Show(p) }
func (r *uiReporter) Filling(f opening.Filled)    { r.filling.Show(f) }
func (r *uiReporter) Waiting(w opening.Waited)    { r.waiting.Show(w) }
func (r *uiReporter) Warn(text string)            { r.clear(); r.ui.Warn(text) }
func (r *uiReporter) Serving(func() string)       {}
func (r *uiReporter) Trouble(string)              {} // the log shows it
func (r *uiReporter) Unmounting()                 {}
func (r *uiReporter) Ended(error)                 { r.clear() }

func (r *uiReporter) clear() {
	r.view.Clear()
	r.filling.Clear()
	r.waiting.Clear()
}

func (r *uiReporter) Mounted(i Info) {
	r.clear()
	if r.ui.JSON {
		// The mount is just as good if its report can't be written.
		_ = r.ui.Emit(i)
		return
	}
	r.ui.Notef("%s", i.text())
}

// readyMessage is a message from a mount to a waiting parent: one JSON object a line, with exactly
// one field set.
type readyMessage struct {
	Progress *catalog.Progress `json:"progress,omitempty"`
	Filling  *opening.Filled   `json:"filling,omitempty"`
	Waiting  *opening.Waited   `json:"waiting,omitempty"`
	Warning  string            `json:"warning,omitempty"`
	Trouble  string            `json:"trouble,omitempty"`
	Mounted  *Info             `json:"mounted,omitempty"`
	Error    *readyError       `json:"error,omitempty"`
}

type readyError struct {
	Text string    `json:"text"`
	Code exit.Code `json:"code"`
}

// pipeReporter reports to a parent until the mount is ready. It ignores write errors, because the
// watch detects the parent's end.
type pipeReporter struct {
	mu        sync.Mutex // guards the pipe, because log warnings may come at any time
	file      *os.File
	encoder   *json.Encoder
	toldError bool // while the parent listened
	watch     parentWatch
	gone      func() // nil: nothing to call
}

// untilReady calls gone if the parent ends before it has received the mount's report: then nothing
// knows of this process or would unmount its mount. After that the mount outlives its parent.
func (r *pipeReporter) untilReady(gone func()) error {
	r.gone = gone
	return r.watch.begin(r.file, gone)
}

// send reports whether the parent has received the message or no longer listens.
func (r *pipeReporter) send(m readyMessage) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.file == nil || r.encoder.Encode(m) == nil
}

func (r *pipeReporter) Progress(p catalog.Progress) { r.send(readyMessage{Progress: &p}) }
func (r *pipeReporter) Filling(f opening.Filled)    { r.send(readyMessage{Filling: &f}) }
func (r *pipeReporter) Waiting(w opening.Waited)    { r.send(readyMessage{Waiting: &w}) }
func (r *pipeReporter) Warn(text string)            { r.send(readyMessage{Warning: text}) }
func (r *pipeReporter) Trouble(text string)         { r.send(readyMessage{Trouble: text}) }

func (r *pipeReporter) Mounted(i Info) {
	i.PID = os.Getpid()
	r.watch.stop() // a parent that has the report may end at once
	if !r.send(readyMessage{Mounted: &i}) && r.gone != nil {
		r.gone()
	}
	r.close()
}

// A parent only listens until the mount is ready.
func (r *pipeReporter) Serving(func() string) {}
func (r *pipeReporter) Unmounting()           {}

func (r *pipeReporter) Ended(err error) {
	if err != nil {
		r.toldError = r.file != nil
		r.send(readyMessage{Error: &readyError{err.Error(), exit.CodeOf(err)}})
	}
	r.close()
}

func (r *pipeReporter) close() {
	r.watch.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file != nil {
		_ = r.file.Close()
		r.file = nil
	}
}

// Silent is a Reporter that shows nothing. Errors are returned as usual.
type Silent struct{}

func (Silent) Progress(catalog.Progress) {}
func (Silent) Filling(opening.Filled)    {}
func (Silent) Waiting(opening.Waited)    {}
func (Silent) Warn(string)               {}
func (Silent) Trouble(string)            {}
func (Silent) Mounted(Info)              {}
func (Silent) Serving(func() string)     {}
func (Silent) Unmounting()               {}
func (Silent) Ended(error)               {}

// Info describes a ready mount.
type Info struct {
	Mount   string `json:"mounted"`
	MountID string `json:"mount_id"` // see fs.Mount.Identity
	Dataset string `json:"dataset"`
	Split   string `json:"split,omitempty"` // as text
	Sample  string `json:"sample,omitempty"`
	Records uint64 `json:"records"`      // after split and sample
	As      string `json:"as,omitempty"` // what streams contain of records, if not their bytes
	Shards  int    `json:"shards"`
	// Taken describes the files that are shards, LeftOut those that are not.
	Taken        string   `json:"taken,omitempty"`
	LeftOut      string   `json:"left_out,omitempty"`
	FilesLeftOut int      `json:"files_left_out"`
	Bytes        int64    `json:"stream_bytes"`
	Epoch        uint64   `json:"epoch"`
	RunDir       string   `json:"run_directory,omitempty"` // of a growing dataset
	Left         uint64   `json:"records_left"`
	Workers      uint64   `json:"workers"`
	Memory       int64    `json:"memory_bytes"` // --memory
	Files        []string `json:"files"`        // the first ones; see namedFiles
	// How records are read and why, and what the first bytes wait for.
	Strategy     string  `json:"read"`
	Reason       string  `json:"read_reason"`
	Start        string  `json:"start,omitempty"`
	StartSeconds float64 `json:"start_seconds"`
	LogFile      string  `json:"log_file,omitempty"`
	PID          int     `json:"pid,omitempty"`
	detached     bool
}

// namedFiles bounds Info.Files: there may be 65536.
const namedFiles = 64

func describeMount(d *pipeline.Dataset, point string, epoch, left uint64, start pipeline.Start) Info {
	f := d.Status().Fetch
	s, c := d.Spec(), d.Catalog()
	i := Info{
		Mount: point, Dataset: s.Dataset, Records: d.Records(), As: string(s.Format.As), Shards: c.Shards(), Bytes: d.StreamBytes(),
		Epoch: epoch, Left: left, Workers: s.Deal.Workers, Memory: s.MemoryBytes,
		Strategy: f.Strategy, Reason: f.Reason, Start: start.Text(), StartSeconds: start.Seconds,
	}
	if lines := opening.SelectionLines(c); len(lines) > 0 {
		i.Taken, i.FilesLeftOut = lines[0], c.PassedOver()
		if len(lines) > 1 {
			i.LeftOut = lines[1]
		}
	}
	if s.Order.Split != (spec.Split{}) {
		i.Split = inspect.SplitText(s.Order.Split)
	}
	if s.Order.Sample != (spec.Subsample{}) {
		i.Sample = s.Order.Sample.String()
	}
	if g := d.Status().Growing; g != nil {
		i.RunDir = g.RunDir
	}
	for w := range min(s.Deal.Workers, namedFiles) {
		i.Files = append(i.Files, filepath.Join(point, fmt.Sprintf("worker-%d%s", w, d.StreamExtension())))
	}
	return i
}

// sentence describes the mount.
func (i Info) sentence() string {
	records := terminal.Plural(i.Records, "record")
	if i.Split != "" {
		records += " (split " + i.Split + ")"
	}
	if i.Sample != "" {
		records += " (sample " + i.Sample + ", different in each epoch)"
	}
	if i.As != "" {
		records += " as " + i.As
	}
	epoch := fmt.Sprintf("epoch %d", i.Epoch)
	if i.RunDir != "" {
		epoch += " of the run in " + i.RunDir
	}
	return fmt.Sprintf("mounted %s on %s: %s in %s, %s; %s, %s to read",
		i.Dataset, i.Mount, records, terminal.Plural(uint64(i.Shards), "shard"), terminal.Bytes(i.Bytes), epoch, terminal.Plural(i.Left, "record"))
}

// text describes the mount and suggests what to type next.
func (i Info) text() string {
	files := i.Files[0]
	if last := i.Workers - 1; last > 0 {
		files += " … worker-" + fmt.Sprint(last) + filepath.Ext(i.Files[0])
	}
	at := terminal.Quote(i.Mount)
	stop := "or Ctrl-C here"
	if i.detached {
		stop = fmt.Sprintf("the server is process %d, its log is %s", i.PID, i.LogFile)
	}
	chosen := ""
	for _, line := range []string{i.Taken, i.LeftOut} {
		if line != "" {
			chosen += "\n  " + line
		}
	}
	start := ""
	if i.StartSeconds >= 1 {
		start = "\n  start    " + i.Start
	}
	return fmt.Sprintf(`%s
  read     %s
  look     ls -l %s; cat %s/README
  save     cp %s/epoch-%d/from-M/checkpoint ckpt.json   (after M records)
  unmount  lsiofs umount %s   (%s)
  fetch    %s (%s), with --memory %s%s`,
		i.sentence()+chosen,
		files, at, at, at, i.Epoch, at, stop, i.Strategy, i.Reason, terminal.Size(uint64(i.Memory)), start)
}

// forwarding is a handler for a log in a file, which the user does not see while the mount starts.
// It also passes warnings to the user who started the mount.
type forwarding struct {
	slog.Handler
	warn  func(text string) // called at any time
	attrs []slog.Attr
}

// forwardWarnings returns a logger that also calls warn for each warning and error.
func forwardWarnings(log *slog.Logger, warn func(text string)) *slog.Logger {
	return slog.New(&forwarding{Handler: log.Handler(), warn: warn})
}

func (h *forwarding) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		var b strings.Builder
		b.WriteString(r.Message)
		between := " ("
		add := func(a slog.Attr) bool {
			b.WriteString(between + a.Key + "=" + terminal.Quote(a.Value.String()))
			between = ", "
			return true
		}
		for _, a := range h.attrs {
			add(a)
		}
		r.Attrs(add)
		if between == ", " {
			b.WriteByte(')')
		}
		h.warn(b.String())
	}
	return h.Handler.Handle(ctx, r)
}

func (h *forwarding) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &forwarding{h.Handler.WithAttrs(attrs), h.warn, append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)}
}

// WithGroup implements slog.Handler. It drops the group's name from warnings, since it does not
// help the user.
func (h *forwarding) WithGroup(name string) slog.Handler {
	return &forwarding{h.Handler.WithGroup(name), h.warn, h.attrs}
}
