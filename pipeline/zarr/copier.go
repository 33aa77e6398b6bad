package zarr

import (
	"encoding/binary"
	"math/bits"
)

// Copier copies the elements of decoded chunks into crops, which are little-endian and in C order,
// optionally converting them. It works for all crops of one shape of an array, and is safe for
// concurrent use.
//
// Crops and chunks may be given in pieces: a window of a crop that a reader asked for, one decoded
// block of a chunk. Elements in both are copied, and nothing else is touched. If elements are
// converted, pieces of a chunk hold whole elements (Pieces).
type Copier struct {
	item  int64       // bytes of a chunk's element
	out   int64       // bytes of a crop's element
	as    *conversion // nil if elements are not converted
	units []Unit      // nil if nothing is big-endian
	fill  []byte
	step  []int64
	// chunk and crop are the distances between neighbours in bytes, along each dimension.
	chunk, crop []int64
}

// NewCopier returns a copier for crops of count elements that are step apart. packing is nil if
// elements are not converted.
func NewCopier(a *Array, packing *Packing, count, step []int64) *Copier {
	dims := len(a.Shape)
	c := &Copier{item: int64(a.Type.ItemBytes), out: int64(a.Type.ItemBytes), fill: a.Fill, step: step, chunk: make([]int64, dims), crop: make([]int64, dims)}
	if a.Type.Big() {
		c.units = a.Type.Units
	}
	if packing != nil {
		c.out, c.as, c.fill = floatBytes, newConversion(packing), packing.Convert(a.Fill)
	}
	chunk, crop := c.item, c.out
	for i := dims - 1; i >= 0; i-- {
		axis := i
		if a.Chain.Order != nil {
			axis = a.Chain.Order[i]
		}
		c.chunk[axis], c.crop[i] = chunk, crop
		chunk, crop = chunk*a.Chunk[axis], crop*count[i]
	}
	return c
}

// Pieces reports whether a chunk may be copied in pieces of that many bytes, starting at its first
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

