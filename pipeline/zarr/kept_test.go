package zarr

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// chunksOf returns the chunks in which a crop has elements.
func chunksOf(a *Array, c *Crop) map[string]bool {
	set := map[string]bool{}
	_ = c.Parts(a.Shape, a.Chunk, func(p *Part) error {
		set[fmt.Sprint(p.Chunk)] = true
		return nil
	})
	return set
}

// What a record may need in any epoch is what all crops need that jitter can make of it.
func TestReachOfRecordCoversAllPossibleJitter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := func(name string, low, high int64) int64 { return rapid.Int64Range(low, high).Draw(t, name) }
		shape, chunk := []int64{of("y", 6, 20), of("x", 6, 20)}, []int64{of("brick y", 1, 5), of("brick x", 1, 5)}
		z := spec.Zarr{Jitter: rapid.Bool().Draw(t, "jitter")}
		for d, name := range []string{"y", "x"} {
			step := of("step", 1, 4)
			z.Crop = append(z.Crop, spec.DimValue{Dim: name, Value: of("crop", 1, (shape[d]-1)/step+1)})
			z.Step = append(z.Step, spec.DimValue{Dim: name, Value: step})
			z.Stride = append(z.Stride, spec.DimValue{Dim: name, Value: of("stride", 1, 6)})
			if rapid.Bool().Draw(t, "wrap") {
				z.Wrap = append(z.Wrap, name)
			}
		}
		a := arrayOf(shape, chunk, "y", "x")
		c, err := NewCut(z, nil, []CutField{{Array: a}})
		require.NoError(t, err)
		spot, crop, reach := c.NewSpot(), c.NewCrop(0), c.NewReach(0)
		for n := range c.Total() {
			c.Locate(spot, n, nil)
			c.Reach(0, reach, spot)
			origin, want := []int64{spot.Origin[0], spot.Origin[1]}, map[string]bool{}
			rooms := []int64{1, 1}
			if z.Jitter {
				rooms = []int64{c.axes[0].room(origin[0]), c.axes[1].room(origin[1])}
			}
			for y := range rooms[0] {
				for x := range rooms[1] {
					spot.Origin[0], spot.Origin[1] = origin[0]+y, origin[1]+x
					c.Place(0, crop, spot)
					for b := range chunksOf(a, crop) {
						want[b] = true
					}
				}
			}
			require.Equal(t, want, chunksOf(a, reach), "record %d", n)
		}
	})
}

const sumOfThree = "3fe672f6de09ec588aa0fed4a6bb72bcc03a956e951d56e789a95956fc16888d"

func TestKindIncludesOmittedRecords(t *testing.T) {
	c := cutOf(t, twoDims, CutField{Array: arrayOf([]int64{10, 20}, []int64{4, 8}, "y", "x")})
	require.EqualValues(t, 24, c.Total())
	require.Nil(t, c.Kept())
	less, err := c.Keep([]uint64{0xffffff &^ 0x102})
	require.NoError(t, err)
	require.Equal(t, []uint64{0xfffefd}, less.Kept())
	// printf '\xfd\xfe\xff' | sha256sum
	require.Equal(t, strings.Replace(c.Kind(), `"kept":""`, `"kept":"`+sumOfThree+`"`, 1), less.Kind())
	require.True(t, SameKind(c.Kind(), less.Kind()))
	mixed := MixedKind([]string{c.Kind(), less.Kind()})
	require.NotEqual(t, mixed, MixedKind([]string{less.Kind(), c.Kind()}))
	require.NotEqual(t, mixed, MixedKind([]string{less.Kind(), less.Kind()}))
	require.Equal(t, c.Kind(), MixedKind([]string{c.Kind(), c.Kind()}))
	all, err := less.Keep(nil)
	require.NoError(t, err)
	require.Equal(t, c.Kind(), all.Kind())
}
