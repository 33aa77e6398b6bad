package gather

import "sync/atomic"

// Stats is a snapshot. Counters only grow.
type Stats struct {
	RecordsOut, BytesOut uint64 // returned by Read
	Hits                 uint64 // records that were in memory when asked for
	Waits                uint64 // records that a reader had to wait for
	WaitNanos            uint64
	Reads, BytesRead     uint64 // completed
	ReadsInFlight        int64
	// ReadsCancelled and BytesCancelled count what was requested ahead of readers that then seeked
	// away or closed, and had not begun.
	ReadsCancelled, BytesCancelled uint64
	// DroppedBytes counts records that were read and not used: their memory was needed for others
	// first, or their reader had gone elsewhere.
	DroppedBytes uint64
	HeldBytes    int64 // in memory, now
}

// counters are the counted parts of Stats.
type counters struct {
	recordsOut, bytesOut, hits, waits, waitNanos     atomic.Uint64
	reads, bytesRead, readsCancelled, bytesCancelled atomic.Uint64
	dropped                                          atomic.Uint64
	underWay                                         atomic.Int64
}

// Stats returns a snapshot. It first frees dropped batches that are no longer pinned.
func (g *Gatherer) Stats() Stats {
	g.sweep()
	n := &g.counts
	return Stats{
		RecordsOut: n.recordsOut.Load(), BytesOut: n.bytesOut.Load(),
		Hits: n.hits.Load(), Waits: n.waits.Load(), WaitNanos: n.waitNanos.Load(),
		Reads: n.reads.Load(), BytesRead: n.bytesRead.Load(), ReadsInFlight: n.underWay.Load(),
		ReadsCancelled: n.readsCancelled.Load(), BytesCancelled: n.bytesCancelled.Load(),
		DroppedBytes: n.dropped.Load(), HeldBytes: g.pool.Held(),
	}
}
