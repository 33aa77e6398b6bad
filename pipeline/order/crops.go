package order

import "math/bits"

// CropKey returns the key of the draws that shift the crops of an array in an epoch. cube is the
// path of the array's shard.
func CropKey(seed, epoch uint64, cube string) uint64 {
	return key("crop", seed, epoch, 0) ^ bits.ReverseBytes64(ID(cube))
}

// CropDraw returns the i-th draw of a CropKey, scaled to 0 … n-1.
func CropDraw(k, i, n uint64) uint64 { return below(k, i, n) }
