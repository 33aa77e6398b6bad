package zarr

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// numbered is an array whose elements are all different, with what is needed to cut it naively.
type numbered struct {
	*Array
	crop    Crop
	absent  int64              // every absent-th chunk is absent
	element func(int64) []byte // by number in C order, little-endian
	// converted converts an element of a crop.
	converted func(element []byte) []byte
}

var someTypes = []Dtype{
	plain(aUint, 'u', 1), plain(anInt, 'i', 2), plain(aFloat, 'f', 4), plain(aFloat, 'f', 8), plain(aComplex, 'c', 8), raw(aRaw, 'V', 3),
	{Descr: "[('a', '<i2'), ('b', '|V3'), ('c', '<f8', (2,))]", ItemBytes: 21, Units: []Unit{{2, 1, true}, {1, 3, false}, {8, 2, true}}, class: someFields},
}

func drawNumbered(t *rapid.T) numbered {
	dims := rapid.IntRange(0, 4).Draw(t, "dims")
	n := numbered{Array: &Array{}, absent: rapid.Int64Range(2, 9).Draw(t, "absent")}
	n.Type = rapid.SampledFrom(someTypes).Draw(t, "type")
	if n.Type.class != someFields {
		n.Type = n.Type.withOrder(rapid.Bool().Draw(t, "big"))
	}
	n.Fill = bytes.Repeat([]byte{0xA5}, n.Type.ItemBytes)
	n.Fill[0] = 1
	n.converted = func(e []byte) []byte { return e }
	wrap := make([]bool, dims)
	for d := range dims {
		extent := rapid.Int64Range(1, 9).Draw(t, "extent")
		wrap[d] = rapid.Bool().Draw(t, "wrap")
		step := rapid.Int64Range(1, 3).Draw(t, "step")
		count := rapid.Int64Range(1, (extent-1)/step+1).Draw(t, "count")
		last := extent - ((count-1)*step + 1)
		if wrap[d] {
			last = extent - 1
		}
		n.Shape = append(n.Shape, extent)
		n.Chunk = append(n.Chunk, rapid.Int64Range(1, 10).Draw(t, "edge"))
		n.crop.Origin = append(n.crop.Origin, rapid.Int64Range(0, last).Draw(t, "origin"))
		n.crop.Count, n.crop.Step = append(n.crop.Count, count), append(n.crop.Step, step)
	}
	n.crop.Wrap = wrap
	if rapid.Bool().Draw(t, "transposed") {
		n.Chain.Order = rapid.Permutation(indices(dims)).Draw(t, "order")
	}
	n.element = func(i int64) []byte {
		e := make([]byte, n.Type.ItemBytes)
		for j := range e {
			e[j] = byte(i*31 + i>>8 + int64(j)*7)
		}
		return e
	}
	return n
}

func indices(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// decoded returns a chunk as its codecs return it: in stored order and byte order, with garbage
// beyond the array's edges.
func (n numbered) decoded(chunk []int64) []byte {
	var out []byte
	stored := make([]int64, len(chunk))
	edges := make([]int64, len(chunk))
	for i := range stored {
		edges[i] = n.Chunk[n.axis(i)]
	}
	place := make([]int64, len(chunk))
	for k := range product(edges) {
		place64(stored, k, edges)
		inside := true
		for i, at := range stored {
			d := n.axis(i)
			place[d] = chunk[d]*n.Chunk[d] + at
			inside = inside && place[d] < n.Shape[d]
		}
		e := bytes.Repeat([]byte{0xEE}, n.Type.ItemBytes)
		if inside {
			e = n.element(number64(place, n.Shape))
			n.Type.reverse(e)
		}
		out = append(out, e...)
	}
	return out
}

func (n numbered) axis(i int) int {
	if n.Chain.Order == nil {
		return i
	}
	return n.Chain.Order[i]
}

func (n numbered) isAbsent(place []int64) bool {
	return number64(place, n.Chunks().Counts)%n.absent == 1
}

// cut returns the crop, element by element.
func (n numbered) cut() []byte {
	var out []byte
	j := make([]int64, len(n.Shape))
	place, chunk := make([]int64, len(j)), make([]int64, len(j))
	for k := range product(n.crop.Count) {
		place64(j, k, n.crop.Count)
		for d := range j {
			place[d] = (n.crop.Origin[d] + j[d]*n.crop.Step[d]) % n.Shape[d]
			chunk[d] = place[d] / n.Chunk[d]
		}
		if n.isAbsent(chunk) {
			out = append(out, n.converted(n.Fill)...)
		} else {
			out = append(out, n.converted(n.element(number64(place, n.Shape)))...)
		}
	}
	return out
}

func TestCopiedPartsFormCrop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { testCopies(t, drawNumbered(t), nil) })
}

