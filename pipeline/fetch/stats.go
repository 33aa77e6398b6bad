package fetch

import (
	"fmt"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Stats is a snapshot for status and metrics.
type Stats struct {
	Strategy      string `json:"strategy"` // "scan", "gather" or "spool"
	Reason        string `json:"reason"`   // why this one, in words
	BudgetBytes   int64  `json:"budget_bytes"`
	HeldBytes     int64  `json:"held_bytes"`     // of memory, now
	MappedBytes   int64  `json:"mapped_bytes"`   // of the page cache, now
	RecordsMapped uint64 `json:"records_mapped"` // of records_out, those from there
	PiecesRead    uint64 `json:"pieces_read"`
	PiecesReread  uint64 `json:"pieces_reread"` // read again because they had been dropped
	PiecesDropped uint64 `json:"pieces_dropped"`
	BytesRead     uint64 `json:"bytes_read"` // of pieces, decoded
	// DecodedBytes are all that have come out of decoders of compressed shards,
	// also those that nobody wanted.
	DecodedBytes uint64 `json:"decoded_bytes"`
	// ReadsCancelled and BytesCancelled are what was asked for ahead of readers
	// that then went elsewhere, and had not begun: pieces where they are
	// scanned, reads where records are gathered.
	ReadsCancelled uint64   `json:"reads_cancelled"`
	BytesCancelled uint64   `json:"bytes_cancelled"`
	RecordsOut     uint64   `json:"records_out"`
	BytesOut       uint64   `json:"bytes_out"`
	Hits           uint64   `json:"hits"`  // records that were in memory when wanted
	Waits          uint64   `json:"waits"` // records that a reader had to wait for
	WaitNanos      uint64   `json:"wait_nanos"`
	LoadsInFlight  int64    `json:"loads_in_flight"`
	OpenDecoders   int64    `json:"open_decoders"`
	Errors         uint64   `json:"errors"`
	LastErrors     []string `json:"last_errors"` // a few, newest last

	Leases storage.LeaseStats `json:"leases"`           // of what is mapped
	Spool  *SpoolStats        `json:"spool,omitempty"`  // where shards are spooled
	Gather *GatherStats       `json:"gather,omitempty"` // where records are gathered
}

// GatherStats is a snapshot of gathering.
type GatherStats struct {
	Reads         uint64 `json:"reads"`
	ReadsInFlight int64  `json:"reads_in_flight"`
	// DroppedBytes are of records that nobody had come to when their memory was
	// wanted for others, or their reader had gone elsewhere.
	DroppedBytes uint64 `json:"dropped_bytes"`
}

// SpoolStats is a snapshot of a spool. Bytes are of decoded shards.
type SpoolStats struct {
	Dir           string `json:"dir"`
	CapacityBytes int64  `json:"capacity_bytes"`
	UsedBytes     int64  `json:"used_bytes"`
	Shards        int    `json:"shards"`         // in the spool, or on their way there
	Decoding      int    `json:"decoding"`       // of these, being decoded now
	Decoded       uint64 `json:"shards_decoded"` // to their end, so far
	DecodedAgain  uint64 `json:"shards_decoded_again"`
	// DamagedPieces could not be read back, or not as they were written, and
	// DamagedShards were taken out of the spool for it: they are decoded again.
	DamagedPieces uint64 `json:"pieces_damaged"`
	DamagedShards uint64 `json:"shards_damaged"`
}

// Stats gives a snapshot.
func (f *Fetcher) Stats() Stats {
	n := &f.counts
	s := Stats{
		Strategy:     string(f.choice.Strategy),
		Reason:       f.choice.Reason,
		BudgetBytes:  f.config.MemoryBytes,
		PiecesRead:   n.piecesRead.Load(),
		PiecesReread: n.piecesReread.Load(),
		BytesRead:    n.bytesRead.Load(),
		DecodedBytes: n.decoded.Load(),
		RecordsOut:   n.recordsOut.Load(),
		BytesOut:     n.bytesOut.Load(),
		Hits:         n.hits.Load(),
		Waits:        n.waits.Load(),
		WaitNanos:    n.waitNanos.Load(),

		RecordsMapped:  n.recordsMapped.Load(),
		ReadsCancelled: n.readsCancelled.Load(),
		BytesCancelled: n.bytesCancelled.Load(),
	}
	maps := f.maps.Stats()
	s.MappedBytes, s.Leases = maps.Bytes, maps.Leases
	if g := f.gatherer; g != nil {
		s.addGathered(g.Stats())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s.HeldBytes += f.cache.mapped + f.cache.tables + f.decoders.held + f.tableBytes()
	s.PiecesDropped = f.cache.dropped
	s.LoadsInFlight = int64(len(f.loads))
	s.OpenDecoders = int64(len(f.decoders.all))
	s.Errors = f.failures.total
	s.LastErrors = f.failures.last()
	if p := f.spool; p != nil {
		s.HeldBytes += p.tables
		s.Spool = &SpoolStats{
			Dir: p.file.dir, CapacityBytes: p.file.capacity, UsedBytes: p.file.used(), Shards: len(p.shards),
			Decoding: p.running, Decoded: p.decoded, DecodedAgain: p.again,
			DamagedPieces: p.losses.pieces, DamagedShards: p.losses.shards,
		}
	}
	return s
}

// failures remembers the last few different errors.
type failures struct {
	total uint64
	list  []failure // the newest last
}

type failure struct {
	text  string
	times uint64
}

const keptFailures = 8

// note keeps an error for status.
func (f *Fetcher) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failures.add(err)
}

func (l *failures) add(err error) {
	l.total++
	text, times := err.Error(), uint64(1)
	for i, x := range l.list {
		if x.text == text {
			times += x.times
			l.list = append(l.list[:i], l.list[i+1:]...)
			break
		}
	}
	if len(l.list) == keptFailures {
		l.list = append(l.list[:0], l.list[1:]...)
	}
	l.list = append(l.list, failure{text, times})
}

func (l *failures) last() []string {
	out := make([]string, 0, len(l.list))
	for _, x := range l.list {
		if x.times > 1 {
			x.text += fmt.Sprintf(" (%d times)", x.times)
		}
		out = append(out, x.text)
	}
	return out
}
