package fs

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/explain"
	"github.com/lsiofs/lsiofs/pipeline/growing/snapshot"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/printable"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// requests is the number of requests to a service, answered or not.
func requests(s *remote.Stats) (n uint64) {
	for _, count := range s.Requests {
		n += count
	}
	return n
}

// serviceSince returns what a verdict needs to know about the answers of a service between two
// snapshots. s is as of the later one; connections bounds the concurrent requests.
func serviceSince(from, to explain.Snapshot, s *remote.Stats, connections int) explain.Service {
	return explain.Service{
		Throttled: to.Throttled - min(from.Throttled, to.Throttled), Requests: to.Requests - min(from.Requests, to.Requests),
		FirstByteP50: s.FirstByte.P50, FirstByteP95: s.FirstByte.P95, Slots: s.Slots, InUse: s.InUse, Most: connections,
	}
}

// DescribeService writes how the service that stores the dataset responds, and how much is in the
// local disk cache: nothing for a dataset in a file system.
func (r *statusReport) DescribeService(line func(label, format string, args ...any)) {
	if s := r.Pipeline.Remote; s != nil {
		describeService(line, s)
	}
	if c := r.Pipeline.Cache; c != nil {
		line("disk cache", "%s", cacheText(c))
	}
	for _, x := range r.Pipeline.Sources {
		if x.Remote != nil || x.Cache != nil {
			line("source", "%s", x.Name)
		}
		if x.Remote != nil {
			describeService(line, x.Remote)
		}
		if x.Cache != nil {
			line("disk cache", "%s", cacheText(x.Cache))
		}
	}
}

func describeService(line func(label, format string, args ...any), s *remote.Stats) {
	price := ""
	if s.PriceDollars > 0 {
		price = fmt.Sprintf(", about $%.4f at S3's list price", s.PriceDollars)
	}
	if !s.ListedAt.IsZero() {
		line("offline", "the service was unreachable at mount time: files are as listed at %s", s.ListedAt.Format(time.DateTime))
	}
	line("service", "%s requests%s, %s%s", humanize.Comma(int64(requests(s))), countsText(" (", s.Requests), size(int64(s.Bytes)), price)
	if f := s.FirstByte; f.P50 > 0 { // some range has been read
		line("first bytes", "median %s, 95 %% within %s, 99 %% within %s", milliseconds(f.P50), milliseconds(f.P95), milliseconds(f.P99))
	}
	line("under way", "%d of at most %d requests; %d reads waiting for a slot, %d to be retried", s.InUse, s.Slots, s.Waiting, s.InRetry)
	if len(s.Retries) > 0 || s.Throttled > 0 {
		retries := uint64(0)
		for _, n := range s.Retries {
			retries += n
		}
		line("tried again", "%s requests%s; the service asked %s times to slow down", humanize.Comma(int64(retries)), countsText(" (", s.Retries), humanize.Comma(int64(s.Throttled)))
	}
	if s.Hedges > 0 {
		line("sent twice", "%s slow requests; the second response came first %s times", humanize.Comma(int64(s.Hedges)), humanize.Comma(int64(s.HedgesWon)))
	}
	if s.LastError != "" {
		line("last error", "%s", s.LastError)
	}
}

// countsText lists names with their counts, the most frequent first; "" if there are none.
func countsText(before string, counts map[string]uint64) string {
	if len(counts) == 0 {
		return ""
	}
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for i, name := range names {
		told := name
		if name == "none" {
			told = "no response, or not waited for" // including hedges that came second
		}
		names[i] = fmt.Sprintf("%s: %s", told, humanize.Comma(int64(counts[name])))
	}
	return before + strings.Join(names, ", ") + ")"
}

func milliseconds(seconds float64) string { return fmt.Sprintf("%.0f ms", 1e3*seconds) }

// cacheText describes how much of a dataset is in the local disk cache, and what that has saved.
func cacheText(c *diskcache.Stats) string {
	text := fmt.Sprintf("%s of %s used in %s", size(c.Bytes), size(c.Bound), c.Dir)
	if looked := c.Hits + c.Misses; looked > 0 {
		text += fmt.Sprintf("; hits: %.1f %% of %s pages", 100*float64(c.Hits)/float64(looked), humanize.Comma(int64(looked)))
	}
	if c.Fill > 0 {
		text += fmt.Sprintf("; %.1f %% filled", 100*c.Fill)
	}
	if c.BadPages > 0 {
		text += fmt.Sprintf("; %s pages failed their checksum and were fetched again: check the disk", humanize.Comma(int64(c.BadPages)))
	}
	if c.State != "" && c.State != "on" {
		text += fmt.Sprintf("; it is %s%s", c.State, because(c.Reason))
	}
	return text
}

// sourceReport is a source of a mixture, in status.json.
type sourceReport struct {
	Name   string `json:"name"`
	Weight string `json:"weight"`
	// Records and Share are how many of the epoch's delivered records are from this source, over
	// all workers, including those before a resume. About is set if some workers are so far ahead
	// of others that the figures are those of as many records from the epoch's start.
	Records uint64  `json:"records"`
	Share   float64 `json:"share"`
	About   bool    `json:"about,omitempty"`
	Passes  float64 `json:"passes_an_epoch"`
}

