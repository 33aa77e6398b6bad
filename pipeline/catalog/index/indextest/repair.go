// Package indextest makes invalid stored indexes, to test the code that reads them.
package indextest

import (
	"bytes"
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// Offsets of the header's fields, see package index.
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

// Repair returns a copy of an index of up to one segment with correct checksums, version,
// generation, size and key, so that tests reach the fields that these protect. Data that is too
// short, or has its checksums elsewhere, stays invalid.
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
