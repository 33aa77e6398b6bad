package order

// mostCounted is how many skipped positions CountTaken looks up one by one, which takes about 20
// ms: workers are rarely further apart.
const mostCounted = 1 << 16

// CountTaken returns, by source, how many of an epoch's positions done has taken. If workers are so
// far apart that very many positions would have to be looked up, exact is false, and it counts the
// same number of positions from the epoch's start instead. An impossible entry of done is an error.
func (m *Mixture) CountTaken(epoch uint64, done []Done) (counts []uint64, exact bool, err error) {
	simple, err := Simplify(m.length, m.order, done)
	if err != nil {
		return nil, false, err
	}
	levels, remaining := make([]level, len(simple)), m.length
	for i, d := range simple {
		levels[i] = newLevel(remaining, d)
		remaining = levels[i].left
	}
	origin := func(p uint64, level int) uint64 {
		for i := level - 1; i >= 0; i-- {
			p = levels[i].origin(p)
		}
		return p
	}
	taken, end := m.length-remaining, uint64(0) // end: the position after the last one taken
	for i := range levels {
		if past := levels[i].past; past > 0 {
			end = max(end, origin(past-1, i)+1)
		}
	}
	begin, exact := epoch*m.length, end-taken <= mostCounted
	if !exact {
		end = taken
	}
	before, counts := make([]uint64, len(m.sources)), make([]uint64, len(m.sources))
	m.shares.CountFirst(begin, before)
	m.shares.CountFirst(begin+end, counts)
	for i := range counts {
		counts[i] -= before[i]
	}
	if !exact {
		return counts, false, nil
	}
	behind, list, block := make([]uint64, len(counts)), []uint8(nil), uint64(noBlock)
	for j := range end - taken { // not taken, but before the last one that was
		at := begin + origin(j, len(levels))
		if b := at / mixBlock; b != block {
			block = b
			m.shares.Counts(b*mixBlock, before)
			m.shares.Counts((b+1)*mixBlock, behind)
			list = m.shares.block(b, before, behind, list)
		}
		counts[list[at%mixBlock]]--
	}
	return counts, true, nil
}
