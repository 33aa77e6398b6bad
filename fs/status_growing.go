package fs

import (
	"fmt"
	"io"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/growing/snapshot"
	"github.com/lsiofs/lsiofs/pipeline/printable"
)

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
