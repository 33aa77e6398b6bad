package read

import (
	"github.com/lsiofs/lsiofs/pipeline/read/gather"
	"github.com/lsiofs/lsiofs/pipeline/read/scan"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Stats is a snapshot for status and metrics.
type Stats struct {
	Strategy      string `json:"strategy"` // "scan", "gather" or "spool"
	Reason        string `json:"reason"`   // why this strategy was chosen, in words
	BudgetBytes   int64  `json:"budget_bytes"`
	HeldBytes     int64  `json:"held_bytes"`     // in memory, now
	MappedBytes   int64  `json:"mapped_bytes"`   // in the page cache, now
	RecordsMapped uint64 `json:"records_mapped"` // those of records_out that came from there
	PiecesRead    uint64 `json:"pieces_read"`
	PiecesReread  uint64 `json:"pieces_reread"` // read again because they had been dropped
	PiecesDropped uint64 `json:"pieces_dropped"`
	BytesRead     uint64 `json:"bytes_read"` // of pieces, decoded
	// DecodedBytes counts all output of the decoders of compressed shards, needed or not.
	DecodedBytes uint64 `json:"decoded_bytes"`
	// ReadsCancelled and BytesCancelled count what was requested ahead of readers that then seeked
	// away or closed, and had not begun: pieces in a scan, reads in a gather.
	ReadsCancelled uint64   `json:"reads_cancelled"`
	BytesCancelled uint64   `json:"bytes_cancelled"`
	RecordsOut     uint64   `json:"records_out"`
	BytesOut       uint64   `json:"bytes_out"`
	Hits           uint64   `json:"hits"`  // records that were in memory when asked for
	Waits          uint64   `json:"waits"` // records that a reader had to wait for
	WaitNanos      uint64   `json:"wait_nanos"`
	LoadsInFlight  int64    `json:"loads_in_flight"`
	OpenDecoders   int64    `json:"open_decoders"`
	Errors         uint64   `json:"errors"`
	LastErrors     []string `json:"last_errors"` // a few, newest last

	Leases storage.LeaseStats `json:"leases"`           // of mapped files
	Spool  *SpoolStats        `json:"spool,omitempty"`  // if shards are spooled
	Gather *GatherStats       `json:"gather,omitempty"` // if records are gathered
}

// GatherStats is a snapshot of gathering.
type GatherStats struct {
	Reads         uint64 `json:"reads"`
	ReadsInFlight int64  `json:"reads_in_flight"`
	// DroppedBytes counts records that were read and not used: their memory was needed for others
	// first, or their reader had gone elsewhere.
	DroppedBytes uint64 `json:"dropped_bytes"`
}

// SpoolStats is a snapshot of a spool. Bytes are of decoded shards.
type SpoolStats struct {
	Dir           string `json:"dir"`
	CapacityBytes int64  `json:"capacity_bytes"`
	UsedBytes     int64  `json:"used_bytes"`
	Shards        int    `json:"shards"`         // in the spool, or being decoded into it
	Decoding      int    `json:"decoding"`       // of these, those being decoded now
	Decoded       uint64 `json:"shards_decoded"` // completely, so far
	DecodedAgain  uint64 `json:"shards_decoded_again"`
	// Found counts shards that were already in the disk cache, or were decoded there by another
	// mount.
	Found uint64 `json:"shards_found"`
	// DamagedPieces could not be read back, or differed from what was written. DamagedShards were
	// removed from the spool because of that, and are decoded again.
	DamagedPieces uint64 `json:"pieces_damaged"`
	DamagedShards uint64 `json:"shards_damaged"`
}

// Stats returns a snapshot.
func (f *Fetcher) Stats() Stats {
	s := Stats{Strategy: string(f.o.Choice.Strategy), Reason: f.o.Choice.Reason, BudgetBytes: f.o.MemoryBytes}
	if mapper := f.o.Caps.Mapper; mapper != nil {
		s.Leases = mapper.LeaseStats()
	}
	if f.scanner != nil {
		s.addScanned(f.scanner.Stats())
	} else {
		s.addGathered(f.gatherer.Stats())
		s.HeldBytes += f.o.Survey.TableBytes
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Errors = f.failures.total
	s.LastErrors = f.failures.last()
	return s
}

// addScanned adds a scanner's counts.
func (s *Stats) addScanned(x scan.Stats) {
	s.HeldBytes, s.MappedBytes = x.HeldBytes, x.MappedBytes
	s.PiecesRead, s.PiecesReread, s.PiecesDropped = x.PiecesRead, x.PiecesReread, x.PiecesDropped
	s.BytesRead, s.DecodedBytes = x.BytesRead, x.DecodedBytes
	s.ReadsCancelled, s.BytesCancelled = x.ReadsCancelled, x.BytesCancelled
	s.RecordsOut, s.BytesOut, s.RecordsMapped = x.RecordsOut, x.BytesOut, x.RecordsMapped
	s.Hits, s.Waits, s.WaitNanos = x.Hits, x.Waits, x.WaitNanos
	s.LoadsInFlight, s.OpenDecoders = x.LoadsInFlight, x.OpenDecoders
	if p := x.Spool; p != nil {
		s.Spool = &SpoolStats{
			Dir: p.Dir, CapacityBytes: p.CapacityBytes, UsedBytes: p.UsedBytes, Shards: p.Shards,
			Decoding: p.Decoding, Decoded: p.Decoded, DecodedAgain: p.DecodedAgain, Found: p.Found,
			DamagedPieces: p.DamagedPieces, DamagedShards: p.DamagedShards,
		}
	}
}

// addGathered adds a gatherer's counts.
func (s *Stats) addGathered(x gather.Stats) {
	s.HeldBytes, s.BytesRead = x.HeldBytes, x.BytesRead
	s.ReadsCancelled, s.BytesCancelled = x.ReadsCancelled, x.BytesCancelled
	s.RecordsOut, s.BytesOut = x.RecordsOut, x.BytesOut
	s.Hits, s.Waits, s.WaitNanos = x.Hits, x.Waits, x.WaitNanos
	s.Gather = &GatherStats{Reads: x.Reads, ReadsInFlight: x.ReadsInFlight, DroppedBytes: x.DroppedBytes}
}
