package scan

import (
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/read/spool"
)

// Stats is a snapshot. Counters only grow.
type Stats struct {
	RecordsOut, BytesOut uint64 // returned by Read
	RecordsMapped        uint64 // of these, from the page cache
	Hits                 uint64 // records that were in memory when asked for
	Waits                uint64 // records that a reader had to wait for
	WaitNanos            uint64
	PiecesRead           uint64
	PiecesReread         uint64 // read again because they had been dropped
	PiecesDropped        uint64
	BytesRead            uint64 // of pieces, decoded
	// DecodedBytes counts all output of decoders, needed or not.
	DecodedBytes uint64
	// ReadsCancelled and BytesCancelled count pieces that were requested ahead of readers that then
	// seeked away or closed, and had not begun.
	ReadsCancelled, BytesCancelled uint64
	HeldBytes                      int64 // in memory, now, tables included
	MappedBytes                    int64 // in the page cache, now
	LoadsInFlight, OpenDecoders    int64
	AheadBytes                     int64        // of loads in flight, those that are read ahead, with their tables
	Spool                          *spool.Stats // nil if nothing is spooled
}

// counters are the parts of Stats that no lock protects.
type counters struct {
	recordsOut, bytesOut, hits, waits, waitNanos atomic.Uint64
	piecesRead, piecesReread, bytesRead          atomic.Uint64
	recordsMapped                                atomic.Uint64
	readsCancelled, bytesCancelled               atomic.Uint64
}

// Stats returns a snapshot.
func (sc *Scanner) Stats() Stats {
	n := &sc.counts
	s := Stats{
		PiecesRead: n.piecesRead.Load(), PiecesReread: n.piecesReread.Load(), BytesRead: n.bytesRead.Load(),
		RecordsOut: n.recordsOut.Load(), BytesOut: n.bytesOut.Load(), RecordsMapped: n.recordsMapped.Load(),
		Hits: n.hits.Load(), Waits: n.waits.Load(), WaitNanos: n.waitNanos.Load(),
		ReadsCancelled: n.readsCancelled.Load(), BytesCancelled: n.bytesCancelled.Load(),
		MappedBytes: sc.maps.Stats().Bytes,
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	decoders := sc.decoders.Stats() // first, so that memory that moves to a segment is not counted twice
	s.DecodedBytes = decoders.DecodedBytes
	s.HeldBytes = sc.cache.mapped + sc.cache.tables + decoders.HeldBytes + sc.TableBytes()
	s.PiecesDropped = sc.cache.dropped
	s.LoadsInFlight, s.AheadBytes = int64(len(sc.loads)), sc.aheadOut
	s.OpenDecoders = int64(decoders.Open)
	if sc.spool != nil {
		x := sc.spool.Stats()
		s.HeldBytes += x.TableBytes
		s.Spool = &x
	}
	return s
}
