package fs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/lsiofs/lsiofs/pipeline/printable"
	"github.com/lsiofs/lsiofs/pipeline/read"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// problems keeps the last faults of reads and look-ups, for status, and logs them: a fault at once
// when it is new, and from then on with a count, at most once per problemAgain and at the end. It
// is safe for concurrent use.
type problems struct {
	log *slog.Logger
	// grows is set if the dataset grows: then errors are reworded.
	grows bool

	mu     sync.Mutex
	faults []*problem // the most recent last
	total  uint64
	// dropped counts the failures that were never logged and whose faults were dropped to make room
	// for others.
	dropped uint64
	window  time.Time
	logged  int // lines since window
}

// A missing shard can fail thousands of reads a second, each with another range. problemsKept
// faults are counted, problemLines of them are logged per problemWindow, and problemsShown are
// shown in status.
const (
	problemsKept  = 256
	problemsShown = 8
	problemLines  = 5
	problemWindow = 10 * time.Second
	problemAgain  = time.Minute
)

// problem is a fault: an error that clients got as EIO, with its object and range as far as known.
// Failures with the same object, range and reason are the same fault, whatever file was read.
type problem struct {
	Time   time.Time `json:"time"` // of the latest failure
	First  time.Time `json:"first"`
	Text   string    `json:"text"`
	Object string    `json:"object,omitempty"`
	// OffsetBytes and SizeBytes are the range of the object that was to be read.
	OffsetBytes int64  `json:"offset_bytes"`
	SizeBytes   int64  `json:"size_bytes"`
	Errno       string `json:"errno"`
	Count       uint64 `json:"count"`

	reason   string
	toldAt   time.Time // when it was last logged
	untold   uint64    // part of Count that is not logged yet
	announce bool      // it was never logged
}

// describe finds out what an error is about.
func describe(name string, err error) problem {
	p := problem{Text: name + ": " + err.Error(), Errno: errnoName(err), reason: err.Error()}
	if r, ok := errors.AsType[*read.RecordError](err); ok {
		p.Object, p.OffsetBytes, p.SizeBytes, p.reason = r.Shard, r.OffsetBytes, r.SizeBytes, r.Err.Error()
	}
	if s, ok := errors.AsType[*storage.Error](err); ok {
		// One read covers several records, which fail together.
		p.Object, p.OffsetBytes, p.SizeBytes, p.reason = s.Object, s.OffsetBytes, s.SizeBytes, s.Err.Error()
	}
	return p
}

func (p *problem) same(x *problem) bool {
	return p.Object == x.Object && p.OffsetBytes == x.OffsetBytes && p.SizeBytes == x.SizeBytes && p.reason == x.reason
}

// note counts a fault, and logs it if it is due.
func (p *problems) note(name string, err error) {
	if p.grows {
		err = reworded(err)
	}
	now, x := time.Now(), describe(name, err)
	p.mu.Lock()
	f := p.find(&x)
	f.Time, f.Text = now, x.Text
	f.Count++
	f.untold++
	p.total++
	due := f.announce || now.Sub(f.toldAt) >= problemAgain
	if due = due && p.mayLog(now); due {
		x = f.tell(now)
	}
	p.mu.Unlock()
	if due {
		x.write(p.log)
	}
}

// find returns the fault that is the same as x, adding it if it is new, and moves it to the end.
func (p *problems) find(x *problem) *problem {
	i := slices.IndexFunc(p.faults, x.same)
	if i < 0 {
		if len(p.faults) == problemsKept {
			p.dropped += p.faults[0].untold
			p.faults = slices.Delete(p.faults, 0, 1)
		}
		x := *x
		x.First, x.announce = time.Now(), true
		p.faults = append(p.faults, &x)
		return &x
	}
	f := p.faults[i]
	p.faults = append(slices.Delete(p.faults, i, i+1), f)
	return f
}

// mayLog uses one of the lines of a window, if any is left.
func (p *problems) mayLog(now time.Time) bool {
	if now.Sub(p.window) >= problemWindow {
		p.window, p.logged = now, 0
	}
	if p.logged == problemLines {
		return false
	}
	p.logged++
	return true
}

// tell marks a fault as logged, and returns a copy to log.
func (p *problem) tell(now time.Time) problem {
	told := *p
	p.untold, p.toldAt, p.announce = 0, now, false
	return told
}

