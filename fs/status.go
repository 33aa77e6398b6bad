package fs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/growing/snapshot"
	"github.com/lsiofs/lsiofs/pipeline/printable"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// Status is the content of status.json, with its parts, for programs that decode it.
type (
	// Status is the content of status.json, exported for programs that read it.
	Status        = statusReport
	ReadingReport = readingReport
	FileReport    = fileReport
	StreamReport  = streamReport
	RemoteReport  = remote.Stats
	CacheReport   = diskcache.Stats
)

// statusReport is status.json.
type statusReport struct {
	Version       string    `json:"version"`
	MountPoint    string    `json:"mount_point"`
	MountID       string    `json:"mount_id"` // see Mount.Identity
	Dataset       string    `json:"dataset"`
	Fingerprint   string    `json:"fingerprint"`
	Records       uint64    `json:"records"`          // of the epoch
	Sample        string    `json:"sample,omitempty"` // such as "1/39": the share of all records that an epoch has
	As            string    `json:"as,omitempty"`     // what streams contain instead of the records' bytes
	Epoch         uint64    `json:"epoch"`
	Started       time.Time `json:"started"`
	UptimeSeconds float64   `json:"uptime_seconds"`

	// Growing is the state of a growing dataset.
	Growing  *snapshot.Status `json:"growing,omitempty"`
	Explain  explained        `json:"explain"`
	Pipeline pipeline.Status  `json:"pipeline"`
	// Sources are those of a mixture, with their shares of the epoch's delivered records.
	Sources []sourceReport `json:"sources,omitempty"`
	Traffic trafficReport  `json:"traffic"`
	Process processReport  `json:"process"`

	// LayingOut reports whether the epoch is still being laid out: sizes of files are 0 until then.
	LayingOut bool `json:"laying_out,omitempty"`

	Workers          uint64         `json:"workers"`
	DeliveredRecords uint64         `json:"delivered_records"`
	Reading          *readingReport `json:"reading,omitempty"`
	RestoredAt       time.Time      `json:"restored_at"`
	Files            []fileReport   `json:"files"` // the first files

	changedHelp  string
	LastErrors   []problem `json:"last_errors"` // oldest first
	Errors       uint64    `json:"errors"`
	LastRefusal  *refusal  `json:"last_checkpoint_refusal"`
	Refusals     uint64    `json:"checkpoint_refusals"`
	ScratchFiles int       `json:"scratch_files"`
	ScratchBytes int64     `json:"scratch_bytes"`
	// ScratchNames are the scratch files' names. Files that are not renamed onto checkpoint are
	// lost when the mount ends.
	ScratchNames []string     `json:"scratch_names,omitempty"`
	Kernel       kernelReport `json:"kernel"`
}

// processReport is what only the server can report about itself.
type processReport struct {
	PID        int `json:"pid"`
	Goroutines int `json:"goroutines"`
}

type trafficReport struct {
	SentBytes      int64  `json:"sent_bytes"`
	Reads          int64  `json:"reads"`
	BytesPerSecond rates  `json:"bytes_per_second"`
	OpenHandles    int    `json:"open_handles"`
	Opened         uint64 `json:"opened"`
}

// filesShown bounds the list of files in status.
const filesShown = 64

