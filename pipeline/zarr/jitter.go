package zarr

import "github.com/lsiofs/lsiofs/pipeline/order"

// Jitter moves the origins of a cube's crops within their strides, in each epoch otherwise. So
// each stride has one crop in each epoch, and over epochs all places turn up.
type Jitter struct{ key uint64 }

// NewJitter is that of an epoch of a cube, which is named by its path as a shard.
func NewJitter(seed, epoch uint64, cube string) Jitter {
	return Jitter{order.CropKey(seed, epoch, cube)}
}

// Move moves the origin of the crop of that ordinal. axes are those of the origin's grid.
func (j Jitter) Move(origin []int64, axes []Axis, ordinal uint64) {
	dims := uint64(len(axes))
	for d, a := range axes {
		origin[d] += int64(order.CropDraw(j.key, ordinal*dims+uint64(d), uint64(a.room(origin[d]))))
	}
}
