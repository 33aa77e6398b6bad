package table

import "unsafe"

// Lists consist of slabs of slabBytes: growing a contiguous list would temporarily take its memory
// twice.
const slabBytes = 1 << 20

// texts stores texts by number.
type texts struct {
	slabs                [][]byte
	usedBytes, heldBytes int64
}

// add copies a text, and returns its number. Numbers never decrease.
func (t *texts) add(b []byte) int64 {
	n := len(t.slabs) - 1
	if n < 0 || len(b) > cap(t.slabs[n])-len(t.slabs[n]) {
		size := min(max(t.heldBytes, 4<<10), slabBytes)
		t.slabs = append(t.slabs, make([]byte, 0, max(size, int64(len(b)))))
		n++
		t.heldBytes += int64(cap(t.slabs[n]))
	}
	at := len(t.slabs[n])
	t.slabs[n] = append(t.slabs[n], b...)
	t.usedBytes += int64(len(b))
	return int64(n)<<32 | int64(at)
}

// at returns the text with a number and size. It must not be modified.
func (t *texts) at(number, size int64) []byte {
	at := number & (1<<32 - 1)
	return t.slabs[number>>32][at : at+size : at+size]
}

// entries is a list of entries.
type entries struct {
	slabs [][]entry
	n     int
}

const (
	entryBytes  = int(unsafe.Sizeof(entry{}))
	slabEntries = slabBytes / entryBytes
)

func (l *entries) at(i int) *entry { return &l.slabs[i/slabEntries][i%slabEntries] }

func (l *entries) add(e entry) {
	last := l.n / slabEntries
	if last == len(l.slabs) {
		size := slabEntries
		if last == 0 {
			size = 16 // it grows: there may be many small tables
		}
		l.slabs = append(l.slabs, make([]entry, 0, size))
	}
	l.slabs[last] = append(l.slabs[last], e)
	l.n++
}

// cut keeps the first n.
func (l *entries) cut(n int) {
	clear(l.slabs[(n+slabEntries-1)/slabEntries:])
	l.slabs = l.slabs[:(n+slabEntries-1)/slabEntries]
	l.n = n
}

func (l *entries) heldBytes() int64 { return int64(l.n * entryBytes) }
