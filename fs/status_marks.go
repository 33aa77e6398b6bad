package fs

import (
	"bytes"
	"context"
	"fmt"
	"slices"

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
