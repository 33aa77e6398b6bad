package tar

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// Rename implements format.Renamer. The paths of the record's eligible members get the prefix
// dup-<position>/; everything else remains unchanged.
func (Format) Rename(dst, record []byte, position uint64) ([]byte, error) {
	var number [20]byte
	r := renamer{
		dst: dst, record: record,
		dup:    append([]byte("dup-"), strconv.AppendUint(number[:0], position, 10)...),
		digits: len(strconv.AppendUint(number[:0], position, 10)),
	}
	w := newWalker(&sliceSource{bytes: record})
	for {
		m, err := w.next(context.Background())
		if err == io.EOF {
			return append(r.dst, record[r.copied:]...), nil
		}
		if err != nil {
			return nil, fmt.Errorf("tar: rename: the record is not what was indexed: %w", err)
		}
		if m.key() != nil {
			r.rename(m)
		}
	}
}

// renamer rewrites a record.
type renamer struct {
	dst, record []byte
	copied      int64  // how much of record is in dst
	dup         []byte // "dup-<P>"
	digits      int
}

func (r *renamer) rename(m *member) {
	switch m.rule(r.digits) {
	case replaceInPAX:
		old := r.record[m.pax.at+blockBytes:][:m.pax.dataBytes]
		start, end := m.pax.pathStart, m.pax.pathEnd
		if start == end {
			start, end = len(old), len(old)
		}
		data := append([]byte(nil), old[:start]...)
		data = appendPathRecord(data, r.newPrefix(), m.path)
		r.replace(m.pax.at, int64(len(old)), append(data, old[end:]...))
	case replaceLongName:
		data := append(r.newPrefix(), m.path...)
		r.replace(m.long.at, m.long.dataBytes, append(data, 0))
	case replacePrefix:
		r.copyTo(m.header + blockBytes)
		block := r.dst[len(r.dst)-blockBytes:]
		r.putPrefix(block)
	case insertPAX:
		r.copyTo(m.start)
		r.dst = appendPAXHeader(r.dst, appendPathRecord(nil, r.newPrefix(), m.path))
	}
}

// newPrefix returns the prefix to add to a path.
func (r *renamer) newPrefix() []byte {
	return append(append(make([]byte, 0, len(r.dup)+1), r.dup...), '/')
}

// copyTo appends the record's bytes up to offset.
func (r *renamer) copyTo(offset int64) {
	r.dst = append(r.dst, r.record[r.copied:offset]...)
	r.copied = offset
}

// replace rewrites the extension header at offset at with other data.
func (r *renamer) replace(at, oldBytes int64, data []byte) {
	r.copyTo(at + blockBytes)
	block := r.dst[len(r.dst)-blockBytes:]
	putSize(block, int64(len(data)))
	putChecksum(block)
	r.dst = appendPadded(r.dst, data)
	r.copied = at + blockBytes + blocks(oldBytes)
}

// putPrefix sets the block's prefix field to dup, followed by the existing prefix.
func (r *renamer) putPrefix(block []byte) {
	var prefix [prefixBytes]byte
	n := copy(prefix[:], r.dup)
	if old := ustarPrefix(block); len(old) > 0 {
		prefix[n] = '/'
		copy(prefix[n+1:], old)
	}
	copy(block[prefixAt:], prefix[:])
	copy(block[magicAt:], ustarMagic)
	clear(block[paddingAt:])
	putChecksum(block)
}

// appendPadded appends data and the zeros that fill its last block.
func appendPadded(dst, data []byte) []byte {
	return appendPadding(append(dst, data...), int64(len(data)))
}

// appendPadding appends the zeros that fill the last block of size bytes.
func appendPadding(dst []byte, size int64) []byte {
	var zeros [blockBytes]byte
	return append(dst, zeros[:blocks(size)-size]...)
}

// sliceSource is the Source of a slice of bytes.
type sliceSource struct {
	bytes []byte
	at    int64
}

func (s *sliceSource) OffsetBytes() int64 { return s.at }

func (s *sliceSource) Window(min int) ([]byte, error) {
	rest := s.bytes[s.at:]
	if len(rest) < min {
		return rest, io.EOF
	}
	return rest, nil
}

func (s *sliceSource) Discard(n int64) error {
	if n > int64(len(s.bytes))-s.at {
		s.at = int64(len(s.bytes))
		return io.ErrUnexpectedEOF
	}
	s.at += n
	return nil
}

// growth sums up by how many bytes members grow under the equal-key rule, for positions of 1 to 20
// digits.
type growth struct {
	byDigits [format.MaxDigits]int64
	any      bool
}

func (g *growth) reset() {
	if g.any {
		*g = growth{}
	}
}

// slice returns the value of Extent.Growth: nil for a record that never grows.
func (g *growth) slice() []int64 {
	if !g.any {
		return nil
	}
	return g.byDigits[:]
}

// add adds an eligible member. Growth never decreases as digits are added, so if the two ends are
// equal, so are all values between them.
func (g *growth) add(m *member) {
	least, most := m.growth(1), m.growth(format.MaxDigits)
	if least == 0 && most == 0 {
		return
	}
	g.any = true
	for i := range g.byDigits {
		n := least
		if least != most {
			n = m.growth(i + 1)
		}
		g.byDigits[i] += n
	}
}

// rule is the case of the equal-key rule that applies to a member.
type rule int

const (
	replaceInPAX rule = iota
	replaceLongName
	replacePrefix
	insertPAX
)

// dupPrefixBytes returns the length of "dup-<P>" for a P with that many digits.
func dupPrefixBytes(digits int) int { return len("dup-") + digits }

func (m *member) rule(digits int) rule {
	switch {
	case m.pax.at >= 0:
		return replaceInPAX
	case m.long.at >= 0:
		return replaceLongName
	case m.prefixBytes == 0 || dupPrefixBytes(digits)+1+m.prefixBytes <= prefixBytes:
		return replacePrefix
	}
	return insertPAX
}

// growth returns by how many bytes the member grows at a position with that many digits.
func (m *member) growth(digits int) int64 {
	path := int64(dupPrefixBytes(digits) + 1 + len(m.path))
	switch m.rule(digits) {
	case replaceInPAX:
		old := m.pax.dataBytes
		return blocks(old-int64(m.pax.pathEnd-m.pax.pathStart)+pathRecordBytes(path)) - blocks(old)
	case replaceLongName:
		return blocks(path+1) - blocks(m.long.dataBytes)
	case replacePrefix:
		return 0
	}
	return blockBytes + blocks(pathRecordBytes(path))
}

// blocks rounds the size of an extension header's data, which is bounded, up to whole blocks.
func blocks(size int64) int64 {
	return (size + blockBytes - 1) &^ (blockBytes - 1)
}