// write logs a fault, with its total count.
func (p *problem) write(log *slog.Logger) {
	attrs := []slog.Attr{slog.String("error", p.Text)}
	if p.Object != "" {
		attrs = append(attrs, slog.String("object", p.Object), slog.String("range", fmt.Sprintf("[%d, %d)", p.OffsetBytes, p.OffsetBytes+p.SizeBytes)))
	}
	attrs = append(attrs, slog.String("errno", p.Errno), slog.Uint64("count", p.Count))
	log.LogAttrs(context.Background(), slog.LevelError, "a read failed", attrs...)
}

// flush logs what has not been logged, at the end of the mount: the last problemsShown faults, and
// how many more there were.
func (p *problems) flush() {
	p.mu.Lock()
	now := time.Now()
	var told []problem
	faults, times := 0, p.dropped
	for _, f := range slices.Backward(p.faults) {
		switch {
		case f.untold == 0:
		case len(told) < problemsShown:
			told = append(told, f.tell(now))
		default:
			faults++
			times += f.tell(now).untold
		}
	}
	p.dropped = 0
	p.mu.Unlock()
	for _, f := range slices.Backward(told) {
		f.write(p.log)
	}
	if times > 0 {
		p.log.Error("more reads failed", "count", times, "faults", faults)
	}
}

// snapshot returns the last problems, oldest first, and how often clients got EIO.
func (p *problems) snapshot() ([]problem, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	shown := p.faults[max(0, len(p.faults)-problemsShown):]
	last := make([]problem, len(shown))
	for i, f := range shown {
		last[i] = *f
	}
	return last, p.total
}

// changeLog logs a warning for each shard that has changed since it was indexed, once. The reads
// that find the change can't log it themselves, because they hold locks. Only one goroutine may use
// it at a time.
type changeLog struct {
	log  *slog.Logger
	help string
	told int
	more bool // the log has mentioned that there are more than it names
}

func (l *changeLog) tell(c *read.Changed) {
	if c == nil {
		return
	}
	for _, x := range c.First[l.told:] {
		l.log.Warn("a shard has changed since it was indexed", "shard", x.Shard, "reason", x.Reason, "help", l.help)
	}
	if l.told = len(c.First); c.Count > l.told && !l.more {
		l.more = true
		l.log.Warn("more shards have changed since they were indexed: see status for the count", "help", l.help)
	}
}

// changedHelp is the advice about shards that have changed.
func (t *tree) changedHelp() string {
	if t.growing != nil {
		return "readers of their old contents get EIO; continue with the next epoch (lsiofs next)"
	}
	return "readers of their old contents get EIO; mount again to index the new contents"
}

// changesShown bounds the list in the text of status.
const changesShown = 8

// writeChanged lists the shards that have changed.
func writeChanged(b *bytes.Buffer, c *read.Changed, help string) {
	if c == nil {
		return
	}
	fmt.Fprintf(b, "\nchanged since they were indexed: %s; %s\n", english.Plural(c.Count, "shard", ""), help)
	for _, x := range c.First[:min(len(c.First), changesShown)] {
		fmt.Fprintf(b, "  %s %s: %s\n", stamp(x.Seen), printable.Line(x.Shard), printable.Line(x.Reason))
	}
	if more := c.Count - changesShown; more > 0 {
		fmt.Fprintf(b, "  … and %d more\n", more)
	}
}

// refusals keeps why the last checkpoint was refused, for status: a writer only gets an errno, and
// some shells ignore even that.
type refusals struct {
	mu   sync.Mutex
	last refusal
	all  uint64
}

type refusal struct {
	Time   time.Time `json:"time"`
	Reason string    `json:"reason"`
	// Restored is set if a restore has succeeded since.
	Restored bool `json:"restored_since"`
}

func (r *refusals) note(log *slog.Logger, err error) {
	r.mu.Lock()
	again := r.last.Reason == err.Error()
	r.last = refusal{Time: time.Now(), Reason: err.Error()}
	r.all++
	r.mu.Unlock()
	if !again {
		log.Warn("checkpoint not restored", "reason", err)
	}
}

// settled records that a restore has succeeded.
func (r *refusals) settled() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last.Restored = true
}

// snapshot returns the last refusal, nil if there was none, and the number of refusals.
func (r *refusals) snapshot() (*refusal, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == 0 {
		return nil, 0
	}
	last := r.last
	return &last, r.all
}
