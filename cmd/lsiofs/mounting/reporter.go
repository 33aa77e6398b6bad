package mounting

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
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
