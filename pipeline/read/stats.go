package read

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

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

// failures remembers the last few distinct errors.
type failures struct {
	total uint64
	list  []failure // newest last
}

type failure struct {
	text  string
	times uint64
}

const keptFailures = 8

// note records an error for status. The scanner and the gatherer call it with their locks held.
func (f *Fetcher) note(err error) {
	f.told(err)
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

// Changes records the shards that reads have found changed, or missing, since they were indexed.
// Several fetchers may share one. It is safe for concurrent use.
type Changes struct {
	mu    sync.Mutex
	seen  map[string]struct{} // shards that were counted
	first []Change
}

// Change is a shard that differs from what was indexed.
type Change struct {
	Shard  string    `json:"shard"`
	Reason string    `json:"reason"`
	Seen   time.Time `json:"seen"`
}

// Changed is a snapshot of Changes.
type Changed struct {
	// Count is the number of changed shards, at most changesCounted. First are those that were seen
	// first.
	Count int      `json:"count"`
	First []Change `json:"first"`
}

const (
	// changesCounted is the maximum number of shards whose names are kept, so that each is counted
	// once: less than 1 MB.
	changesCounted = 4096
	// changesKept is for how many of them the reasons are kept: as many as a person reads.
	changesKept = 64
)

// Note records the shard of err if err wraps storage.ErrChanged.
func (c *Changes) Note(err error) {
	if !errors.Is(err, storage.ErrChanged) {
		return
	}
	of, ok := errors.AsType[*storage.Error](err)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.seen[of.Object]; known || len(c.seen) == changesCounted {
		return
	}
	if c.seen == nil {
		c.seen = map[string]struct{}{}
	}
	c.seen[of.Object] = struct{}{}
	if len(c.first) < changesKept {
		reason := strings.TrimSuffix(strings.TrimSuffix(of.Err.Error(), storage.ErrChanged.Error()), ": ")
		c.first = append(c.first, Change{Shard: of.Object, Reason: reason, Seen: time.Now()})
	}
}

// Changed returns what was seen so far, nil if nothing was.
func (c *Changes) Changed() *Changed {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.seen) == 0 {
		return nil
	}
	return &Changed{Count: len(c.seen), First: c.first[:len(c.first):len(c.first)]}
}
