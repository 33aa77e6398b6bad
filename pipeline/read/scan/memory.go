package scan

import (
	"slices"

	"github.com/lsiofs/lsiofs/uring"
)

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
