package zarr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// A shard's index, in C order over its bricks:
//
//	u64 offset │ u64 size │ u64 offset │ u64 size │ … │ u32le crc32c, if it has one
//
// Both are 2⁶⁴-1 for a brick that is absent. Offsets count from the shard's first byte.

// Place is where a brick lies in an object.
type Place struct {
	// OffsetBytes is negative for a brick that is absent.
	OffsetBytes, SizeBytes int64
}

// Absent says that the brick consists of the fill value.
func (p Place) Absent() bool { return p.OffsetBytes < 0 }

// IndexBytes is the size of the index of a level.
func (l Level) IndexBytes() int64 {
	n := 16 * l.Entries()
	if l.Checksum {
		n += 4
	}
	return n
}

// IndexOffset is where the index lies in an object of that size. An object that is too short
// for it is an error.
func (l Level) IndexOffset(objectBytes int64) (int64, error) {
	n := l.IndexBytes()
	switch {
	case objectBytes < n:
		return 0, fmt.Errorf("has %d bytes, and its shard index alone needs %d: the file was cut off, copy it again", objectBytes, n)
	case l.AtStart:
		return 0, nil
	}
	return objectBytes - n, nil
}

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)

	errIndexChecksum = errors.New("the shard index has a wrong crc32c: the file is damaged, copy it again")
)

// ParseIndex reads the index of a shard of a level, which lies in a file where within says. Places count
// from the file's begin. All are inside of the shard, so that no index leads out of what it is in.
func (a *Array) ParseIndex(places []Place, level int, index []byte, within Place) error {
	brickBytes := int64(-1)
	if level == len(a.Levels)-1 {
		brickBytes = a.BrickBytes()
	}
	if err := a.Levels[level].ParseIndex(places, index, within.SizeBytes, brickBytes); err != nil {
		return err
	}
	for i := range places {
		if !places[i].Absent() {
			places[i].OffsetBytes += within.OffsetBytes
		}
	}
	return nil
}

// ParseIndex reads an index of l.IndexBytes() bytes into places, which has l.Entries() entries.
// objectBytes is the size of the object, and brickBytes that of a decoded brick: an entry
// that points out of the object, or that is far larger than its brick, is an error. What is in the
// object may be of any size if brickBytes is negative.
// It checks the index's checksum, if there is one.
func (l Level) ParseIndex(places []Place, index []byte, objectBytes, brickBytes int64) error {
	if int64(len(index)) != l.IndexBytes() || int64(len(places)) != l.Entries() {
		return fmt.Errorf("the shard index has %d bytes, not %d", len(index), l.IndexBytes())
	}
	if l.Checksum {
		end := len(index) - 4
		if crc32.Checksum(index[:end], castagnoli) != binary.LittleEndian.Uint32(index[end:]) {
			return errIndexChecksum
		}
	}
	order := binary.ByteOrder(binary.LittleEndian)
	if l.Big {
		order = binary.BigEndian
	}
	for i := range places {
		offset, size := order.Uint64(index[16*i:]), order.Uint64(index[16*i+8:])
		switch {
		case offset == math.MaxUint64 && size == math.MaxUint64:
			places[i] = Place{-1, 0}
			continue
		case offset > uint64(objectBytes) || size > uint64(objectBytes)-offset:
			return fmt.Errorf("the shard index has chunk %d at [%d, +%d), and the shard has %d bytes: it is damaged, copy it again", i, offset, size, objectBytes)
		case brickBytes >= 0 && size > uint64(Bound(brickBytes)):
			return fmt.Errorf("the shard index has chunk %d in %d bytes, far more than the %d that it has decoded: the file is damaged", i, size, brickBytes)
		}
		places[i] = Place{int64(offset), int64(size)}
	}
	return nil
}
