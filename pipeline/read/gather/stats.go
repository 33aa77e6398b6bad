package gather

import "sync/atomic"

// Stats is a snapshot. Counters only grow.
type Stats struct {
	RecordsOut, BytesOut uint64 // that were lent
	Hits                 uint64 // records that were in memory when wanted
	Waits                uint64 // records that a reader had to wait for
	WaitNanos            uint64
	Reads, BytesRead     uint64 // that have come
	ReadsInFlight        int64
	// ReadsCancelled and BytesCancelled are what was asked for ahead of readers that
	// then went elsewhere, and had not begun.
	ReadsCancelled, BytesCancelled uint64
	// DroppedBytes are of records that nobody had come to when their memory was
	// wanted for others, or their reader had gone elsewhere.
	DroppedBytes uint64
	HeldBytes    int64 // of memory, now
}

// counters are what Stats tells.
type counters struct {
	recordsOut, bytesOut, hits, waits, waitNanos     atomic.Uint64
	reads, bytesRead, readsCancelled, bytesCancelled atomic.Uint64
	dropped                                          atomic.Uint64
	underWay                                         atomic.Int64
}

// Stats gives a snapshot. What was dropped and is not pinned any more is freed
// first.
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
