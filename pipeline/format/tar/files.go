package tar

import (
	"context"
	"strconv"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// maxHeaderSize is the smallest size that does not fit a size field of eleven octal digits.
const maxHeaderSize = 8 << 30

// Files makes samples from plain files. A directory is a shard, and is read as the tar archive that
// would contain its files.
//
//	directory   a.cls  a.jpg  b.jpg  README         in bytewise order of names
//	shard       │ header │ a.cls 0… │ header │ a.jpg 0… │ header │ b.jpg 0… │ header │ README 0… │
//	records     └───────────────── a ────────────────────┴──────── b ────────┴────── (no key) ────┘
//
// A record consists of all files whose paths are equal up to the first dot of the name. A file
// without a dot is a record of its own, without a key. Bytewise order puts the files of a record
// next to each other. Headers are written by FileFraming, a pure function of path and size, so the
// offsets of records are known without reading the files. Package storage/fileset presents
// directories in this form. The specification is pipeline/format/FILES.md.
//
// Streams, framing and renaming are those of Format.
type Files struct {
	Format
	FileFraming
}

var (
	_ format.Format   = Files{}
	_ format.Foldered = Files{}
	_ format.Opaque   = Files{}
	_ format.Framer   = Files{}
	_ format.Renamer  = Files{}
)

// Name returns "files".
func (Files) Name() string { return "files" }

// AnyBytes implements format.Opaque.
func (Files) AnyBytes() {}

// Sniff returns false: a shard is a directory, which has no content to inspect.
func (Files) Sniff([]byte) bool { return false }

// Index implements format.Format for a directory's archive. Every regular member belongs to a
// record; a member without a dot in its base name is a record of its own.
func (Files) Index(ctx context.Context, src format.Source, emit func(format.Extent) error) error {
	return index(ctx, src, emit, func(m *member) membership {
		return membership{key: m.stem(), counts: m.regular, eligible: m.key() != nil}
	})
}

// FileFraming is the framing of each file in a directory's archive: a header, and zeros up to a
// whole block.
type FileFraming struct{}

// AlignBytes returns the alignment of contents: they are padded with zeros to a multiple of it.
func (FileFraming) AlignBytes() int64 { return blockBytes }

// HeaderBytes returns the number of bytes that AppendHeader appends for a path of pathBytes bytes.
// It does not allocate.
func (FileFraming) HeaderBytes(pathBytes int, sizeBytes int64) int64 {
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

// AppendHeader appends the header of a regular file, as pipeline/format/FILES.md specifies it:
// ustar, preceded by a PAX header if the path is longer than 100 bytes or the size is 8 GiB or more.
func (FileFraming) AppendHeader(dst, path []byte, sizeBytes int64) []byte {
	inField := sizeBytes
	if sizeBytes >= maxHeaderSize {
		inField = 0
	}
	dataBytes := int64(0)
	if len(path) > nameBytes {
		dataBytes = pathRecordBytes(int64(len(path)))
	}
	if inField != sizeBytes {
		dataBytes += sizeRecordBytes(sizeBytes)
	}
	if dataBytes > 0 {
		dst = appendHeader(dst, paxHeaderName, typePAX, dataBytes)
		if len(path) > nameBytes {
			dst = appendPathRecord(dst, nil, path)
		}
		if inField != sizeBytes {
			dst = appendSizeRecord(dst, sizeBytes)
		}
		dst = appendPadding(dst, dataBytes)
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
