package tokens

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// megatronMagic begins an .idx of Megatron.
const megatronMagic = "MMIDIDX\x00\x00"

// headBytes is the size of an .idx before its lengths.
const headBytes = int64(len(megatronMagic) + 8 + 1 + 8 + 8)

// dtypes are Megatron's, by their codes.
var dtypes = [...]string{1: "u1", 2: "i1", 3: "i2", 4: "i4", 5: "i8", 6: "f8", 7: "f4", 8: "u2"}

// widthOf returns the size of a token in bytes, 0 for an unknown dtype.
func widthOf(dtype string) int {
	switch dtype {
	case "u1", "i1":
		return 1
	case "u2", "i2":
		return 2
	case "u4", "i4", "f4":
		return 4
	case "i8", "f8":
		return 8
	}
	return 0
}

// descrOf returns NumPy's type string of a dtype.
func descrOf(dtype string) string {
	if widthOf(dtype) == 1 {
		return "|" + dtype
	}
	return "<" + dtype
}

// Companion implements format.Paired.
func (Format) Companion(path string) string {
	switch {
	case has(path, ".bin"):
		return path[:len(path)-len(".bin")] + ".idx"
	case has(path, ".ds"):
		return path + ".index"
	}
	return ""
}

// has reports whether a name has an ending, and something before it.
func has(path, ending string) bool {
	stem, is := strings.CutSuffix(path, ending)
	return is && stem != "" && !strings.HasSuffix(stem, "/")
}

// With implements format.Paired.
func (f Format) With(path string, raw io.ReaderAt, sizeBytes int64) format.Format {
	f.beside = &description{path: path, raw: raw, size: sizeBytes}
	return f
}

// With implements format.Paired.
func (w Windows) With(path string, raw io.ReaderAt, sizeBytes int64) format.Format {
	w.Format = w.Format.With(path, raw, sizeBytes).(Format)
	return w
}

// Describes implements format.Paired: an .idx describes tokens if it begins with Megatron's magic
// number, and any .ds.index does.
func (Format) Describes(path string, raw io.ReaderAt, sizeBytes int64) (bool, error) {
	if !has(path, ".idx") {
		return true, nil
	}
	head := make([]byte, len(megatronMagic))
	if sizeBytes < int64(len(head)) {
		return false, nil
	}
	err := readAt(raw, head, 0)
	return string(head) == megatronMagic, err
}

// description is the file beside a shard. It is immutable.
type description struct {
	path string
	raw  io.ReaderAt
	size int64
}

// head is the head of a description, and what was given without one.
type head struct {
	dtype     string // "" if it is not known
	sequences int64  // of Megatron's; -1 for datatrove's, which has no head
}

func (h head) width() int64 { return int64(widthOf(h.dtype)) }

// head reads and checks the head. asked is the dtype that the user gave, "" for none.
func (d *description) head(asked string) (head, error) {
	if d == nil {
		return head{dtype: asked}, nil
	}
	if !has(d.path, ".idx") {
		if d.size%8 != 0 {
			return head{}, d.contradicts("it consists of numbers of 8")
		}
		return head{asked, -1}, nil
	}
	var b [headBytes]byte
	n := min(d.size, headBytes)
	if err := readAt(d.raw, b[:n], 0); err != nil {
		return head{}, err
	}
	switch {
	case !strings.HasPrefix(string(b[:n]), megatronMagic):
		return head{}, refused("%s beside it is not an index of Megatron, which begins with MMIDIDX: rename it if it is something else", d.path)
	case n < headBytes:
		return head{}, d.contradicts("its head alone has %d", headBytes)
	}
	rest := b[len(megatronMagic):]
	version, code := binary.LittleEndian.Uint64(rest), rest[8]
	s, docs := binary.LittleEndian.Uint64(rest[9:]), binary.LittleEndian.Uint64(rest[17:])
	left := uint64(d.size - headBytes)
	switch {
	case version != 1:
		return head{}, refused("%s beside it has version %d: version 1 is read", d.path, version)
	case int(code) >= len(dtypes) || dtypes[code] == "":
		return head{}, refused("%s beside it has dtype %d: those of Megatron are 1 to 8", d.path, code)
	case s > left/12 || docs > left/8 || 12*s+8*docs != left && 13*s+8*docs != left: // no product overflows
		return head{}, d.contradicts("it has %d sequences and %d document indices by its head", s, docs)
	case asked != "" && asked != dtypes[code]:
		return head{}, refused("its tokens are %s by %s beside it, and --dtype is %s: leave --dtype out", dtypes[code], d.path, asked)
	}
	return head{dtypes[code], int64(s)}, nil
}