func (t *tree) report(ctx context.Context) (*statusReport, error) {
	now, v := time.Now(), t.view.Load()
	r := &statusReport{
		Version: t.version, MountPoint: t.mountPoint, MountID: t.identity, Dataset: t.datasetPath(), Fingerprint: v.fingerprint,
		Records: v.records, Sample: t.sampleName(), As: string(t.spec.Format.As), Epoch: v.position.Epoch, Started: t.started, UptimeSeconds: now.Sub(t.started).Seconds(),
		Pipeline: t.dataset.Status(), Workers: v.workers, RestoredAt: v.began, Kernel: t.kernel.get(), Explain: t.recorder.explain(),
	}
	if r.Growing = r.Pipeline.Growing; t.growing != nil {
		for i, text := range r.Pipeline.Fetch.LastErrors { // a copy that belongs to this report
			r.Pipeline.Fetch.LastErrors[i] = rewordedText(text)
		}
	}
	r.Traffic = trafficReport{SentBytes: t.traffic.bytes.Load(), Reads: t.traffic.reads.Load(), BytesPerSecond: t.traffic.look(t.started, now)}
	r.Traffic.OpenHandles, r.Traffic.Opened = t.handles.count()
	r.Process = processReport{PID: os.Getpid(), Goroutines: runtime.NumGoroutine()}
	r.changedHelp = t.changedHelp()
	r.LastErrors, r.Errors = t.problems.snapshot()
	r.LastRefusal, r.Refusals = t.refusals.snapshot()
	r.ScratchFiles, r.ScratchBytes = t.scratch.usage()
	r.ScratchNames = t.scratch.names()
	r.Reading = t.reading(v)
	// Don't wait for what needs the layout of the epoch: it may take minutes.
	soon, cancel := context.WithTimeout(ctx, layoutPatience)
	defer cancel()
	late := func(err error) bool { return err != nil && soon.Err() != nil && ctx.Err() == nil }
	counts, err := v.delivered(soon)
	if r.LayingOut = late(err); r.LayingOut {
		counts, err = make([]uint64, v.workers), nil
	}
	if err != nil {
		return nil, err
	}
	for _, n := range counts {
		r.DeliveredRecords += n
	}
	if r.Sources, err = t.sourceReports(v, counts); err != nil {
		return nil, err
	}
	for w := range min(v.workers, filesShown) {
		f, err := t.fileReport(soon, v, w, counts[w])
		if late(err) {
			r.LayingOut, err = true, nil
		}
		if err != nil {
			return nil, err
		}
		r.Files = append(r.Files, f)
	}
	return r, nil
}

// layoutPatience is how long status waits for the parts that it may show of files.
const layoutPatience = time.Second

// renderStatusJSON renders status.json.
func (t *tree) renderStatusJSON(ctx context.Context) ([]byte, error) {
	r, err := t.report(ctx)
	if err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(r, "", "  ")
	return append(printable.JSON(b), '\n'), err
}

// renderStatus renders status, for people.
func (t *tree) renderStatus(ctx context.Context) ([]byte, error) {
	r, err := t.report(ctx)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n\n", printable.Line(r.Explain.Verdict.Text))
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s %s\n", label, printable.Line(fmt.Sprintf(format, args...)))
	}
	line("lsiofs", "%s, mounted at %s since %s (%s)", r.Version, r.MountPoint, stamp(r.Started), age(r.UptimeSeconds))
	of := ""
	if r.Sample != "" {
		of = fmt.Sprintf(" in this epoch, a sample of %s", r.Sample)
	}
	if r.As != "" {
		of += ", as " + r.As
	}
	line("dataset", "%s, %s records%s", r.Dataset, humanize.Comma(int64(r.Records)), of)
	if n := r.Pipeline.DamagedShards; n > 0 {
		line("damaged", "%s; left out: %s", english.Plural(n, "shard", ""), reasons(r.Pipeline.Damages))
	}
	if n := r.Pipeline.FilesLeftOut; n > 0 {
		line("left out", "%s, such as %s(reasons: lsiofs inspect --files)", english.Plural(n, "file", ""), strings.Join(r.Pipeline.FirstLeftOut, ", "))
	}
	line("epoch", "%d, position of %s", r.Epoch, stamp(r.RestoredAt))
	r.DescribeGrowing(line)
	r.describeReading(line)
	line("sent", "%s in %d reads: %s/s since the mount, %s/s since status was read last", size(r.Traffic.SentBytes), r.Traffic.Reads,
		size(int64(r.Traffic.BytesPerSecond.SinceMount)), size(int64(r.Traffic.BytesPerSecond.SinceLast)))
	line("open", "%d streams now, %d so far", r.Traffic.OpenHandles, r.Traffic.Opened)
	if r.ScratchFiles > 0 || r.ScratchBytes > 0 {
		line("scratch", "%s, %s including unfinished writes", english.Plural(r.ScratchFiles, "file", ""), size(r.ScratchBytes))
		if names := strings.Join(r.ScratchNames, ", "); names != "" {
			line("", "in memory, and lost when the mount ends unless renamed onto checkpoint: %s", names)
		}
	}
	if r.Reading != nil {
		r.Reading.write(&b)
	}
	writeSources(&b, r.Sources)
	writeWaiting(&b, r.Growing)
	if r.LayingOut {
		line("laying out", "the layout of the epoch of %s records is being computed; until then file sizes and delivered records are unknown, and programs that ask for them wait", humanize.Comma(int64(r.Records)))
	}
	r.writeDelivered(&b)
	r.writeTroubles(&b)
	return b.Bytes(), nil
}

