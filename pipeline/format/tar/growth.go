package tar

import "github.com/lsiofs/lsiofs/pipeline/format"

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
