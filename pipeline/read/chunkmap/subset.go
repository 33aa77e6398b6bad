package chunkmap

// Subset is the part of the records that the readers of an epoch ask for. Where a dataset is
// sampled (pipeline/order/SELECTION.md, Samples), epochs have different ones, and those of different numbers
// share no record; else there is one, of number 0.
type Subset struct {
	Number uint64
	Part   Part
}

// Subsets are a Part: the records of any of them. No two have one number.
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

// Of is p with another part.
func (p *Map) Of(part Part) *Map {
	q := *p
	q.Part = part
	return &q
}