// Span returns the range of bytes of the decoded chunk that holds a part's elements.
func (c *Copier) Span(p *Part) (begin, end int64) {
	for d, n := range p.Count {
		begin += p.From[d] * c.chunk[d]
		end += (p.From[d] + (n-1)*c.step[d]) * c.chunk[d]
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
type loop struct{ count, crop, chunk int64 }

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
		l := loop{n, c.crop[d], c.chunk[d] * c.step[d]}
		if filled {
			l.chunk = l.crop
		}
		if w.n > 0 {
			if last := &w.loops[w.n-1]; last.crop == l.crop*n && last.chunk == l.chunk*n {
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
func (w *walk) each(crop, chunk int64, f func(crop, chunk int64)) {
	w.eachFrom(0, crop, chunk, f)
}

func (w *walk) eachFrom(i int, crop, chunk int64, f func(crop, chunk int64)) {
	if i == w.n-1 {
		f(crop, chunk)
		return
	}
	l := w.loops[i]
	for range l.count {
		w.eachFrom(i+1, crop, chunk, f)
		crop, chunk = crop+l.crop, chunk+l.chunk
	}
}

// Copy copies the part's elements from a chunk to a crop, as far as they are in both windows.
func (c *Copier) Copy(crop, chunk Window, p *Part) {
	w := c.walkOf(p, false)
	inner := w.loops[w.n-1]
	cropBegin, cropEnd := c.Range(p)
	chunkBegin, chunkEnd := c.Span(p)
	whole := crop.has(cropBegin, cropEnd) && chunk.has(chunkBegin, chunkEnd)
	if c.as != nil {
		if whole {
			w.convert(crop.Bytes[cropBegin-crop.OffsetBytes:], chunk.Bytes[chunkBegin-chunk.OffsetBytes:], 0, c.as)
			return
		}
		w.each(cropBegin, chunkBegin, func(to, from int64) { c.convertClipped(crop, chunk, to, from, inner) })
		return
	}
	runs := inner.chunk == c.item && inner.crop == c.item
	if runs && whole && c.units == nil {
		w.copyRuns(crop.Bytes[cropBegin-crop.OffsetBytes:], chunk.Bytes[chunkBegin-chunk.OffsetBytes:], 0, int(inner.count*c.item))
		return
	}
	if runs && c.units == nil {
		w.copyClipped(crop, chunk, 0, cropBegin, chunkBegin, inner.count*c.item)
		return
	}
	w.each(cropBegin, chunkBegin, func(to, from int64) {
		if !whole {
			for range inner.count {
				c.copyElement(crop, chunk, to, from)
				to, from = to+inner.crop, from+inner.chunk
			}
			return
		}
		dst, src := crop.Bytes[to-crop.OffsetBytes:], chunk.Bytes[from-chunk.OffsetBytes:]
		c.gather(dst, src, int(inner.count), int(inner.crop), int(inner.chunk))
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
			to, from = to+int(l.crop), from+int(l.chunk)
		}
		return
	}
	for range l.count {
		w.copyRuns(dst[to:], src[from:], i+1, n)
		to, from = to+int(l.crop), from+int(l.chunk)
	}
}

// copyClipped is copyRuns for the bytes in both windows. to and from are where loop i begins.
// Passes entirely in both windows are copied without further checks, and passes entirely outside
// are skipped: most are, if a chunk is copied block by block.
func (w *walk) copyClipped(crop, chunk Window, i int, to, from, n int64) {
	if i == w.n-1 {
		copyClipped(crop, chunk, to, from, n)
		return
	}
	crops, chunks := n, n // from the first byte of a pass of loop i to the end of its last
	for _, l := range w.loops[i+1 : w.n-1] {
		crops, chunks = crops+(l.count-1)*l.crop, chunks+(l.count-1)*l.chunk
	}
	l := w.loops[i]
	for range l.count {
		switch {
		case from >= chunk.end() || to >= crop.end() || from+chunks <= chunk.OffsetBytes || to+crops <= crop.OffsetBytes:
		case crop.has(to, to+crops) && chunk.has(from, from+chunks):
			w.copyRuns(crop.Bytes[to-crop.OffsetBytes:], chunk.Bytes[from-chunk.OffsetBytes:], i+1, int(n))
		default:
			w.copyClipped(crop, chunk, i+1, to, from, n)
		}
		to, from = to+l.crop, from+l.chunk
	}
}

// copyClipped copies n bytes, as far as they are in both windows.
func copyClipped(crop, chunk Window, to, from, n int64) {
	skip := max(0, crop.OffsetBytes-to, chunk.OffsetBytes-from)
	n = min(n, crop.end()-to, chunk.end()-from)
	if skip < n {
		copy(crop.Bytes[to+skip-crop.OffsetBytes:to+n-crop.OffsetBytes], chunk.Bytes[from+skip-chunk.OffsetBytes:])
	}
}

// copyElement copies the part of one element that is in both windows.
func (c *Copier) copyElement(crop, chunk Window, to, from int64) {
	if c.units == nil {
		copyClipped(crop, chunk, to, from, c.item)
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
				copyClipped(crop, chunk, to+j, from+at, 1)
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

// gather copies n elements that are dstStep and srcStep bytes apart, and reverses the bytes of
// big-endian numbers. dst and src hold all of them.
func (c *Copier) gather(dst, src []byte, n, dstStep, srcStep int) {
	if c.units != nil {
		if len(c.units) == 1 && c.units[0].Count == 1 {
			c.gatherReversed(dst, src, n, dstStep, srcStep)
			return
		}
		item := int(c.item)
		for i := range n {
			reverseUnits(dst[i*dstStep:i*dstStep+item], src[i*srcStep:i*srcStep+item], c.units)
		}
		return
	}
	le := binary.LittleEndian
	switch c.item {
	case 1:
		for i := range n {
			dst[i*dstStep] = src[i*srcStep]
		}
	case 2:
		for i := range n {
			le.PutUint16(dst[i*dstStep:], le.Uint16(src[i*srcStep:]))
		}
	case 4:
		for i := range n {
			le.PutUint32(dst[i*dstStep:], le.Uint32(src[i*srcStep:]))
		}
	case 8:
		for i := range n {
			le.PutUint64(dst[i*dstStep:], le.Uint64(src[i*srcStep:]))
		}
	default:
		for i := range n {
			copy(dst[i*dstStep:], src[i*srcStep:i*srcStep+int(c.item)])
		}
	}
}

// gatherReversed is gather for elements that are one big-endian number.
func (c *Copier) gatherReversed(dst, src []byte, n, dstStep, srcStep int) {
	le := binary.LittleEndian
	if item := int(c.item); dstStep == item && srcStep == item && item < 8 {
		done := reverseWords(dst[:n*item], src[:n*item], item)
		dst, src, n = dst[done:], src[done:], n-done/item
	}
	switch c.item {
	case 2:
		for i := range n {
			le.PutUint16(dst[i*dstStep:], bits.ReverseBytes16(le.Uint16(src[i*srcStep:])))
		}
	case 4:
		for i := range n {
			le.PutUint32(dst[i*dstStep:], bits.ReverseBytes32(le.Uint32(src[i*srcStep:])))
		}
	default:
		for i := range n {
			le.PutUint64(dst[i*dstStep:], bits.ReverseBytes64(le.Uint64(src[i*srcStep:])))
		}
	}
}

// reverseWords reverses elements of 2 or 4 bytes, 8 bytes at a time, and returns how many bytes it
// did.
func reverseWords(dst, src []byte, item int) (done int) {
	le, n := binary.LittleEndian, len(src)
	const low = 0x00ff00ff00ff00ff
	for ; len(src) >= 8 && len(dst) >= 8; dst, src = dst[8:], src[8:] {
		x := le.Uint64(src)
		x = x&low<<8 | x>>8&low
		if item == 4 {
			x = x&0x0000ffff0000ffff<<16 | x>>16&0x0000ffff0000ffff
		}
		le.PutUint64(dst, x)
	}
	return n - len(src)
}

// reverseUnits copies an element, with each of its numbers in little-endian order.
func reverseUnits(dst, src []byte, units []Unit) {
	for _, u := range units {
		for range u.Count {
			if u.Big {
				for j := range u.Bytes {
					dst[j] = src[u.Bytes-1-j]
				}
			} else {
				copy(dst[:u.Bytes], src)
			}
			dst, src = dst[u.Bytes:], src[u.Bytes:]
		}
	}
}