// testCopies compares the crop assembled from chunks with the one cut element by element.
func testCopies(t *rapid.T, n numbered, packing *Packing) {
	want := n.cut()
	// The range that a reader asked for.
	begin := rapid.IntRange(0, len(want)-1).Draw(t, "begin")
	end := rapid.IntRange(begin+1, len(want)).Draw(t, "end")
	if rapid.Bool().Draw(t, "whole") {
		begin, end = 0, len(want)
	}
	block := rapid.IntRange(1, 64).Draw(t, "block")
	if packing != nil {
		block *= n.Type.ItemBytes
	}
	inBlocks := rapid.Bool().Draw(t, "in blocks")

	c := NewCopier(n.Array, packing, n.crop.Count, n.crop.Step)
	got := bytes.Repeat([]byte{0x77}, end-begin)
	crop := Window{got, int64(begin)}
	elements := int64(0)
	require.NoError(t, n.crop.Parts(n.Shape, n.Chunk, func(p *Part) error {
		elements += product(p.Count)
		if n.isAbsent(p.Chunk) {
			c.Fill(crop, p)
			return nil
		}
		b := n.decoded(p.Chunk)
		low, high := c.Span(p)
		require.True(t, 0 <= low && low < high && high <= int64(len(b)), "span %d %d of %d", low, high, len(b))
		if !inBlocks {
			c.Copy(crop, Window{b[low:high], low}, p)
			return nil
		}
		for at := int(low) / block * block; at < int(high); at += block {
			c.Copy(crop, Window{b[at:min(at+block, len(b))], int64(at)}, p)
		}
		return nil
	}))
	require.Equal(t, product(n.crop.Count), elements, "each element is in one part")
	require.Equal(t, want[begin:end], got)
}

// BenchmarkCopy copies the parts of crops of 24×128×128 out of chunks of 16×64×64.
func BenchmarkCopy(b *testing.B) {
	for _, c := range []struct {
		name string
		d    Dtype
		as   bool
		edit func(*Array, []int64)
	}{
		{"dtype=int16", plain(anInt, 'i', 2), false, func(*Array, []int64) {}},
		{"dtype=int16/order=big", plain(anInt, 'i', 2).withOrder(true), false, func(*Array, []int64) {}},
		{"dtype=int16/transposed", plain(anInt, 'i', 2), false, func(a *Array, _ []int64) { a.Chain.Order = []int{2, 1, 0} }},
		{"dtype=float32/step=2", plain(aFloat, 'f', 4), false, func(_ *Array, step []int64) { step[2] = 2 }},
		{"dtype=uint8/as=float32", plain(aUint, 'u', 1), true, func(*Array, []int64) {}},
		{"dtype=int16/as=float32", plain(anInt, 'i', 2), true, func(*Array, []int64) {}},
		{"dtype=int16/as=float32/order=big", plain(anInt, 'i', 2).withOrder(true), true, func(*Array, []int64) {}},
		{"dtype=uint16/as=float32", plain(aUint, 'u', 2), true, func(*Array, []int64) {}},
		{"dtype=float32/as=float32", plain(aFloat, 'f', 4), true, func(*Array, []int64) {}},
		{"dtype=float64/as=float32", plain(aFloat, 'f', 8), true, func(*Array, []int64) {}},
		{"dtype=float16/as=float32", plain(aFloat, 'f', 2), true, func(*Array, []int64) {}},
	} {
		b.Run(c.name, func(b *testing.B) {
			a := &Array{Shape: []int64{512, 1024, 1024}, Chunk: []int64{16, 64, 64}, Type: c.d, Fill: make([]byte, c.d.ItemBytes)}
			step := []int64{1, 1, 1}
			c.edit(a, step)
			crop := Crop{Origin: []int64{5, 17, 30}, Count: []int64{24, 128, 128}, Step: step}
			var p *Packing
			if c.as {
				p = &Packing{Type: c.d, Scale: 0.01, Offset: 273, Missing: [][]byte{bytes.Repeat([]byte{0x80}, c.d.ItemBytes)}}
			}
			k := NewCopier(a, p, crop.Count, step)
			dst := Window{Bytes: make([]byte, 24*128*128*k.out)}
			src := Window{Bytes: make([]byte, a.ChunkBytes())}
			b.SetBytes(int64(len(dst.Bytes)))
			b.ReportAllocs()
			for b.Loop() {
				_ = crop.Parts(a.Shape, a.Chunk, func(p *Part) error { k.Copy(dst, src, p); return nil })
			}
		})
	}
}
