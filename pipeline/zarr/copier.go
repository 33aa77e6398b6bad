package zarr

// Copier copies the elements of decoded bricks into crops, which are little-endian and in C order,
// optionally converting them. It works for all crops of one shape of an array, and is safe for
// concurrent use.
//
// Crops and bricks may be given in pieces: a window of a crop that a reader asked for, one decoded
// block of a brick. Elements in both are copied, and nothing else is touched. If elements are
// converted, pieces of a brick hold whole elements (Pieces).
type Copier struct {
	item  int64       // bytes of a brick's element
	out   int64       // bytes of a crop's element
	as    *conversion // nil if elements are not converted
	units []Unit      // nil if nothing is big-endian
	fill  []byte
	step  []int64
	// brick and crop are the distances between neighbours in bytes, along each dimension.
	brick, crop []int64
}

// NewCopier returns a copier for crops of count elements that are step apart. packing is nil if
// elements are not converted.
func NewCopier(a *Array, packing *Packing, count, step []int64) *Copier {
	dims := len(a.Shape)
	c := &Copier{item: int64(a.Type.ItemBytes), out: int64(a.Type.ItemBytes), fill: a.Fill, step: step, brick: make([]int64, dims), crop: make([]int64, dims)}
	if a.Type.Big() {
		c.units = a.Type.Units
	}
	if packing != nil {
		c.out, c.as, c.fill = floatBytes, newConversion(packing), packing.Convert(a.Fill)
	}
	brick, crop := c.item, c.out
	for i := dims - 1; i >= 0; i-- {
		axis := i
		if a.Chain.Order != nil {
			axis = a.Chain.Order[i]
		}
		c.brick[axis], c.crop[i] = brick, crop
		brick, crop = brick*a.Brick[axis], crop*count[i]
	}
	return c
}

// Pieces reports whether a brick may be copied in pieces of that many bytes, starting at its first
// byte.
func (c *Copier) Pieces(sizeBytes int64) bool { return c.as == nil || sizeBytes%c.item == 0 }

// Window is a range of bytes of something larger.
type Window struct {
	// Bytes are the bytes from OffsetBytes on.
	Bytes       []byte
	OffsetBytes int64
}

func (w Window) end() int64 { return w.OffsetBytes + int64(len(w.Bytes)) }

// has reports whether [begin, end) is in w.
func (w Window) has(begin, end int64) bool { return begin >= w.OffsetBytes && end <= w.end() }

// Span returns the range of bytes of the decoded brick that holds a part's elements.
func (c *Copier) Span(p *Part) (begin, end int64) {
	for d, n := range p.Count {
		begin += p.From[d] * c.brick[d]
		end += (p.From[d] + (n-1)*c.step[d]) * c.brick[d]
	}
	return begin, end + c.item
}

// Range returns the range of bytes of the crop that holds a part's elements.
func (c *Copier) Range(p *Part) (begin, end int64) {
	for d, n := range p.Count {
		begin += p.At[d] * c.crop[d]
		end += (p.At[d] + n - 1) * c.crop[d]
	}
	return begin, end + c.out
}

// loop is one dimension of copying, or several that are contiguous in both places.
type loop struct{ count, crop, brick int64 }

// walk is a part as nested loops, innermost last.
type walk struct {
	loops [MaxDims + 1]loop
	n     int
}

// walkOf returns the loops of a part. If filled is true, only the crop's layout matters.
func (c *Copier) walkOf(p *Part, filled bool) walk {
	var w walk
	for d, n := range p.Count {
		if n == 1 {
			continue
		}
		l := loop{n, c.crop[d], c.brick[d] * c.step[d]}
		if filled {
			l.brick = l.crop
		}
		if w.n > 0 {
			if last := &w.loops[w.n-1]; last.crop == l.crop*n && last.brick == l.brick*n {
				l.count *= last.count
				w.n--
			}
		}
		w.loops[w.n] = l
		w.n++
	}
	if w.n == 0 || w.loops[w.n-1].crop != c.out {
		w.loops[w.n] = loop{1, c.out, c.item}
		w.n++
	}
	return w
}

// each calls f for each pass of the innermost loop, with the offsets where it begins.
func (w *walk) each(crop, brick int64, f func(crop, brick int64)) {
	w.eachFrom(0, crop, brick, f)
}

func (w *walk) eachFrom(i int, crop, brick int64, f func(crop, brick int64)) {
	if i == w.n-1 {
		f(crop, brick)
		return
	}
	l := w.loops[i]
	for range l.count {
		w.eachFrom(i+1, crop, brick, f)
		crop, brick = crop+l.crop, brick+l.brick
	}
}

