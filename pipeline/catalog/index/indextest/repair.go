// Package indextest makes stored indexes that are wrong, for tests of what reads them.
package indextest

import (
	"bytes"
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// Where the header of an index has its fields, see package index.
const (
	fileBytesAt  = 16
	sumsAt       = 120
	sumsHashAt   = 128
	keyAt        = 136
	generationAt = 200
	zerosAt      = 208
	hashAt       = 248
	headerBytes  = 256

	segmentBytes = 4 << 20
)

// Repair gives a copy of an index of up to one segment whose checksums are right, as
// are its version, its generation, its size and what it is of: so what they protect is reached. What is
// too short, or has its checksums elsewhere, stays as wrong as it is.
func Repair(data []byte, version, generation uint64, key [32]byte) []byte {
	data = bytes.Clone(data)
	if len(data) < headerBytes {
		return data
	}
	put := binary.LittleEndian.PutUint64
	copy(data, "lsiofsIX")
	put(data[8:], version)
	put(data[fileBytesAt:], uint64(len(data)))
	copy(data[keyAt:], key[:])
	put(data[generationAt:], generation)
	clear(data[zerosAt:hashAt])
	if at := binary.LittleEndian.Uint64(data[sumsAt:]); at >= headerBytes && at <= uint64(len(data)) {
		body, sums := data[headerBytes:at], data[at:]
		if len(body) <= segmentBytes && len(sums) == 8 {
			put(sums, xxh3.Hash(body))
			put(data[sumsHashAt:], xxh3.Hash(sums))
		}
	}
	put(data[hashAt:], xxh3.Hash(data[:hashAt]))
	return data
}
