package fs

import (
	"maps"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
)

// describeReading writes how data is read, and how much of it is in memory.
func (r *statusReport) describeReading(line func(label, format string, args ...any)) {
	if r.Pipeline.Remote == nil {
		r.describeEngine(line)
	}
	line("storage", "%s", r.Pipeline.Storage)
	f := r.Pipeline.Fetch
	line("memory", "%s of %s held; %s of the page cache mapped, from which %s records went out", size(f.HeldBytes), size(f.BudgetBytes),
		size(f.MappedBytes), humanize.Comma(int64(f.RecordsMapped)))
	if l := f.Leases; l.Held > 0 || l.Broken > 0 || len(l.Refused) > 0 {
		line("leases", "%d mapped files can't be written to but for a moment's wait; %d leases were given up to writers", l.Held, l.Broken)
	}
	for _, reason := range slices.Sorted(maps.Keys(f.Leases.Refused)) {
		line("no lease", "%d mapped files, whose records are copied: %s", f.Leases.Refused[reason], reason)
	}
	if g := f.Gather; g != nil {
		line("fetch", "%s%s; %s in %d reads for %s that were wanted, %d reads in flight, %s dropped unread", f.Strategy, because(f.Reason),
			size(int64(f.BytesRead)), g.Reads, size(int64(f.BytesOut)), g.ReadsInFlight, size(int64(g.DroppedBytes)))
	} else {
		line("fetch", "%s%s; %d pieces read, %d of them again, %d loads in flight, %d open decoders", f.Strategy, because(f.Reason),
			f.PiecesRead, f.PiecesReread, f.LoadsInFlight, f.OpenDecoders)
	}
	if n := r.Pipeline.Retries; n.Retries > 0 || n.Waiting > 0 {
		line("retries", "%s reads were made again after errors that pass, %s failed all the same; %d wait to be", humanize.Comma(int64(n.Retries)),
			humanize.Comma(int64(n.GaveUp)), n.Waiting)
	}
	r.DescribeCubes(line)
	r.DescribeService(line)
	if f.ReadsCancelled > 0 {
		line("called off", "%d reads ahead of readers that went elsewhere, %s", f.ReadsCancelled, size(int64(f.BytesCancelled)))
	}
	if s := f.Spool; s != nil {
		line("spool", "%s of %s used in %s; %d shards are there or on their way, %d being decoded; %d were decoded, %d of them again",
			size(s.UsedBytes), size(s.CapacityBytes), s.Dir, s.Shards, s.Decoding, s.Decoded, s.DecodedAgain)
		if s.DamagedPieces > 0 {
			line("spool loss", "%d pieces could not be read back, or were other bytes than were written; %d shards left the spool for it and are decoded again: look at the disk of %s, or mount with another --spool-dir",
				s.DamagedPieces, s.DamagedShards, s.Dir)
		}
	}
	if s := r.Pipeline.Start; s != nil && s.DecodeBytes > 0 {
		line("start", "it takes %s", s.Text())
	}
	line("records", "%s were in memory when wanted, %s were waited for (%s together)", humanize.Comma(int64(f.Hits)),
		humanize.Comma(int64(f.Waits)), time.Duration(f.WaitNanos).Round(time.Millisecond))
}

// describeEngine writes how files are read.
func (r *statusReport) describeEngine(line func(label, format string, args ...any)) {
	engine := r.Pipeline.Engine
	line("reads with", "%s%s; %d in flight (%s), %s read in %s reads, %s of them from the page cache at once, %s past it", engine.Engine, because(engine.Reason),
		engine.InFlight, size(engine.InFlightBytes), size(int64(engine.ReadBytes)), humanize.Comma(int64(engine.Reads)),
		humanize.Comma(int64(engine.CachedReads)), humanize.Comma(int64(engine.DirectReads)))
	if engine.RemoteReads > 0 || engine.Stuck > 0 {
		line("remote", "%s of them by threads, since the files lie on FUSE or a network file system; %d wait for more than a second now",
			humanize.Comma(int64(engine.RemoteReads)), engine.Stuck)
	}
	for _, reason := range slices.Sorted(maps.Keys(engine.NotDirect)) {
		line("not direct", "%d files: %s", engine.NotDirect[reason], reason)
	}
	if engine.NotRegistered != "" {
		line("not locked", "memory for direct reads is not registered with the ring: %s", engine.NotRegistered)
	}
}