// Copy copies the part's elements from a brick to a crop, as far as they are in both windows.
func (c *Copier) Copy(crop, brick Window, p *Part) {
	w := c.walkOf(p, false)
	inner := w.loops[w.n-1]
	cropBegin, cropEnd := c.Range(p)
	brickBegin, brickEnd := c.Span(p)
	whole := crop.has(cropBegin, cropEnd) && brick.has(brickBegin, brickEnd)
	if c.as != nil {
		if whole {
			w.convert(crop.Bytes[cropBegin-crop.OffsetBytes:], brick.Bytes[brickBegin-brick.OffsetBytes:], 0, c.as)
			return
		}
		w.each(cropBegin, brickBegin, func(to, from int64) { c.convertClipped(crop, brick, to, from, inner) })
		return
	}
	runs := inner.brick == c.item && inner.crop == c.item
	if runs && whole && c.units == nil {
		w.copyRuns(crop.Bytes[cropBegin-crop.OffsetBytes:], brick.Bytes[brickBegin-brick.OffsetBytes:], 0, int(inner.count*c.item))
		return
	}
	if runs && c.units == nil {
		w.copyClipped(crop, brick, 0, cropBegin, brickBegin, inner.count*c.item)
		return
	}
	w.each(cropBegin, brickBegin, func(to, from int64) {
		if !whole {
			for range inner.count {
				c.copyElement(crop, brick, to, from)
				to, from = to+inner.crop, from+inner.brick
			}
			return
		}
		dst, src := crop.Bytes[to-crop.OffsetBytes:], brick.Bytes[from-brick.OffsetBytes:]
		c.gather(dst, src, int(inner.count), int(inner.crop), int(inner.brick))
	})
}

// copyRuns copies a run of n bytes in each pass of the innermost loop, from loop i on. dst and src
// hold all of them.
func (w *walk) copyRuns(dst, src []byte, i, n int) {
	if i == w.n-1 {
		copy(dst[:n], src)
		return
	}
	l := w.loops[i]
	to, from := 0, 0
	if i == w.n-2 {
		for range l.count {
			copy(dst[to:to+n], src[from:from+n])
			to, from = to+int(l.crop), from+int(l.brick)
		}
		return
	}
	for range l.count {
		w.copyRuns(dst[to:], src[from:], i+1, n)
		to, from = to+int(l.crop), from+int(l.brick)
	}
}

// copyClipped is copyRuns for the bytes in both windows. to and from are where loop i begins.
// Passes entirely in both windows are copied without further checks, and passes entirely outside
// are skipped: most are, if a brick is copied block by block.
func (w *walk) copyClipped(crop, brick Window, i int, to, from, n int64) {
	if i == w.n-1 {
		copyClipped(crop, brick, to, from, n)
		return
	}
	crops, bricks := n, n // from the first byte of a pass of loop i to the end of its last
	for _, l := range w.loops[i+1 : w.n-1] {
		crops, bricks = crops+(l.count-1)*l.crop, bricks+(l.count-1)*l.brick
	}
	l := w.loops[i]
	for range l.count {
		switch {
		case from >= brick.end() || to >= crop.end() || from+bricks <= brick.OffsetBytes || to+crops <= crop.OffsetBytes:
		case crop.has(to, to+crops) && brick.has(from, from+bricks):
			w.copyRuns(crop.Bytes[to-crop.OffsetBytes:], brick.Bytes[from-brick.OffsetBytes:], i+1, int(n))
		default:
			w.copyClipped(crop, brick, i+1, to, from, n)
		}
		to, from = to+l.crop, from+l.brick
	}
}

// copyClipped copies n bytes, as far as they are in both windows.
func copyClipped(crop, brick Window, to, from, n int64) {
	skip := max(0, crop.OffsetBytes-to, brick.OffsetBytes-from)
	n = min(n, crop.end()-to, brick.end()-from)
	if skip < n {
		copy(crop.Bytes[to+skip-crop.OffsetBytes:to+n-crop.OffsetBytes], brick.Bytes[from+skip-brick.OffsetBytes:])
	}
}

// copyElement copies the part of one element that is in both windows.
func (c *Copier) copyElement(crop, brick Window, to, from int64) {
	if c.units == nil {
		copyClipped(crop, brick, to, from, c.item)
		return
	}
	for _, u := range c.units {
		size := int64(u.Bytes)
		for range u.Count {
			for j := range size {
				at := j
				if u.Big {
					at = size - 1 - j
				}
				copyClipped(crop, brick, to+j, from+at, 1)
			}
			to, from = to+size, from+size
		}
	}
}

// Fill writes the array's fill value to the part's elements, as far as they are in the window.
func (c *Copier) Fill(crop Window, p *Part) {
	w := c.walkOf(p, true)
	inner := w.loops[w.n-1]
	begin, _ := c.Range(p)
	w.each(begin, 0, func(to, _ int64) {
		low, high := max(to, crop.OffsetBytes), min(to+inner.count*c.out, crop.end())
		if low >= high {
			return
		}
		phase := int((low - to) % c.out)
		repeat(crop.Bytes[low-crop.OffsetBytes:high-crop.OffsetBytes], c.fill, phase)
	})
}

// repeat fills b with repetitions of an element, starting at the element's byte phase.
func repeat(b, element []byte, phase int) {
	n := copy(b, element[phase:])
	if n < len(b) {
		n += copy(b[n:], element[:phase])
	}
	for n < len(b) {
		n += copy(b[n:], b[:n])
	}
}
