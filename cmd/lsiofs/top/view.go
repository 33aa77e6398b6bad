package top

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/fs"
	"github.com/lsiofs/lsiofs/pipeline/explain"
	"github.com/lsiofs/lsiofs/pipeline/printable"
)

// streamLine is the progress of one stream.
type streamLine struct {
	Name           string  `json:"name"`
	DeliveredBytes int64   `json:"delivered_bytes"`
	SizeBytes      int64   `json:"size_bytes"`
	BytesPerSecond float64 `json:"bytes_per_second"`
	// LeftSeconds is the time until its end at this rate, or -1 if unknown.
	LeftSeconds float64 `json:"left_seconds"`
	// EpochShare is the position in the epoch, for streams below epoch-N.
	EpochShare float64 `json:"epoch_share,omitempty"`
}

// Line is a frame for --json.
type Line struct {
	Time        time.Time        `json:"time"`
	Dataset     string           `json:"dataset"`
	Epoch       uint64           `json:"epoch"`
	Silent      float64          `json:"silent_seconds"`
	Verdict     explain.Verdict  `json:"verdict"`
	Waiting     *explain.Waiting `json:"waiting,omitempty"`
	Second      explain.Window   `json:"second"`
	Minute      explain.Window   `json:"minute"`
	Streams     []streamLine     `json:"streams"`
	HeldBytes   int64            `json:"held_bytes"`
	BudgetBytes int64            `json:"budget_bytes"`
	Hits        uint64           `json:"hits"`
	Waits       uint64           `json:"waits"`
	ReadAgain   uint64           `json:"pieces_reread"`
	Retries     uint64           `json:"retries"`
	Errors      uint64           `json:"errors"`
	Skipped     uint64           `json:"skipped"`
	// Remote and Cache describe the service that stores the dataset, and the dataset's disk cache.
	Remote *fs.RemoteReport `json:"remote,omitempty"`
	Cache  *fs.CacheReport  `json:"cache,omitempty"`
	// Growing is the state of a growing dataset.
	Growing *fs.GrowingReport `json:"growing,omitempty"`
}

func (f *frame) line() Line {
	s, x := f.now, f.now.Pipeline.Fetch
	return Line{
		Time: s.Started.Add(time.Duration(s.UptimeSeconds * float64(time.Second))), Dataset: s.Dataset, Epoch: f.epochNumber(), Silent: f.silent.Seconds(),
		Verdict: s.Explain.Verdict, Waiting: s.Explain.Waiting, Second: s.Explain.Second, Minute: s.Explain.Minute, Streams: f.streams(),
		HeldBytes: x.HeldBytes, BudgetBytes: x.BudgetBytes, Hits: x.Hits, Waits: x.Waits, ReadAgain: x.PiecesReread,
		Retries: s.Pipeline.Retries.Retries, Errors: s.Errors, Skipped: skipped(s),
		Remote: s.Pipeline.Remote, Cache: s.Pipeline.Cache, Growing: s.Growing,
	}
}

// skipped returns how much was left out as damaged.
func skipped(s *fs.Status) (n uint64) {
	for _, count := range s.Pipeline.Damages {
		n += count
	}
	return n
}

// streams returns the streams that are being read, with their rates between the two states: those
// below epoch-N and those of the root. If neither is being read, it returns those of the root.
func (f *frame) streams() []streamLine {
	lines := f.reading()
	if len(lines) > 0 && !f.readsRoot() {
		return lines
	}
	return append(lines, f.rootStreams()...)
}

// rootStreams returns the streams of the root's worker files.
func (f *frame) rootStreams() []streamLine {
	lines := make([]streamLine, len(f.now.Files))
	for i, x := range f.now.Files {
		lines[i] = streamLine{Name: x.Name, DeliveredBytes: x.DeliveredBytes, SizeBytes: x.SizeBytes, LeftSeconds: -1}
		if x.DeliveredBytes == x.SizeBytes {
			lines[i].LeftSeconds = 0
		}
		if f.before == nil || i >= len(f.before.Files) {
			continue
		}
		seconds := f.now.UptimeSeconds - f.before.UptimeSeconds
		if grown := x.DeliveredBytes - f.before.Files[i].DeliveredBytes; grown > 0 && seconds > 0 {
			lines[i].BytesPerSecond = float64(grown) / seconds
			lines[i].LeftSeconds = float64(x.SizeBytes-x.DeliveredBytes) / lines[i].BytesPerSecond
		}
	}
	return lines
}

// epoch returns the share of the epoch's bytes that was sent, and when the last stream ends, or -1
// if unknown.
func (f *frame) epoch() (share, leftSeconds float64) {
	var sent, size int64
	lines := f.rootStreams()
	if f.readsBelow() {
		lines = f.latestReading()
	}
	for _, l := range lines {
		sent, size = sent+l.DeliveredBytes, size+l.SizeBytes
		if leftSeconds >= 0 {
			leftSeconds = max(leftSeconds, l.LeftSeconds)
		}
		if l.LeftSeconds < 0 {
			leftSeconds = -1
		}
	}
	switch {
	case f.readsBelow():
		return f.now.Reading.EpochShare, leftSeconds
	case size == 0:
		return 1, 0
	}
	return float64(sent) / float64(size), leftSeconds
}

// short formats a frame as one line.
func (f *frame) short() string {
	if f.silent > 0 {
		return f.silence()
	}
	share, left := f.epoch()
	return printable.Line(fmt.Sprintf("%s/s, epoch %d %.0f %%%s: %s", terminal.Bytes(int64(f.rate())), f.epochNumber(), share*100, leftText(", ", left), f.now.Explain.Verdict.Text))
}