// sourceReports returns how much of each source was delivered; delivered is the number of records
// of each worker since the position was set.
func (t *tree) sourceReports(v *view, delivered []uint64) (list []sourceReport, err error) {
	m, is := t.dataset.(*pipeline.Dataset)
	if !is {
		return nil, nil
	}
	sources := m.Sources()
	if sources == nil {
		return nil, nil
	}
	done := slices.Concat(v.position.Done, []order.Done{order.Given(t.spec.Order, v.files.Remaining(), v.deal, delivered)})
	counts, exact, err := m.Shared(v.position.Epoch, done)
	if err != nil {
		return nil, err
	}
	taken := uint64(0)
	for _, n := range counts {
		taken += n
	}
	for i, s := range sources {
		r := sourceReport{Name: s.Name, Weight: spec.WeightText(s.Weight), Records: counts[i], About: !exact, Passes: s.Passes}
		if taken > 0 {
			r.Share = float64(counts[i]) / float64(taken)
		}
		list = append(list, r)
	}
	return list, nil
}

// writeSources writes the sources for people.
func writeSources(b io.Writer, sources []sourceReport) {
	if len(sources) == 0 {
		return
	}
	_, _ = io.WriteString(b, "\nsources of the mixture, of the epoch's records so far:\n")
	for _, s := range sources {
		about := ""
		if s.About {
			about = "about "
		}
		_, _ = fmt.Fprintf(b, "  %-20s weight %s, %s%s records (%.2f %%), %.3f passes an epoch\n", s.Name, s.Weight, about, humanize.Comma(int64(s.Records)), 100*s.Share, s.Passes)
	}
}

// GrowingReport is the field "growing" of status.json.
type GrowingReport = snapshot.Status

// DescribeGrowing writes the state of a growing dataset: nothing for others.
func (r *statusReport) DescribeGrowing(line func(label, format string, args ...any)) {
	g := r.Growing
	if g == nil {
		return
	}
	if g.Epoch != nil {
		line("run", "%s is at epoch %d, snapshot %.12s…, started by %s (host/process) at %s", g.Run, *g.Epoch, g.Snapshot, g.By, g.Taken)
	}
	line("run in", "%s", printable.Line(g.RunDir))
	next := g.NextEpoch
	if next == "" {
		next = "can begin now"
	}
	line("next epoch", "%s; new shards: %s, with records: %s", next, humanize.Comma(int64(g.NewShards)), humanize.Comma(int64(g.NewRecords)))
	if u := g.UsesPerRecord; u != nil {
		line("use", "%.2f times per record", *u)
	}
	if g.Warning != "" {
		line("warning", "%s", g.Warning)
	}
	line("arriving", "known shards: %s (window %s, the newest %s); files settling: %d, to be indexed: %d, waiting: %d, skipped: %d%s", humanize.Comma(int64(g.Shards)),
		g.Window, g.NewestShard, g.Settling, g.Indexing, g.WaitingShards, g.PassedOver, suchAs(g.PassedOverFirst))
	watch := g.Watch
	if g.WatchWhy != "" {
		watch += " (" + g.WatchWhy + ")"
	}
	line("watched by", "%s; the last scan took %.2f s; the kernel dropped change notifications %d times", watch, g.LastScanSeconds, g.Overflows)
	if g.Error != "" {
		line("error", "%s", g.Error)
	}
}

// waitingShown bounds the list of waiting files.
const waitingShown = 8

// writeWaiting lists the files that may become shards later.
func writeWaiting(b io.Writer, g *snapshot.Status) {
	if g == nil || len(g.Waiting) == 0 {
		return
	}
	_, _ = fmt.Fprintf(b, "\nwaiting files, %d in total:\n", g.WaitingShards)
	for _, w := range g.Waiting[:min(len(g.Waiting), waitingShown)] {
		_, _ = fmt.Fprintf(b, "  %s: %s\n", printable.Line(w.Path), printable.Line(w.Reason))
	}
}

// suchAs names the first of some files.
func suchAs(paths []string) string {
	if len(paths) == 0 {
		return ""
	}
	return " (" + strings.Join(paths, ", ") + ")"
}

// DescribeCubes writes what was decoded of Zarr arrays: nothing if records are not crops.
func (r *statusReport) DescribeCubes(line func(label, format string, args ...any)) {
	c := r.Pipeline.Cubes
	if c == nil {
		return
	}
	line("chunks", "%s decoded (%s stored), %s times already decoded when needed; %s in memory",
		humanize.Comma(int64(c.Decoded)), size(int64(c.StoredBytes)), humanize.Comma(int64(c.Found)), size(c.HeldBytes))
	if c.Blocks > 0 {
		line("blosc", "%s blocks decoded without the rest of their chunks", humanize.Comma(int64(c.Blocks)))
	}
}
