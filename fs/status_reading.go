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
