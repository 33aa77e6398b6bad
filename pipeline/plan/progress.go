package plan

// Progress tells when wanted ranges are complete, while the reads of a plan complete in
// any order. It is not for concurrent use. Its zero value is ready for Start, and may be
// started again for another plan.
type Progress struct {
	plan *Plan
	left []int // parts of each range that have not come
}

// Start begins with a plan, which must stay valid while Progress is used. It appends to
// dst the ranges that are complete without a read.
func (g *Progress) Start(p *Plan, dst []int) []int {
	g.plan, g.left = p, g.left[:0]
	for w := range p.Totals.Wanted {
		n := len(p.Sources(w))
		g.left = append(g.left, n)
		if n == 0 {
			dst = append(dst, w)
		}
	}
	return dst
}

// Done notes that a read has completed, and appends to dst the ranges that this read
// completes. It must be called once for each read. A failed read counts as completed;
// Plan.Parts says which ranges it affects.
func (g *Progress) Done(read int, dst []int) []int {
	for _, part := range g.plan.Parts(read) {
		if g.left[part.Want]--; g.left[part.Want] == 0 {
			dst = append(dst, part.Want)
		}
	}
	return dst
}
