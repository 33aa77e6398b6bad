package plan

// Progress tracks which wanted ranges are complete, while the reads of a plan complete in any
// order. It must not be used concurrently. Its zero value is ready for Start, which may be called
// again for another plan.
type Progress struct {
	plan *Plan
	left []int // number of parts of each range that have not arrived
}

// Start begins tracking a plan, which must stay valid while Progress is used. It appends to dst the
// ranges that are complete without a read.
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

// Done records that a read has completed, and appends to dst the ranges that this read completes.
// It must be called once for each read. A failed read counts as completed; Plan.Parts has the
// ranges that it affects.
func (g *Progress) Done(read int, dst []int) []int {
	for _, part := range g.plan.Parts(read) {
		if g.left[part.Want]--; g.left[part.Want] == 0 {
			dst = append(dst, part.Want)
		}
	}
	return dst
}
