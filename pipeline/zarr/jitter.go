package zarr

import "github.com/lsiofs/lsiofs/pipeline/order"

// Jitter moves the origins of a cube's crops within their strides, differently in each epoch. So
// each stride has one crop in each epoch, and over the epochs all places are used.
type Jitter struct{ key uint64 }

// NewJitter returns the jitter of an epoch of a cube, which is identified by its path as a shard.
func NewJitter(seed, epoch uint64, cube string) Jitter {
	return Jitter{order.CropKey(seed, epoch, cube)}
}

// Move moves the origin of the crop with an ordinal. axes are the axes of the grid of origins.
func (j Jitter) Move(origin []int64, axes []Axis, ordinal uint64) {
	dims := uint64(len(axes))
	for d, a := range axes {
		origin[d] += int64(order.CropDraw(j.key, ordinal*dims+uint64(d), uint64(a.room(origin[d]))))
	}
}
