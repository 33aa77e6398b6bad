package fs

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/lsiofs/lsiofs/pipeline/printable"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// fileReport is one worker's stream.
type fileReport struct {
	Name             string `json:"name"`
	SizeBytes        int64  `json:"size_bytes"`
	DeliveredBytes   int64  `json:"delivered_bytes"` // the mark
	DeliveredRecords uint64 `json:"delivered_records"`
	// FurthestBytes is the furthest that any reader came since the restore. It becomes the mark
	// once the open reader, which may be behind, has closed the file.
	FurthestBytes   int64  `json:"furthest_bytes"`
	FurthestRecords uint64 `json:"furthest_records"`
	// ReaderPID is the process whose reads move the mark, 0 if there is none.
	ReaderPID uint32 `json:"reader_pid"`
	HasReader bool   `json:"has_reader"`
	// Reader is the reader that is open, or was open last.
	Reader *readerReport `json:"reader,omitempty"`
	// Passing has read beyond the mark, but does not move it because it is not the reader.
	Passing *readerReport `json:"passing,omitempty"`
	// Uncounted has read where a reader would, but does not move the mark because its user is not
	// among those that count.
	Uncounted *onlooker `json:"uncounted,omitempty"`
}

// readerReport is a program that reads a worker file.
type readerReport struct {
	PID       uint32 `json:"pid"` // 0 for a process in another container
	Command   string `json:"command"`
	ReadBytes int64  `json:"read_bytes"` // the furthest end of what it was sent
	// LastReadBytes is the size of the read that went furthest, LastReadRecords how many records it
	// completed: a program that reads ahead may not have used them.
	LastReadBytes   int64  `json:"last_read_bytes,omitempty"`
	LastReadRecords uint64 `json:"last_read_records,omitempty"`
}

// fileReport is the report for worker w, whose mark has so many whole records before it.
func (t *tree) fileReport(ctx context.Context, v *view, w, records uint64) (fileReport, error) {
	m := v.mark(w)
	f := fileReport{
		Name: fileName{worker: w}.format(t.ext), DeliveredBytes: m.bytes, DeliveredRecords: records,
		FurthestBytes: m.furthest, FurthestRecords: records, HasReader: m.open, Uncounted: m.onlooker,
	}
	before := func(bytes int64) (uint64, error) { return v.files.WholeRecords(ctx, w, stream.Data, bytes) }
	var err error
	if f.SizeBytes, err = v.files.SizeBytes(ctx, w, stream.Data); err != nil {
		return f, err
	}
	if m.open {
		f.ReaderPID = m.last.pid
	}
	if m.furthest > m.bytes {
		if f.FurthestRecords, err = before(m.furthest); err != nil {
			return f, err
		}
	}
	if m.last.end > 0 {
		f.Reader = &readerReport{PID: m.last.pid, Command: m.last.command, ReadBytes: m.last.end, LastReadBytes: m.last.end - m.last.start}
		from, err := before(m.last.start)
		to := from
		if err == nil {
			to, err = before(m.last.end)
		}
		if err != nil {
			return f, err
		}
		f.Reader.LastReadRecords = to - from
	}
	if m.passing != nil {
		f.Passing = &readerReport{PID: m.passing.pid, Command: m.passing.command, ReadBytes: m.passingEnd}
	}
	return f, nil
}

// writeDelivered writes what was read of the worker files, for people.
func (r *statusReport) writeDelivered(b *bytes.Buffer) {
	fmt.Fprintf(b, "\ndelivered: %s records since the position was set\n", humanize.Comma(int64(r.DeliveredRecords)))
	for _, f := range r.Files {
		fmt.Fprintf(b, "  %-20s %d of %d bytes, %s records, %s\n", f.Name, f.DeliveredBytes, f.SizeBytes,
			humanize.Comma(int64(f.DeliveredRecords)), printable.Line(f.reader()))
	}
	if more := r.Workers - uint64(len(r.Files)); more > 0 {
		fmt.Fprintf(b, "  … and %d more\n", more)
	}
	if slices.ContainsFunc(r.Files, func(f fileReport) bool { return f.behind() }) {
		b.WriteString("a checkpoint counts the records of a file's open reader; if none is open, of the reader that got furthest:\n" +
			"save it while the training has its files open, and inspect data in epoch-N instead\n")
	}
	if i := slices.IndexFunc(r.Files, func(f fileReport) bool { return f.Uncounted != nil }); i >= 0 {
		fmt.Fprintf(b, "reads of user %d are not counted: %s\n", r.Files[i].Uncounted.UID, uncountedHelp(r.Files[i].Uncounted.UID))
	}
}

// behind reports whether the reader that is open, or was open last, is behind an earlier one.
func (f *fileReport) behind() bool { return f.Reader != nil && f.Reader.ReadBytes < f.FurthestBytes }

