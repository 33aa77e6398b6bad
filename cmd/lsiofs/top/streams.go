package top

import (
	"cmp"
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/fs"
)

// reading returns the streams below epoch-N that are being read, by epoch and worker.
func (f *frame) reading() []streamLine {
	return f.readingOf(func(*fs.StreamReport) bool { return true })
}

// latestReading returns those in the directory that was read last.
func (f *frame) latestReading() []streamLine {
	return f.readingOf(func(s *fs.StreamReport) bool { return s.Directory == f.now.Reading.Directory })
}

func (f *frame) readingOf(wanted func(*fs.StreamReport) bool) []streamLine {
	if f.now.Reading == nil {
		return nil
	}
	streams := slices.Clone(f.now.Reading.Streams)
	sort.Slice(streams, func(i, j int) bool {
		a, b := &streams[i], &streams[j]
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.From, b.From), cmp.Compare(a.Workers, b.Workers), cmp.Compare(a.Worker, b.Worker)) < 0
	})
	var lines []streamLine
	for _, s := range streams {
		if !wanted(&s) {
			continue
		}
		l := streamLine{Name: s.Name, DeliveredBytes: s.ReadBytes, SizeBytes: s.SizeBytes, LeftSeconds: -1, EpochShare: s.EpochShare}
		if s.ReadBytes == s.SizeBytes {
			l.LeftSeconds = 0
		}
		if before, known := f.readBefore(s.Name); known && s.ReadBytes > before {
			l.BytesPerSecond = float64(s.ReadBytes-before) / (f.now.UptimeSeconds - f.before.UptimeSeconds)
			l.LeftSeconds = float64(s.SizeBytes-s.ReadBytes) / l.BytesPerSecond
		}
		lines = append(lines, l)
	}
	return lines
}

// readBefore returns how far the stream of this name had been read in the earlier state. known is
// false if there is no earlier state, or if the stream may be one that it does not list.
func (f *frame) readBefore(name string) (readBytes int64, known bool) {
	if f.before == nil || f.now.UptimeSeconds <= f.before.UptimeSeconds {
		return 0, false
	}
	if f.before.Reading == nil {
		return 0, true
	}
	for _, s := range f.before.Reading.Streams {
		if s.Name == name {
			return s.ReadBytes, true
		}
	}
	return 0, f.before.Reading.More == 0
}

// readsBelow reports whether the latest reads are below epoch-N.
func (f *frame) readsBelow() bool { return f.now.Reading != nil && f.now.Reading.Latest }

// readsRoot reports whether a worker file in the root has been read.
func (f *frame) readsRoot() bool {
	return slices.ContainsFunc(f.now.Files, func(x fs.FileReport) bool { return x.HasReader || x.DeliveredBytes > 0 })
}

// epochNumber returns the number of the epoch that is read.
func (f *frame) epochNumber() uint64 {
	if f.readsBelow() {
		return f.now.Reading.Epoch
	}
	return f.now.Epoch
}

// drawStreams draws one row per stream; below epoch-N under the name of its directory.
func (f *frame) drawStreams(say func(string, ...any), width int) {
	lines := f.streams()
	shown := lines[:min(len(lines), shownStreams)]
	names := 14
	for _, l := range shown {
		names = min(max(names, len(path.Base(l.Name))), 22)
	}
	directory := "."
	for _, l := range shown {
		if d := path.Dir(l.Name); d != directory {
			directory = d
			say("%s", strings.TrimPrefix(d+"/", "./"))
		}
		part := 1.0
		if l.SizeBytes > 0 {
			part = float64(l.DeliveredBytes) / float64(l.SizeBytes)
		}
		left := leftText("  ", l.LeftSeconds)
		if l.DeliveredBytes == l.SizeBytes {
			left = "  done"
		}
		if directory != "." {
			part = l.EpochShare
		}
		say("%-*s %s %5.1f %%  %10s/s%s", names, clip(path.Base(l.Name), names), meterBar(part, width-36-names), part*100, terminal.Bytes(int64(l.BytesPerSecond)), left)
	}
	if more := f.streamsInAll() - len(shown); more > 0 {
		say("and %s more", terminal.Plural(uint64(more), "stream"))
	}
}

// streamsInAll returns the total number of streams, of which streams lists some.
func (f *frame) streamsInAll() int {
	n := 0
	if f.now.Reading != nil {
		n = len(f.now.Reading.Streams) + int(f.now.Reading.More)
	}
	if n == 0 || f.readsRoot() {
		n += int(f.now.Workers)
	}
	return n
}
