package chunkmap

// Subset is the set of records that the readers of an epoch ask for. If a dataset is sampled
// (pipeline/order/SELECTION.md, Samples), epochs have different subsets, and those with different
// numbers share no record; otherwise there is one, with number 0.
type Subset struct {
	Number uint64
	Part   Part
}

// Subsets are a Part with the records of any of them. All numbers are distinct.
type Subsets []Subset

// Has implements Part.
func (p Subsets) Has(record uint64) bool {
	for i := range p {
		if p[i].Part.Has(record) {
			return true
		}
	}
	return false
}

// Count implements Part.
func (p Subsets) Count(from, to uint64) (n uint64) {
	for i := range p {
		n += p[i].Part.Count(from, to)
	}
	return n
}

// Of returns p with another part.
func (p *Map) Of(part Part) *Map {
	q := *p
	q.Part = part
	return &q
}
