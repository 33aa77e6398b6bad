package piece

// Phase is the part of the records that the readers of an epoch ask for. Where a dataset is
// sampled (pipeline/order/SELECTION.md, Samples), epochs have different ones, and those of different numbers
// share no record; else there is one, of number 0.
type Phase struct {
	Number uint64
	Part   Part
}

// Phases are a Part: the records of any of them. No two have one number.
type Phases []Phase

// Has implements Part.
func (p Phases) Has(record uint64) bool {
	for i := range p {
		if p[i].Part.Has(record) {
			return true
		}
	}
	return false
}

// Count implements Part.
func (p Phases) Count(from, to uint64) (n uint64) {
	for i := range p {
		n += p[i].Part.Count(from, to)
	}
	return n
}

// Of is p with another part.
func (p *Places) Of(part Part) *Places {
	q := *p
	q.Part = part
	return &q
}