func (f *frame) silence() string {
	if f.stopped != nil {
		return printable.Line(f.stopped.Error())
	}
	return printable.Line(fmt.Sprintf("%s has not answered for %s", f.point, terminal.Round(f.silent)))
}

// rate returns the number of bytes that readers received in the last second.
func (f *frame) rate() float64 {
	stages := f.now.Explain.Second.Stages
	if len(stages) == 0 {
		return 0
	}
	return stages[len(stages)-1].BytesPerSecond
}

func leftText(before string, seconds float64) string {
	if seconds < 0 {
		return ""
	}
	return before + terminal.Round(time.Duration(seconds*float64(time.Second))).String() + " left"
}

// shownStreams bounds the streams listed in a frame.
const shownStreams = 16

// draw formats a frame as text. Lines have at most width columns, and each rune takes one.
func (f *frame) draw(width int) string {
	width = min(max(width, 40), 160)
	var b strings.Builder
	say := func(format string, args ...any) {
		b.WriteString(clip(printable.Line(fmt.Sprintf(format, args...)), width) + "\n")
	}
	s := f.now
	head := s.Explain.Verdict.Text
	if f.silent > 0 {
		head = f.silence() + "; before that, " + head
	}
	for _, l := range wrap(printable.Line(head), width) {
		say("%s", l)
	}
	say("")
	share, left := f.epoch()
	say("epoch %d, %.1f %% read%s   %s", f.epochNumber(), share*100, leftText(", ", left), s.MountPoint)
	say("")
	f.drawStages(say, width)
	say("")
	f.drawFacts(say, width)
	say("")
	f.drawStreams(say, width)
	return b.String()
}

// drawStages draws a row for the readers' own time, and one per stage.
func (f *frame) drawStages(say func(string, ...any), width int) {
	e := &f.now.Explain
	head := "time of readers"
	if width-54 < len(head) {
		head = "time"
	}
	say("%-10s %s  %6s %6s %6s %7s %12s", "stage", pad(head[:min(len(head), max(width-54, 4))], max(width-54, 4)), "minute", "second", "busy", "queued", "rate")
	row := func(name string, minute, second float64, rest string) {
		say("%-10s %s  %5.0f%% %5.0f%% %s", name, meterBar(minute, width-54), minute*100, second*100, rest)
	}
	row("themselves", e.Minute.Shares.Themselves, e.Second.Shares.Themselves, "")
	for i, second := range e.Second.Stages {
		minute := explain.Row{}
		if i < len(e.Minute.Stages) {
			minute = e.Minute.Stages[i]
		}
		rate := ""
		if second.BytesPerSecond > 0 {
			rate = terminal.Bytes(int64(second.BytesPerSecond)) + "/s"
		}
		row(clip(second.Stage, 10), minute.Waited, second.Waited, fmt.Sprintf("%6.2f %7.1f %12s", second.Busy, second.Queued, rate))
	}
}

// drawFacts draws the memory, the counters and other facts.
func (f *frame) drawFacts(say func(string, ...any), width int) {
	x := &f.now.Pipeline.Fetch
	held := 0.0
	if x.BudgetBytes > 0 {
		held = float64(x.HeldBytes) / float64(x.BudgetBytes)
	}
	say("%-10s %s  %s of %s held", "memory", meterBar(held, width-54), terminal.Bytes(x.HeldBytes), terminal.Bytes(x.BudgetBytes))
	for _, l := range wrap(f.counted(), width) {
		say("%s", l)
	}
	describe := func(label, format string, args ...any) {
		for i, l := range wrap(printable.Line(fmt.Sprintf(format, args...)), max(width-13, 20)) {
			if i > 0 {
				label = ""
			}
			say("%-12s %s", label, l)
		}
	}
	f.describe(describe)
}

// describe calls line with the other facts about the mount.
func (f *frame) describe(line func(label, format string, args ...any)) {
	f.now.DescribeGrowing(line)
	f.now.DescribeCubes(line)
	f.now.DescribeService(line)
}

// counted describes the counters since the mount's start.
func (f *frame) counted() string {
	s, x := f.now, &f.now.Pipeline.Fetch
	text := fmt.Sprintf("%s delivered", terminal.Plural(x.RecordsOut, "record"))
	if x.Hits+x.Waits > 0 {
		text += fmt.Sprintf(": %s were in memory in time, %s were waited for", terminal.Count(x.Hits), terminal.Count(x.Waits))
	}
	for _, c := range []struct {
		n    uint64
		what string
	}{{x.PiecesReread, "pieces read again"}, {s.Pipeline.Retries.Retries, "reads retried"}, {s.Errors, "requests failed"}, {skipped(s), "records skipped as damaged"}} {
		text += fmt.Sprintf("; %s %s", humanize.Comma(int64(c.n)), c.what)
	}
	return text
}

// meterBar returns a bar of n columns.
func meterBar(share float64, n int) string {
	n = max(n, 4)
	full := int(min(max(share, 0), 1)*float64(n) + 0.5)
	return strings.Repeat("█", full) + strings.Repeat("·", n-full)
}

func pad(s string, n int) string { return s + strings.Repeat(" ", max(n-utf8.RuneCountInString(s), 0)) }

// clip cuts a line to width columns.
func clip(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return strings.TrimRight(s, " ")
	}
	return string([]rune(s)[:width-1]) + "…"
}

// wrap breaks a text into lines between words.
func wrap(s string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}