// reader describes the reader of a file, and what that means for its checkpoint.
func (f *fileReport) reader() string {
	said := "no reader"
	switch {
	case f.HasReader && f.Reader != nil:
		said = "read by " + f.Reader.String()
		if f.behind() {
			said += fmt.Sprintf(", behind an earlier reader, which got %s", records(f.FurthestRecords))
		}
		if f.Reader.LastReadRecords > 0 {
			said += fmt.Sprintf("; its last read returned %s (%s), which it may not have used yet", records(f.Reader.LastReadRecords), size(f.Reader.LastReadBytes))
		}
	case f.behind():
		said += fmt.Sprintf("; the last one, %s, only got to byte %d, but the checkpoint counts an earlier one", f.Reader, f.Reader.ReadBytes)
	case f.Reader != nil:
		said += fmt.Sprintf("; the last one was %s", f.Reader)
	}
	if f.Passing != nil {
		said += fmt.Sprintf("; %s has read to byte %d, which the checkpoint does not count: another program read the file first", f.Passing, f.Passing.ReadBytes)
	}
	if f.Uncounted != nil {
		said += "; " + f.Uncounted.String()
	}
	return said
}

func records(n uint64) string { return english.Plural(int(n), "record", "") }

// String names the process.
func (r *readerReport) String() string {
	if r.PID == 0 {
		return "a process in another container"
	}
	if r.Command == "" {
		return fmt.Sprintf("process %d", r.PID)
	}
	return fmt.Sprintf("process %d (%s)", r.PID, r.Command)
}

// describeReading writes how data is read, and how much of it is in memory.
func (r *statusReport) describeReading(line func(label, format string, args ...any)) {
	if r.Pipeline.Remote == nil {
		r.describeEngine(line)
	}
	line("storage", "%s", r.Pipeline.Storage)
	f := r.Pipeline.Fetch
	line("memory", "%s of %s held; %s of the page cache mapped, %s records delivered from it", size(f.HeldBytes), size(f.BudgetBytes),
		size(f.MappedBytes), humanize.Comma(int64(f.RecordsMapped)))
	if l := f.Leases; l.Held > 0 || l.Broken > 0 || len(l.Refused) > 0 {
		line("leases", "%d mapped files, whose writers have to wait a moment; %d leases released to writers", l.Held, l.Broken)
	}
	for _, reason := range slices.Sorted(maps.Keys(f.Leases.Refused)) {
		line("no lease", "%d mapped files, whose records are copied: %s", f.Leases.Refused[reason], reason)
	}
	if g := f.Gather; g != nil {
		line("fetch", "%s%s; %s in %d reads for %s of records, %d reads in flight, %s dropped unused", f.Strategy, because(f.Reason),
			size(int64(f.BytesRead)), g.Reads, size(int64(f.BytesOut)), g.ReadsInFlight, size(int64(g.DroppedBytes)))
	} else {
		line("fetch", "%s%s; %d pieces read, %d of them again, %d loads in flight, %d open decoders", f.Strategy, because(f.Reason),
			f.PiecesRead, f.PiecesReread, f.LoadsInFlight, f.OpenDecoders)
	}
	if n := r.Pipeline.Retries; n.Retries > 0 || n.Waiting > 0 {
		line("retries", "%s reads retried after temporary errors, %s failed in the end; %d waiting to be retried", humanize.Comma(int64(n.Retries)),
			humanize.Comma(int64(n.GaveUp)), n.Waiting)
	}
	r.DescribeCubes(line)
	r.DescribeService(line)
	if f.ReadsCancelled > 0 {
		line("cancelled", "%d read-ahead requests of readers that moved on, %s", f.ReadsCancelled, size(int64(f.BytesCancelled)))
	}
	if s := f.Spool; s != nil {
		line("spool", "%s of %s used in %s; %d shards in it or on their way, %d being decoded; %d decoded so far, %d of them again",
			size(s.UsedBytes), size(s.CapacityBytes), s.Dir, s.Shards, s.Decoding, s.Decoded, s.DecodedAgain)
		if s.DamagedPieces > 0 {
			line("spool loss", "%d pieces were unreadable or corrupt; %d shards were dropped from the spool for that and are decoded again: check the disk of %s, or mount with another --spool-dir",
				s.DamagedPieces, s.DamagedShards, s.Dir)
		}
	}
	if s := r.Pipeline.Start; s != nil && s.DecodeBytes > 0 {
		line("start", "it takes %s", s.Text())
	}
	line("records", "%s were in memory in time, %s were waited for (%s in total)", humanize.Comma(int64(f.Hits)),
		humanize.Comma(int64(f.Waits)), time.Duration(f.WaitNanos).Round(time.Millisecond))
}

// describeEngine writes how files are read.
func (r *statusReport) describeEngine(line func(label, format string, args ...any)) {
	engine := r.Pipeline.Engine
	line("reads with", "%s%s; %d in flight (%s), %s read in %s reads, %s of them from the page cache at once, %s past it", engine.Engine, because(engine.Reason),
		engine.InFlight, size(engine.InFlightBytes), size(int64(engine.ReadBytes)), humanize.Comma(int64(engine.Reads)),
		humanize.Comma(int64(engine.CachedReads)), humanize.Comma(int64(engine.DirectReads)))
	if engine.RemoteReads > 0 || engine.Stuck > 0 {
		line("remote", "%s of them by threads, because the files are on FUSE or a network file system; %d have been waiting for more than a second",
			humanize.Comma(int64(engine.RemoteReads)), engine.Stuck)
	}
	for _, reason := range slices.Sorted(maps.Keys(engine.NotDirect)) {
		line("not direct", "%d files: %s", engine.NotDirect[reason], reason)
	}
	if engine.NotRegistered != "" {
		line("not locked", "memory for direct reads is not registered with the ring: %s", engine.NotRegistered)
	}
}
