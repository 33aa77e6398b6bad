package scan

import (
	"slices"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/mapped"
	"github.com/lsiofs/lsiofs/pipeline/read/spool"
	"github.com/lsiofs/lsiofs/uring"
)

// segment is memory that holds pieces one after the other.
//
// It is pinned by loads and pinned.Records that use its bytes. A segment that is not pinned may be
// killed: its memory returns to the cache, and the struct stays valid for remaining pointers to it.
type segment struct {
	budget.Memory
	used    int64    // guarded by Scanner.mu
	entries []*entry // guarded by Scanner.mu
	tables  int64    // bytes of entries, guarded by Scanner.mu
}

// entry is a piece in memory, or what is left of one: where each record is in its segment or
// region. It is immutable except for the bits.
type entry struct {
	mem    *budget.Memory // of a segment, or of region
	region *mapped.Region // nil if the entry is not in a mapped file
	piece  int
	spans  []chunkmap.Span
	whole  bool            // has all records of the piece that are in the part
	bad    map[int]error   // records that failed their checksum
	out    []atomic.Uint64 // one bit per record: delivered

	// If the shard is spooled, its place in the spool is told which records were delivered.
	spooled *spool.Place
	ordinal uint64 // of the first record in the shard
}

func newEntry(mem *budget.Memory, piece int, spans []chunkmap.Span) *entry {
	return &entry{mem: mem, piece: piece, spans: spans, whole: true, out: make([]atomic.Uint64, (len(spans)+63)/64)}
}

// mapped reports whether the entry is in a mapped file.
func (e *entry) mapped() bool { return e.region != nil }

// tableBytes returns the memory of the entry itself.
func (e *entry) tableBytes() int64 { return chunkmap.TableBytes(len(e.spans)) }

func (e *entry) delivered(i int) bool { return e.out[i>>6].Load()&(1<<(i&63)) != 0 }

// goneBits returns one bit per record: it was delivered.
func (e *entry) goneBits() []uint64 {
	bits := make([]uint64, len(e.out))
	for w := range bits {
		bits[w] = e.out[w].Load()
	}
	return bits
}

// deliver notes that record i was delivered, and returns false if it already had been.
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

// renew makes all records wanted again if all were delivered: another epoch has reached the piece.
// It is called with Scanner.mu held.
func (e *entry) renew() {
	if e.liveBytes() > 0 {
		return
	}
	for w := range e.out {
		e.out[w].Store(0)
	}
	e.mem.Live.Add(e.liveBytes())
}

// bytes returns record i. The entry's memory must be pinned.
func (e *entry) bytes(i int) []byte {
	s := e.spans[i]
	return e.mem.Bytes[s.OffsetBytes : s.OffsetBytes+s.SizeBytes : s.OffsetBytes+s.SizeBytes]
}

// liveBytes returns the bytes of the entry's undelivered records.
func (e *entry) liveBytes() int64 {
	n := int64(0)
	for i, s := range e.spans {
		if s.SizeBytes >= 0 && !e.delivered(i) {
			n += s.SizeBytes
		}
	}
	return n
}

// memory allocates segments. Released memory becomes spare, and is reused: the kernel has to clear
// new pages, which costs a third of what it costs to read them from a service. Spare memory counts
// as held until it is unmapped. All methods are called with Scanner.mu held.
type memory struct {
	segment    int64    // bytes of a usual segment
	spare      [][]byte // can be reused, oldest first
	spareBytes int64
	mapped     int64        // bytes, including spare memory
	released   func([]byte) // tests overwrite released memory
	dry        bool         // Options.Dry: no byte is touched
}

// wasteShare limits what is lost when a segment is reused for a smaller piece: an eighth of the
// piece. Chunks of one size differ by less, except for the last of a shard.
const wasteShare = 8

// fit returns the index of the smallest spare segment that n bytes may use, -1 if there is none. A
// usual segment only uses one of exactly its size.
func (m *memory) fit(n int64) int {
	most := n + n/wasteShare
	if n <= m.segment {
		most = n
	}
	best := -1
	for i, b := range m.spare {
		size := int64(len(b))
		if size >= n && size <= most && (best < 0 || size < int64(len(m.spare[best]))) {
			best = i
		}
	}
	return best
}

// grows returns by how many bytes the held memory would grow if n bytes were taken and all other
// spare memory were unmapped.
func (m *memory) grows(n int64) int64 {
	if i := m.fit(n); i >= 0 {
		return int64(len(m.spare[i])) - m.spareBytes
	}
	return n - m.spareBytes
}

// take returns n bytes or more.
func (m *memory) take(n int64) ([]byte, error) {
	if i := m.fit(n); i >= 0 {
		b := m.spare[i]
		m.spare = slices.Delete(m.spare, i, i+1)
		m.spareBytes -= int64(len(b))
		return b, nil
	}
	b, err := uring.Map(int(n))
	if err == nil {
		m.mapped += n
	}
	return b, err
}

// give takes memory back, which is spare from then on.
func (m *memory) give(b []byte) {
	if m.released != nil {
		m.released(b)
	}
	m.spare = append(m.spare, b)
	m.spareBytes += int64(len(b))
}

// trim unmaps spare memory, the oldest first, until at least that many bytes are unmapped or there
// is none.
func (m *memory) trim(bytes int64) error {
	var first error
	for bytes > 0 && len(m.spare) > 0 {
		b := m.spare[0]
		m.spare = slices.Delete(m.spare, 0, 1)
		size := int64(len(b))
		m.spareBytes -= size
		m.mapped -= size
		bytes -= size
		if err := uring.Unmap(b); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// close unmaps all spare memory.
func (m *memory) close() error { return m.trim(m.spareBytes) }
