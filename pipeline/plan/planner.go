package plan

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
)

// Planner makes one plan after another in memory that it reuses, so that planning allocates nothing
// once that memory has grown. It must not be used concurrently. A caller that needs several plans
// at a time uses several planners.
type Planner struct {
	config    Config
	plan      Plan
	have      []span
	fragments []fragment
}

// span is an available range of an object.
type span struct {
	object     int
	begin, end int64
}

// fragment is a contiguous part of a wanted range that is not available.
type fragment struct {
	object     int
	begin, end int64
	want       int
	at         int64 // offset in the wanted range
}

// New returns a planner for a storage.
func New(c Config) (*Planner, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return &Planner{config: c}, nil
}

// Config returns New's argument.
func (p *Planner) Config() Config { return p.config }

// Plan plans the reads of a request.
//
// The reads are disjoint and sorted. None is larger than MaxReadBytes. Together they contain each
// wanted byte that is not in Have. No run of unwanted bytes in a read is longer than MergeGapBytes.
// The plan is valid until the next call.
//
// It takes O(n log n) time for n ranges, and fails only with ErrRange.
func (p *Planner) Plan(r Request) (*Plan, error) {
	pl := &p.plan
	pl.Reads, pl.byRead, pl.Totals = pl.Reads[:0], pl.byRead[:0], Totals{Wanted: len(r.Want)}
	if err := p.takeHave(r); err != nil {
		return nil, err
	}
	if err := p.takeWant(r); err != nil {
		return nil, err
	}
	for f := p.fragments; len(f) > 0; {
		n, end := overlapping(f)
		p.add(f[:n], end)
		f = f[n:]
	}
	p.finish()
	return pl, nil
}

// takeHave sorts the available ranges into disjoint spans.
func (p *Planner) takeHave(r Request) error {
	p.have = p.have[:0]
	for i, h := range r.Have {
		begin, end, err := h.resolve(r.ObjectBytes)
		if err != nil {
			return fmt.Errorf("plan: range %d that is there: %w", i, err)
		}
		if begin < end {
			p.have = append(p.have, span{h.Object, begin, end})
		}
	}
	slices.SortFunc(p.have, func(a, b span) int {
		if a.object != b.object {
			return cmp.Compare(a.object, b.object)
		}
		return cmp.Compare(a.begin, b.begin)
	})
	n := 0
	for _, s := range p.have {
		if n > 0 && p.have[n-1].object == s.object && s.begin <= p.have[n-1].end {
			p.have[n-1].end = max(p.have[n-1].end, s.end)
			continue
		}
		p.have[n] = s
		n++
	}
	p.have = p.have[:n]
	return nil
}

// takeWant computes the fragments that have to be read, sorted.
func (p *Planner) takeWant(r Request) error {
	p.fragments = p.fragments[:0]
	for i, w := range r.Want {
		begin, end, err := w.resolve(r.ObjectBytes)
		if err != nil {
			return fmt.Errorf("plan: wanted range %d: %w", i, err)
		}
		p.plan.Totals.WantedBytes += end - begin
		p.split(fragment{w.Object, begin, end, i, 0})
	}
	slices.SortFunc(p.fragments, func(a, b fragment) int {
		switch {
		case a.object != b.object:
			return cmp.Compare(a.object, b.object)
		case a.begin != b.begin:
			return cmp.Compare(a.begin, b.begin)
		}
		return cmp.Compare(a.want, b.want)
	})
	return nil
}

// split appends the parts of f that are not available.
func (p *Planner) split(f fragment) {
	missing := f.end - f.begin
	at := 0
	if len(p.have) > 0 {
		at = sort.Search(len(p.have), func(i int) bool {
			h := p.have[i]
			return h.object > f.object || h.object == f.object && h.end > f.begin
		})
	}
	for ; at < len(p.have) && p.have[at].object == f.object && p.have[at].begin < f.end; at++ {
		h := p.have[at]
		missing -= min(h.end, f.end) - max(h.begin, f.begin)
		if h.begin > f.begin {
			p.fragments = append(p.fragments, fragment{f.object, f.begin, h.begin, f.want, f.at})
		}
		f.at += h.end - f.begin
		f.begin = h.end
	}
	if f.begin < f.end {
		p.fragments = append(p.fragments, f)
	}
	p.plan.Totals.CachedBytes -= missing
}

// overlapping returns how many of the fragments, from the first on, form one overlapping run, and
// where it ends.
func overlapping(f []fragment) (n int, end int64) {
	n, end = 1, f[0].end
	for n < len(f) && f[n].object == f[0].object && f[n].begin < end {
		end = max(end, f[n].end)
		n++
	}
	return n, end
}

// finish computes the totals, and lists the parts by range.
func (p *Planner) finish() {
	pl := &p.plan
	t := &pl.Totals
	t.CachedBytes += t.WantedBytes // split has subtracted what is missing
	t.Reads = len(pl.Reads)
	for _, r := range pl.Reads {
		t.ReadBytes += r.SizeBytes
	}
	t.GapBytes = t.ReadBytes - t.UsefulBytes

	pl.wantFrom = slices.Grow(pl.wantFrom[:0], t.Wanted+1)[:t.Wanted+1]
	clear(pl.wantFrom)
	for _, part := range pl.byRead {
		pl.wantFrom[part.Want]++
	}
	sum := 0
	for i, n := range pl.wantFrom {
		sum += n
		pl.wantFrom[i] = sum // the end of range i for now; filling goes backwards
	}
	pl.byWant = slices.Grow(pl.byWant[:0], len(pl.byRead))[:len(pl.byRead)]
	for _, part := range slices.Backward(pl.byRead) {
		pl.wantFrom[part.Want]--
		pl.byWant[pl.wantFrom[part.Want]] = part
	}
}

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
