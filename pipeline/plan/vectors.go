package plan

// Vector is a run of a read's bytes with one destination: WantOffset in a wanted range's buffer, or
// none (a gap, with Want -1).
type Vector struct {
	Want       int
	WantOffset int64
	SizeBytes  int64
}

// Copy is a run of bytes that several ranges want, and that a read delivers to only one of them.
type Copy struct {
	From, To             int // wanted ranges
	FromOffset, ToOffset int64
	SizeBytes            int64
}

// Vectors appends the vectors of a read to dst. Together, in order, they cover all of its bytes, so
// that one readv delivers each range's bytes to the range's own buffer. Their number is minimal.
func (p *Plan) Vectors(read int, dst []Vector) []Vector {
	parts, size := p.Parts(read), p.Reads[read].SizeBytes
	best := Part{} // among those that have begun, the one that ends last
	for at := int64(0); at < size; {
		for len(parts) > 0 && parts[0].ReadOffset <= at {
			if parts[0].end() > best.end() {
				best = parts[0]
			}
			parts = parts[1:]
		}
		v := Vector{Want: -1}
		if n := best.end() - at; n > 0 {
			v = Vector{Want: best.Want, WantOffset: best.WantOffset + at - best.ReadOffset, SizeBytes: n}
		} else {
			v.SizeBytes = parts[0].ReadOffset - at
		}
		dst = append(dst, v)
		at += v.SizeBytes
	}
	return dst
}

func (p Part) end() int64 { return p.ReadOffset + p.SizeBytes }

// Copies appends the copies that fill the other ranges once a read's vectors are filled.
// vectors is the result of Vectors for the read.
func (p *Plan) Copies(read int, vectors []Vector, dst []Copy) []Copy {
	begin := int64(0) // offset of vectors[0] in the read
	for _, part := range p.Parts(read) {
		for begin+vectors[0].SizeBytes <= part.ReadOffset {
			begin += vectors[0].SizeBytes
			vectors = vectors[1:]
		}
		at := begin
		for _, v := range vectors {
			if at >= part.end() {
				break
			}
			from, to := max(at, part.ReadOffset), min(at+v.SizeBytes, part.end())
			if v.Want != part.Want {
				dst = append(dst, Copy{
					From: v.Want, FromOffset: v.WantOffset + from - at,
					To: part.Want, ToOffset: part.WantOffset + from - part.ReadOffset, SizeBytes: to - from,
				})
			}
			at += v.SizeBytes
		}
	}
	return dst
}

// countVectors returns how many vectors the fragments of one overlapping run take.
func countVectors(f []fragment) int {
	n := 0
	for at, furthest := f[0].begin, f[0].begin; len(f) > 0 || furthest > at; n++ {
		for len(f) > 0 && f[0].begin <= at {
			furthest = max(furthest, f[0].end)
			f = f[1:]
		}
		if furthest == at {
			break
		}
		at = furthest
	}
	return n
}
