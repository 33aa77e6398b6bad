package order

// mostCounted is how many positions that were left out are looked at one by one, which
// takes some 20 ms: workers are seldom further apart.
const mostCounted = 1 << 16

// CountTaken counts how many of the positions of an epoch that done has taken are of each
// source. Where workers are so far apart that it would have to look at very many positions,
// exact is false, and it counts as many positions from the epoch's start. An impossible
// entry of done is an error.
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
	taken, end := m.length-remaining, uint64(0) // behind the last position that was taken
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
	for j := range end - taken { // not taken, before the last that was
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
