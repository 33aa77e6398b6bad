package tfrecord

import "encoding/binary"

// AppendFrame appends a frame with this data.
func AppendFrame(dst, data []byte) []byte {
	at := len(dst)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(len(data)))
	dst = binary.LittleEndian.AppendUint32(dst, masked(dst[at:]))
	dst = append(dst, data...)
	return binary.LittleEndian.AppendUint32(dst, masked(data))
}

// Data returns the data of a frame that Verify accepts, as a slice of it.
func Data(frame []byte) []byte { return frame[headBytes : len(frame)-crcBytes] }
