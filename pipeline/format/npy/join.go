package npy

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// Framing describes the files of arrays to package arrays.
type Framing struct{}

// HeaderBytes returns the size of a file's header, as far as it can be determined from head, the
// file's first bytes.
func (Framing) HeaderBytes(head []byte) int {
	if len(head) < fixedBytes+4 || string(head[:len(magic)]) != magic {
		return 0
	}
	n := uint64(binary.LittleEndian.Uint16(head[fixedBytes:])) + uint64(leadBytes)
	if head[len(magic)] > 1 {
		n = uint64(binary.LittleEndian.Uint32(head[fixedBytes:])) + uint64(fixedBytes) + 4
	}
	return int(min(n, uint64(maxHeaderBytes)))
}

// Describe implements arrays.Framing. Its kinds are those of IndexKind.
func (Framing) Describe(head []byte, sizeBytes int64) (kind string, rows, rowBytes, offsetBytes int64, err error) {
	src := &headSource{rest: head}
	h, err := readHeader(src)
	if err != nil {
		return "", 0, 0, 0, err
	}
	r, err := h.rows()
	if err != nil {
		return "", 0, 0, 0, err
	}
	rows, rowBytes, offsetBytes = h.shape[0], r.rowBytes, src.at
	switch whole, err := product(rowBytes, []int64{rows}); {
	case err != nil || whole > sizeBytes-offsetBytes:
		return "", 0, 0, 0, fmt.Errorf("its header has %d rows of %d bytes, and %d bytes follow it: copy or save it again", rows, rowBytes, sizeBytes-offsetBytes)
	case whole < sizeBytes-offsetBytes:
		return "", 0, 0, 0, fmt.Errorf("%d bytes follow the last of %d rows", sizeBytes-offsetBytes-whole, rows)
	}
	return r.kind, rows, rowBytes, offsetBytes, nil
}

// Prologue implements arrays.Framing. It returns the header of n structured rows. They have a field
// for each array, followed by an unnamed field if zeros follow for padding.
func (f Framing) Prologue(names, kinds []string, n uint64) ([]byte, error) {
	r, err := f.Join(names, kinds)
	if err != nil {
		return nil, err
	}
	return r.Prologue(n), nil
}

// Join returns the format of structured rows with these fields, which have the kinds of other
// arrays. Names must not contain quotes and backslashes.
func (Framing) Join(names, kinds []string) (Rows, error) {
	var b strings.Builder
	b.WriteByte('[')
	for i, kind := range kinds {
		r, err := rowsOfKind(kind)
		if err != nil {
			return Rows{}, err
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "('%s', %s", names[i], r.descr)
		switch inner, one := strings.CutPrefix(r.tail, ", "); {
		case one && !strings.Contains(inner, ", "):
			fmt.Fprintf(&b, ", (%s,)", inner)
		case one:
			fmt.Fprintf(&b, ", (%s)", inner)
		}
		b.WriteByte(')')
		if padding := (alignBytes - r.rowBytes%alignBytes) % alignBytes; padding > 0 {
			fmt.Fprintf(&b, ", ('', '|V%d')", padding)
		}
	}
	b.WriteByte(']')
	p := parser{text: b.String(), longs: true}
	descr, err := p.value()
	if err != nil {
		return Rows{}, err
	}
	return newRows(descr, nil)
}

// headSource is the first bytes of a file as a format.Source.
type headSource struct {
	rest []byte
	at   int64
}

var _ format.Source = (*headSource)(nil)

func (s *headSource) Window(n int) ([]byte, error) {
	if n > len(s.rest) {
		return s.rest, io.EOF
	}
	return s.rest, nil
}

func (s *headSource) Discard(n int64) error {
	if n > int64(len(s.rest)) {
		return io.ErrUnexpectedEOF
	}
	s.rest, s.at = s.rest[n:], s.at+n
	return nil
}

func (s *headSource) OffsetBytes() int64 { return s.at }