// contradicts refuses a description whose size contradicts its head.
func (d *description) contradicts(text string, args ...any) error {
	return refused("%s beside it has %d bytes, but %s: copy both files again", d.path, d.size, fmt.Sprintf(text, args...))
}

// bufferBytes is how much of a description is read at a time.
const bufferBytes = 256 << 10

// documents calls emit, which may be nil, with the sizes of all documents that have tokens, and
// returns where the last one ends. It never returns more than format.MaxShardBytes.
func (d *description) documents(ctx context.Context, h head, emit func(sizeBytes int64) error) (endBytes int64, err error) {
	if h.sequences < 0 {
		return d.ends(ctx, h.width(), emit)
	}
	lengths, pointers := d.section(headBytes, 4*h.sequences), d.section(headBytes+4*h.sequences, 8*h.sequences)
	var b [8]byte
	for i := range h.sequences {
		if i%4096 == 0 && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if err := lengths.next(b[:4]); err != nil {
			return 0, err
		}
		length := int32(binary.LittleEndian.Uint32(b[:]))
		if err := pointers.next(b[:8]); err != nil {
			return 0, err
		}
		pointer := int64(binary.LittleEndian.Uint64(b[:]))
		switch {
		case pointer != endBytes:
			return 0, refused("sequence %d begins at byte %d by its pointer in %s, and at byte %d by the lengths before it: only files whose sequences lie one behind the other are read", i, pointer, d.path, endBytes)
		case length < 0:
			return 0, refused("sequence %d has %d tokens by %s: copy both files again", i, length, d.path)
		}
		size := int64(length) * h.width()
		if endBytes += size; endBytes > format.MaxShardBytes {
			return 0, d.tooLong(i)
		}
		if size > 0 && emit != nil {
			if err := emit(size); err != nil {
				return 0, err
			}
		}
	}
	return endBytes, nil
}

// ends is documents for datatrove's.
func (d *description) ends(ctx context.Context, width int64, emit func(sizeBytes int64) error) (endBytes int64, err error) {
	list := d.section(0, d.size)
	var b [8]byte
	for i := range d.size / 8 {
		if i%4096 == 0 && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if err := list.next(b[:]); err != nil {
			return 0, err
		}
		end := binary.LittleEndian.Uint64(b[:])
		if end > uint64(format.MaxShardBytes/width) {
			return 0, d.tooLong(i)
		}
		size := int64(end)*width - endBytes
		if size < 0 {
			return 0, refused("document %d ends at token %d by %s, before the one before it, at token %d: copy both files again", i, end, d.path, endBytes/width)
		}
		endBytes += size
		if size > 0 && emit != nil {
			if err := emit(size); err != nil {
				return 0, err
			}
		}
	}
	return endBytes, nil
}

func (d *description) tooLong(i int64) error {
	return refused("document %d ends beyond byte %d by %s: copy both files again", i, int64(format.MaxShardBytes), d.path)
}

// section is a part of a description, read front to back.
type section struct{ b *bufio.Reader }

func (d *description) section(at, size int64) section {
	return section{bufio.NewReaderSize(io.NewSectionReader(d.raw, at, size), int(min(bufferBytes, max(size, 16))))}
}

// next reads the next number. The file's size was checked, so an end of the file is a failed read.
func (s section) next(p []byte) error {
	_, err := io.ReadFull(s.b, p)
	return noEOF(err)
}

func readAt(raw io.ReaderAt, p []byte, at int64) error {
	n, err := raw.ReadAt(p, at)
	if n == len(p) {
		return nil
	}
	return noEOF(err)
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: the file that describes a shard is shorter than it was", io.ErrNoProgress)
	}
	return err
}
