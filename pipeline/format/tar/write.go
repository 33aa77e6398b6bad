package tar

import (
	"context"
	"strconv"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// maxHeaderSize is the smallest size that does not fit a size field of eleven octal digits.
const maxHeaderSize = 8 << 30

// FileHeaderBytes returns the number of bytes that AppendFileHeader appends for a path of pathBytes
// bytes. It does not allocate.
func FileHeaderBytes(pathBytes int, sizeBytes int64) int64 {
	data := int64(0)
	if pathBytes > nameBytes {
		data = pathRecordBytes(int64(pathBytes))
	}
	if sizeBytes >= maxHeaderSize {
		data += sizeRecordBytes(sizeBytes)
	}
	if data == 0 {
		return blockBytes
	}
	return blockBytes + blocks(data) + blockBytes
}

// AppendFileHeader appends the header of a regular file, as pipeline/format/FILES.md
// specifies it: ustar, preceded by a PAX header if the path is longer than 100 bytes or the size is 8 GiB
// or more.
func AppendFileHeader(dst, path []byte, sizeBytes int64) []byte {
	inField := sizeBytes
	if sizeBytes >= maxHeaderSize {
		inField = 0
	}
	if len(path) > nameBytes || inField != sizeBytes {
		var data []byte
		if len(path) > nameBytes {
			data = appendPathRecord(data, nil, path)
		}
		if inField != sizeBytes {
			data = appendSizeRecord(data, sizeBytes)
		}
		dst = appendPAXHeader(dst, data)
	}
	return appendHeader(dst, path, typeRegular, inField)
}

// appendHeader appends one header block, with at most the first 100 bytes of name. size must be
// below 8 GiB.
func appendHeader(dst, name []byte, kind byte, size int64) []byte {
	var block [blockBytes]byte
	copy(block[nameAt:nameAt+nameBytes], name)
	copy(block[modeAt:], "0000644\x00")
	copy(block[uidAt:], "0000000\x00")
	copy(block[gidAt:], "0000000\x00")
	putSize(block[:], size)
	copy(block[mtimeAt:], "00000000000\x00")
	block[typeAt] = kind
	copy(block[magicAt:], ustarMagic)
	putChecksum(block[:])
	return append(dst, block[:]...)
}

var paxHeaderName = []byte("././@PaxHeader")

// appendPAXHeader appends a PAX header with this data.
func appendPAXHeader(dst, data []byte) []byte {
	return appendPadded(appendHeader(dst, paxHeaderName, typePAX, int64(len(data))), data)
}

// sizeRecordBytes returns the length of the PAX record of a size of 8 GiB or more. The length has
// two digits, because the size has 10 to 19.
func sizeRecordBytes(size int64) int64 {
	return int64(len("00 size=\n")) + decimalDigits(size)
}

func appendSizeRecord(dst []byte, size int64) []byte {
	dst = strconv.AppendInt(dst, sizeRecordBytes(size), 10)
	dst = strconv.AppendInt(append(dst, " size="...), size, 10)
	return append(dst, '\n')
}

// IndexFiles is Format.Index for an archive of format files. Every regular member belongs to a
// record; a member without a dot in its base name is a record of its own.
func IndexFiles(ctx context.Context, src format.Source, emit func(format.Extent) error) error {
	return index(ctx, src, emit, func(m *member) membership {
		return membership{key: m.stem(), counts: m.regular, eligible: m.key() != nil}
	})
}
