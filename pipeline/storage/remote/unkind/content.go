package unkind

import (
	"encoding/binary"
	"hash/fnv"
)

// Fill fills p with the bytes from off on of an object in one version. They are made
// up: any range of an object of any size is there at once, and no two versions, nor two
// objects, have a range in common.
func Fill(p []byte, path string, version int, off int64) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(path))
	key := mix(h.Sum64() + uint64(version))
	var word [8]byte
	for len(p) > 0 {
		binary.LittleEndian.PutUint64(word[:], mix(key+uint64(off/8)))
		n := copy(p, word[off%8:])
		p, off = p[n:], off+int64(n)
	}
}

// mix spreads a number over 64 bits (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
