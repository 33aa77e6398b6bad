package zarr

// Crop is a box of elements of an array, Step apart along each dimension. If Wrap is set, elements
// past the end continue at the beginning.
type Crop struct {
	Origin, Count, Step []int64
	// Wrap is nil if no dimension wraps.
	Wrap []bool
	// Places are the elements along a dimension, instead of Origin and Step (which is 1). It is nil
	// if there is no such dimension, and has nil for the other dimensions.
	Places [][]int64
}

// Part is the part of a crop that is in one chunk.
type Part struct {
	// Chunk is the chunk's place in the array's grid of chunks.
	Chunk []int64
	// From is the first element in the chunk, At the first in the crop, and Count how many there
	// are, along each dimension. In the chunk they are Step apart.
	From, At, Count []int64
}

// Parts calls f for each chunk that has elements of the crop, once for each wrapped piece, in C
// order of the crop. The parts are disjoint, and together they are the crop. A part is only valid
// during the call. If f fails, Parts returns its error at once.
//
// shape and edges are those of the array and its chunks, and the crop must be in the array, as
// those of Origins are.
func (c *Crop) Parts(shape, edges []int64, f func(*Part) error) error {
	p := newPart(len(shape))
	return c.partsFrom(0, shape, edges, p, f)
}

func newPart(dims int) *Part {
	all := make([]int64, 4*dims)
	return &Part{all[:dims], all[dims : 2*dims], all[2*dims : 3*dims], all[3*dims:]}
}

// partsFrom visits the chunks along dimension d and the following ones.
func (c *Crop) partsFrom(d int, shape, edges []int64, p *Part, f func(*Part) error) error {
	if d == len(shape) {
		return f(p)
	}
	for j := int64(0); j < c.Count[d]; j += p.Count[d] {
		element, most := c.Origin[d]+j*c.Step[d], c.Count[d]-j
		if c.Places != nil && c.Places[d] != nil {
			element, most = c.Places[d][j], consecutive(c.Places[d][j:])
		}
		if c.Wrap != nil && c.Wrap[d] {
			element %= shape[d]
		}
		chunk := element / edges[d]
		end := min((chunk+1)*edges[d], shape[d])
		p.Chunk[d], p.From[d], p.At[d] = chunk, element-chunk*edges[d], j
		p.Count[d] = min(most, (end-element+c.Step[d]-1)/c.Step[d])
		if err := c.partsFrom(d+1, shape, edges, p, f); err != nil {
			return err
		}
	}
	return nil
}

// consecutive returns how many of the first places follow each other directly.
func consecutive(places []int64) int64 {
	n := 1
	for n < len(places) && places[n] == places[n-1]+1 {
		n++
	}
	return int64(n)
}
