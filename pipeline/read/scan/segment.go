package scan

import (
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/mapped"
	"github.com/lsiofs/lsiofs/pipeline/read/spool"
)

// segment is memory that holds pieces one after the other.
//
// It is pinned by the loans and the loads that use its bytes. One that nobody pins
// may be made dead: its memory is then the cache's again, and the struct is left to
// those who still point to it.
type segment struct {
	budget.Memory
	used    int64    // under Scanner.mu
	entries []*entry // under Scanner.mu
	tables  int64    // bytes of entries, under Scanner.mu
}

// entry is a piece in memory, or what is left of one: where each record lies in its
// segment or region. All but the bits is immutable.
type entry struct {
	mem    *budget.Memory // of a segment, or of region
	region *mapped.Region // nil: it does not lie in a mapped file
	piece  int
	spans  []chunkmap.Span
	whole  bool            // all of the piece that is of the part is here
	bad    map[int]error   // records that failed their checksum
	out    []atomic.Uint64 // a bit a record: gone out

	// Where the shard is spooled, its place there is told what has gone out.
	spooled *spool.Place
	ordinal uint64 // of the first record in the shard
}

func newEntry(mem *budget.Memory, piece int, spans []chunkmap.Span) *entry {
	return &entry{mem: mem, piece: piece, spans: spans, whole: true, out: make([]atomic.Uint64, (len(spans)+63)/64)}
}

// mapped says whether the entry lies in a mapped file.
func (e *entry) mapped() bool { return e.region != nil }

// tableBytes is the memory of the entry itself.
func (e *entry) tableBytes() int64 { return chunkmap.TableBytes(len(e.spans)) }

func (e *entry) delivered(i int) bool { return e.out[i>>6].Load()&(1<<(i&63)) != 0 }

// goneBits are a bit a record: it has gone out.
func (e *entry) goneBits() []uint64 {
	bits := make([]uint64, len(e.out))
	for w := range bits {
		bits[w] = e.out[w].Load()
	}
	return bits
}

// deliver notes that record i has gone out, and returns false if it had before.
func (e *entry) deliver(i int) bool {
	w, bit := &e.out[i>>6], uint64(1)<<(i&63)
	if w.Load()&bit != 0 || w.Or(bit)&bit != 0 {
		return false
	}
	e.mem.Live.Add(-e.spans[i].SizeBytes)
	if e.spooled != nil {
		e.spooled.GoneOut(e.ordinal + uint64(i))
	}
	return true
}

// renew makes all records wanted again if all had gone out: another epoch has
// come to the piece. It is called with Scanner.mu held.
func (e *entry) renew() {
	if e.liveBytes() > 0 {
		return
	}
	for w := range e.out {
		e.out[w].Store(0)
	}
	e.mem.Live.Add(e.liveBytes())
}

// bytes of record i, in memory that must be pinned.
func (e *entry) bytes(i int) []byte {
	s := e.spans[i]
	return e.mem.Bytes[s.OffsetBytes : s.OffsetBytes+s.SizeBytes : s.OffsetBytes+s.SizeBytes]
}

// liveBytes counts what of the entry has not gone out.
func (e *entry) liveBytes() int64 {
	n := int64(0)
	for i, s := range e.spans {
		if s.SizeBytes >= 0 && !e.delivered(i) {
			n += s.SizeBytes
		}
	}
	return n
}