// writeTroubles writes what is wrong, and what the kernel lacks.
func (r *statusReport) writeTroubles(b *bytes.Buffer) {
	if r.LastRefusal != nil {
		since := ""
		if r.LastRefusal.Restored {
			since = " (restored since)"
		}
		fmt.Fprintf(b, "\nlast checkpoint refused: %s: %s%s\n", stamp(r.LastRefusal.Time), printable.Line(r.LastRefusal.Reason), since)
	}
	writeChanged(b, r.Pipeline.Changed, r.changedHelp)
	if len(r.LastErrors) > 0 {
		fmt.Fprintf(b, "\nlast errors, of %d:\n", r.Errors)
		for _, p := range r.LastErrors {
			fmt.Fprintf(b, "  %s %s%s\n", stamp(p.Time), printable.Line(p.Text), times(p.Count))
		}
	}
	if texts := r.Pipeline.Fetch.LastErrors; len(texts) > 0 {
		fmt.Fprintf(b, "\nlast errors of storage, of %d:\n", r.Pipeline.Fetch.Errors)
		for _, text := range texts {
			fmt.Fprintf(b, "  %s\n", printable.Line(text))
		}
	}
	if len(r.Kernel.Lacks) > 0 {
		fmt.Fprintf(b, "\nthis kernel (%s) lacks:\n", r.Kernel.Release)
		for _, text := range r.Kernel.Lacks {
			fmt.Fprintf(b, "  %s\n", text)
		}
	}
}

// reasons lists reasons with their counts, the most frequent first.
func reasons(counts map[string]uint64) string {
	texts := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for i, text := range texts {
		texts[i] = fmt.Sprintf("%s (%s)", text, humanize.Comma(int64(counts[text])))
	}
	return strings.Join(texts, "; ")
}

// times returns how often something happened, "" for once.
func times(n uint64) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf(" (%s times)", humanize.Comma(int64(n)))
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

func stamp(t time.Time) string   { return t.Format(time.RFC3339) }
func size(n int64) string        { return humanize.IBytes(uint64(max(n, 0))) }
func age(seconds float64) string { return (time.Duration(seconds) * time.Second).String() }

// LogStatus writes a line of status to a log. Like reading status, it starts a new interval for the
// rates since the last look.
func (m *Mount) LogStatus(ctx context.Context, log *slog.Logger) {
	r, err := m.tree.report(ctx)
	if err != nil {
		log.Error("status", "error", err)
		return
	}
	log.LogAttrs(ctx, slog.LevelInfo, "status", r.line()...)
}

// line returns the attributes of a line of status.
func (r *statusReport) line() []slog.Attr {
	f := r.Pipeline.Fetch
	return []slog.Attr{
		slog.String("bottleneck", r.Explain.Verdict.Text),
		slog.String("mount_point", r.MountPoint),
		slog.Uint64("epoch", r.Epoch),
		slog.Uint64("delivered_records", r.DeliveredRecords),
		slog.Uint64("records", r.Records),
		slog.Int64("sent_bytes", r.Traffic.SentBytes),
		slog.Float64("bytes_per_second", r.Traffic.BytesPerSecond.SinceMount),
		slog.Float64("bytes_per_second_since_last", r.Traffic.BytesPerSecond.SinceLast),
		slog.Int("open_handles", r.Traffic.OpenHandles),
		slog.Int64("held_bytes", f.HeldBytes),
		slog.Int64("budget_bytes", f.BudgetBytes),
		slog.Uint64("retries", r.Pipeline.Retries.Retries),
		slog.Uint64("errors", r.Errors),
	}
}
