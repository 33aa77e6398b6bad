package opening

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/growing/snapshot"
)

// Waited is what is reported while waiting for an epoch of a growing dataset.
type Waited struct {
	For      string `json:"waiting"` // why it can't start yet
	Shards   int    `json:"shards"`
	Indexing int    `json:"indexing"`
	Settling int    `json:"settling"`
	Waiting  int    `json:"waiting_shards"`
	// Why is the reason for the first of these.
	Why string `json:"waiting_why,omitempty"`
}

// WaitingFor returns the report for a dataset's status.
func WaitingFor(s snapshot.Status) Waited {
	w := Waited{For: cmp.Or(s.NextEpoch, "an epoch"), Shards: s.Shards, Indexing: s.Indexing, Settling: s.Settling, Waiting: s.WaitingShards}
	if len(s.Waiting) > 0 {
		w.Why = s.Waiting[0].Path + ": " + s.Waiting[0].Reason
	}
	return w
}

func (w Waited) String() string {
	parts := []string{w.For}
	for _, p := range []struct {
		n    int
		what string
	}{{w.Indexing, "to be indexed"}, {w.Settling, "that may still be being written"}, {w.Waiting, "not complete yet"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", terminal.Plural(uint64(p.n), "file"), p.what))
		}
	}
	if w.Why != "" {
		parts = append(parts, w.Why)
	}
	return strings.Join(parts, "; ")
}

// Waiting shows what is being waited for: one line that is overwritten on a terminal, otherwise a
// line every waitingEvery. It is not safe for concurrent use.
type Waiting struct {
	ui    *terminal.UI
	line  *terminal.StatusLine
	began time.Time
	next  time.Duration
	said  bool
}

// waitingEvery is the interval of lines that can't be overwritten, after the first.
const waitingEvery = 30 * time.Second

// NewWaiting returns a view that shows nothing yet.
func NewWaiting(u *terminal.UI) *Waiting {
	return &Waiting{ui: u, line: u.NewStatusLine(), began: time.Now()}
}

// Show shows the next state.
func (v *Waiting) Show(w Waited) {
	if v.ui.Terminal && !v.ui.JSON {
		v.line.Show("waiting: " + w.String())
		return
	}
	elapsed := time.Since(v.began)
	if v.said && elapsed < v.next {
		return
	}
	v.said, v.next = true, elapsed+waitingEvery
	if v.ui.JSON {
		v.ui.WriteProgress(w)
		return
	}
	v.ui.Notef("waiting: %s", w)
}

// Clear removes the line from the screen.
func (v *Waiting) Clear() { v.line.Clear() }
