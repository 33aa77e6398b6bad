package synthetic

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"
	"slices"
	"strconv"
)

const tarBlock = 512

// sample appends a WebDataset sample of two members.
func (m *maker) sample(n uint64) {
	// Two headers, a block of the label, half a block of padding on average.
	payload := max(m.size()-3*tarBlock-tarBlock/2, 1)
	m.member(n, ".jpg", payload)
	m.random(payload, ^uint64(0))
	m.pad(payload)
	label := strconv.AppendUint(nil, m.pcg.Uint64()%1000, 10)
	m.member(n, ".cls", len(label))
	m.buffer = append(m.buffer, label...)
	m.pad(len(label))
}

// member appends a ustar header.
func (m *maker) member(n uint64, ending string, size int) {
	begin := len(m.buffer)
	m.zeros(tarBlock)
	h := m.buffer[begin:]
	copy(h[0:100], fmt.Appendf(nil, "%09d%s", n, ending))
	copy(h[100:], "0000644\x00")
	copy(h[108:], "0000000\x00")
	copy(h[116:], "0000000\x00")
	copy(h[124:], fmt.Appendf(nil, "%011o\x00", size))
	copy(h[136:], "00000000000\x00")
	copy(h[148:], "        ") // the checksum counts itself as spaces
	h[156] = '0'
	copy(h[257:], "ustar\x0000")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], fmt.Appendf(nil, "%06o\x00 ", sum))
}

// pad pads the last block of size bytes.
func (m *maker) pad(size int) { m.zeros(-size & (tarBlock - 1)) }

func (m *maker) zeros(n int) {
	begin := len(m.buffer)
	m.buffer = slices.Grow(m.buffer, n)[:begin+n]
	clear(m.buffer[begin:])
}

// frame appends a TFRecord frame.
func (m *maker) frame() {
	data := max(m.size()-16, 1)
	m.buffer = binary.LittleEndian.AppendUint64(m.buffer, uint64(data))
	m.buffer = binary.LittleEndian.AppendUint32(m.buffer, masked(m.buffer))
	begin := len(m.buffer)
	m.random(data, ^uint64(0))
	m.buffer = binary.LittleEndian.AppendUint32(m.buffer, masked(m.buffer[begin:]))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked returns TFRecord's checksum.
func masked(p []byte) uint32 {
	return bits.RotateLeft32(crc32.Checksum(p, castagnoli), -15) + 0xa282ead8
}

// fixed appends a record of fixed size: its number, and bytes whose upper halves are 0, so that it
// compresses to about half.
func (m *maker) fixed(n uint64) {
	m.buffer = binary.LittleEndian.AppendUint64(m.buffer, n)
	m.random(int(m.shape.RecordBytes)-8, 0x0f0f0f0f0f0f0f0f)
}
