package fs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/explain"
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
