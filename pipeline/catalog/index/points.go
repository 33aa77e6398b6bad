package index

import (
	"encoding/binary"
	"sort"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// storedPointBytes is the size of a point without its state: offset in the decoded shard, in the
// file in bits, u32 checksum, u32 size of its state, and the state's offset among the states.
const storedPointBytes = 4 * 8

// pointCountsBytes is the size of the counts at the end of a blob with points.
const pointCountsBytes = 2 * 8

// point returns the i-th point, without its state and its member.
func (b Blob) point(l *layout, i uint64) format.Point {
	at := l.points + storedPointBytes*i
	return format.Point{DecodedBytes: int64(b.word(at)), RawBits: int64(b.word(at + 8)), CRC32: uint32(b.word(at + 16))}
}

// stateOf returns the location of the state of the i-th point.
func (b Blob) stateOf(l *layout, i uint64) (from, size uint64) {
	at := l.points + storedPointBytes*i
	return b.word(at + 24), b.word(at+16) >> 32
}

// pointsUpTo returns how many points are at or before a byte.
func (b Blob) pointsUpTo(h *Header, l *layout, decodedBytes int64) uint64 {
	return uint64(sort.Search(int(h.Points), func(i int) bool { return b.point(l, uint64(i)).DecodedBytes > decodedBytes }))
}

// Point returns a point by its number, from 1, as in an Entry of this blob. Its State is a slice of
// the blob.
func (b Blob) Point(number int) format.Point {
	h := b.Header()
	l := h.layout()
	p := b.placed(&h, &l, uint64(number)-1)
	from, size := b.stateOf(&l, uint64(number)-1)
	p.State = b[l.states+from:][:size:size]
	return p
}

// NextPoint returns the first point after a byte of the decoded shard, without its State; false if
// there is none.
func (b Blob) NextPoint(decodedBytes int64) (format.Point, bool) {
	h := b.Header()
	l := h.layout()
	i := b.pointsUpTo(&h, &l, decodedBytes)
	if i == h.Points {
		return format.Point{}, false
	}
	return b.placed(&h, &l, i), true
}

// PointBytes returns how many bytes of the blob points take.
func (b Blob) PointBytes() int64 {
	h := b.Header()
	return int64(h.Points*storedPointBytes + h.stateBytes)
}

// placed returns the i-th point, with its member.
func (b Blob) placed(h *Header, l *layout, i uint64) format.Point {
	p := b.point(l, i)
	member := b.member(l, b.membersUpTo(h, l, p.DecodedBytes)-1)
	p.MemberBytes, p.MemberRawBytes = p.DecodedBytes-member.DecodedBytes, member.RawBytes
	return p
}

// checkPoints reports whether the points are in order, each in a member, and their states inside
// the blob.
func (b Blob) checkPoints(h *Header, l *layout) bool {
	decoded, raw, states := int64(-1), int64(-1), uint64(0)
	for i := range h.Points {
		p := b.point(l, i)
		from, size := b.stateOf(l, i)
		if p.DecodedBytes <= decoded || p.RawBits <= raw || p.DecodedBytes > h.DecodedBytes ||
			from != states || size > format.MaxStateBytes || size > h.stateBytes-states || b.membersUpTo(h, l, p.DecodedBytes) == 0 {
			return false
		}
		decoded, raw, states = p.DecodedBytes, p.RawBits, states+size
	}
	return states == h.stateBytes && (h.Points > 0) == (h.flags&flagPoints != 0)
}

// putPoints writes points to their parts.
func (b Blob) putPoints(l *layout, points []format.Point) {
	if len(points) == 0 {
		return
	}
	states := uint64(0)
	for i, p := range points {
		at := b[l.points+storedPointBytes*uint64(i):]
		binary.LittleEndian.PutUint64(at, uint64(p.DecodedBytes))
		binary.LittleEndian.PutUint64(at[8:], uint64(p.RawBits))
		binary.LittleEndian.PutUint64(at[16:], uint64(len(p.State))<<32|uint64(p.CRC32))
		binary.LittleEndian.PutUint64(at[24:], states)
		copy(b[l.states+states:], p.State)
		states += uint64(len(p.State))
	}
	binary.LittleEndian.PutUint64(b[l.counts:], uint64(len(points)))
	binary.LittleEndian.PutUint64(b[l.counts+8:], states)
}
