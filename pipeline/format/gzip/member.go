package gzip

import (
	"encoding/binary"
	"hash/crc32"
	"io"
)

// Flags of a member's header. Bit 0 marks text and is ignored.
const (
	flagHeaderCRC = 1 << 1
	flagExtra     = 1 << 2
	flagName      = 1 << 3
	flagComment   = 1 << 4
	flagsReserved = 0xe0
)

const (
	headerBytes  = 10 // the part common to all headers
	trailerBytes = 8
	deflate      = 8 // the only method
)

// header reads a member's header. Its content is not used.
func (d *decoder) header() error {
	fixed := d.scratch[:headerBytes]
	if !d.readFull(fixed) {
		return d.lacking()
	}
	if fixed[0] != magic[0] || fixed[1] != magic[1] || fixed[2] != deflate {
		return d.badHeader()
	}
	flags := fixed[3]
	crc := crc32.ChecksumIEEE(fixed)
	if flags&flagExtra != 0 {
		size := d.scratch[:2]
		if !d.readFull(size) {
			return d.lacking()
		}
		crc = crc32.Update(crc, crc32.IEEETable, size)
		for left := int(binary.LittleEndian.Uint16(size)); left > 0; {
			part := d.scratch[:min(left, len(d.scratch))]
			if !d.readFull(part) {
				return d.lacking()
			}
			crc = crc32.Update(crc, crc32.IEEETable, part)
			left -= len(part)
		}
	}
	for _, flag := range []byte{flagName, flagComment} {
		if flags&flag != 0 {
			var whole bool
			if crc, whole = d.text(crc); !whole {
				return d.lacking()
			}
		}
	}
	if flags&flagHeaderCRC != 0 {
		sum := d.scratch[:2]
		if !d.readFull(sum) {
			return d.lacking()
		}
		if binary.LittleEndian.Uint16(sum) != uint16(crc) {
			return d.badHeader()
		}
	}
	if flags&flagsReserved != 0 {
		return d.badHeader()
	}
	return nil
}

func (d *decoder) badHeader() error { return d.damage("the gzip member's header is invalid") }

// text skips bytes up to and including a zero, however many there are, and adds them to a checksum.
// It reports whether the zero was found.
func (d *decoder) text(crc uint32) (sum uint32, whole bool) {
	for {
		n := 0
		for n < len(d.scratch) && !whole {
			b, err := d.raw.Buffer().ReadByte()
			if err != nil {
				return crc, false
			}
			d.scratch[n] = b
			n++
			whole = b == 0
		}
		if crc = crc32.Update(crc, crc32.IEEETable, d.scratch[:n]); whole {
			return crc, true
		}
	}
}

// trailer compares the member with the checksum and the size after it.
func (d *decoder) trailer() error {
	p := d.scratch[:trailerBytes]
	if !d.readFull(p) {
		return d.lacking()
	}
	if binary.LittleEndian.Uint32(p) != d.crc || binary.LittleEndian.Uint32(p[4:]) != d.size {
		return d.damage("the gzip member's checksum or size does not match its bytes")
	}
	return nil
}

// readFull reports whether p was filled.
func (d *decoder) readFull(p []byte) bool {
	_, err := io.ReadFull(d.raw.Buffer(), p)
	return err == nil
}
