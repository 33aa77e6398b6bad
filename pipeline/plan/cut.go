package plan

// add plans the reads of fragments that form one overlapping run, which follows all runs added
// before, and ends at end.
func (p *Planner) add(f []fragment, end int64) {
	begin, vectors := f[0].begin, countVectors(f)
	p.plan.Totals.UsefulBytes += end - begin
	if r := p.joinable(f[0].object, begin, end, vectors); r != nil {
		if begin > r.OffsetBytes+r.SizeBytes {
			r.vectors++ // for the gap
		}
		r.vectors += vectors
		r.SizeBytes = end - r.OffsetBytes
		p.addParts(f, begin, end)
		return
	}
	for end-begin > p.config.MaxReadBytes {
		to := p.cut(begin, end)
		p.addRead(f, begin, to)
		begin = to
	}
	p.addRead(f, begin, end)
}

// joinable returns the last read if bytes [begin, end) may be merged into it, otherwise nil.
func (p *Planner) joinable(object int, begin, end int64, vectors int) *Read {
	pl, c := &p.plan, &p.config
	if len(pl.Reads) == 0 {
		return nil
	}
	r := &pl.Reads[len(pl.Reads)-1]
	gap := begin - (r.OffsetBytes + r.SizeBytes)
	switch {
	case r.Object != object, gap > c.MergeGapBytes, end-r.OffsetBytes > c.MaxReadBytes:
		return nil
	case c.MaxVectors > 0 && r.vectors+vectors+int(min(gap, 1)) > c.MaxVectors:
		return nil
	}
	return r
}

// cut returns the end of the first of several reads for [begin, end): so that there are as few as
// possible, of about the same size.
func (p *Planner) cut(begin, end int64) int64 {
	most, align := p.config.MaxReadBytes, p.config.AlignBytes
	reads := (end-begin-1)/most + 1
	size := (end-begin-1)/reads + 1
	size = (size + align - 1) / align * align
	return (begin + size) / align * align
}

// addRead adds a read of [begin, end), part of which is in f.
func (p *Planner) addRead(f []fragment, begin, end int64) {
	pl := &p.plan
	n := len(pl.byRead)
	pl.Reads = append(pl.Reads, Read{Object: f[0].object, OffsetBytes: begin, SizeBytes: end - begin, from: n, to: n})
	p.addParts(f, begin, end)
	r := &pl.Reads[len(pl.Reads)-1]
	r.vectors = r.to - r.from
}

// addParts adds the parts of f within [begin, end) to the last read.
func (p *Planner) addParts(f []fragment, begin, end int64) {
	pl := &p.plan
	read := len(pl.Reads) - 1
	r := &pl.Reads[read]
	for _, x := range f {
		if x.begin >= end {
			break
		}
		from, to := max(x.begin, begin), min(x.end, end)
		if from < to {
			pl.byRead = append(pl.byRead, Part{
				Read: read, Want: x.want,
				ReadOffset: from - r.OffsetBytes, WantOffset: x.at + from - x.begin, SizeBytes: to - from,
			})
		}
	}
	r.to = len(pl.byRead)
}
