package faultserver

import (
	"encoding/binary"
	"hash/fnv"
)

// Fill fills p with the bytes from off on of one version of an object. They are computed, so any
// range of an object of any size is available at once, and no two versions or objects have a range
// in common.
//
// The race detector is turned off for it, because it would take most of the time of tests with
// large objects; only the caller uses p.
//
//go:norace
func Fill(p []byte, path string, version int, off int64) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(path))
	key := mix(h.Sum64() + uint64(version))
	if skip := off % 8; skip > 0 && len(p) > 0 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], mix(key+uint64(off/8)))
		n := copy(p, word[skip:])
		p, off = p[n:], off+int64(n)
	}
	for ; len(p) >= 8; p, off = p[8:], off+8 {
		binary.LittleEndian.PutUint64(p, mix(key+uint64(off/8)))
	}
	if len(p) > 0 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], mix(key+uint64(off/8)))
		copy(p, word[:])
	}
}

// mix spreads a number over 64 bits (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
