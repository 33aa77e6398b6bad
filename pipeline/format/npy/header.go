package npy

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

const (
	magic      = "\x93NUMPY"
	fixedBytes = len(magic) + 2 // with the version
	// maxHeaderBytes bounds a header, including its lead: the largest Window of a Source.
	maxHeaderBytes = format.MaxWindowBytes
)

// header is the content of an npy header.
type header struct {
	descr   literal
	fortran bool
	shape   []int64
}

// readHeader consumes the header. A malformed header is corrupt; a file that is not npy, or of an
// unknown version, is refused.
func readHeader(src format.Source) (header, error) {
	head, err := window(src, fixedBytes)
	if err != nil {
		return header{}, err
	}
	if n := min(len(head), len(magic)); string(head[:n]) != magic[:n] {
		return header{}, &format.RefusedError{Reason: "the file has no npy header: arrays without one, such as OLMo's tokens, are read with --format fixed --record-bytes N"}
	}
	if len(head) < fixedBytes {
		return header{}, cutOff(head)
	}
	major, minor := head[6], head[7]
	if major < 1 || major > 3 || minor != 0 {
		return header{}, &format.RefusedError{OffsetBytes: 6, Reason: fmt.Sprintf("npy version %d.%d is not read, only 1.0, 2.0 and 3.0: save the array again with numpy.save", major, minor)}
	}
	text, err := readText(src, major)
	if err != nil {
		return header{}, err
	}
	h, err := parseHeader(text, major < 3)
	if err != nil {
		return header{}, format.Corrupt(0, int64(fixedBytes), "%v", err)
	}
	return h, nil
}

func cutOff(head []byte) error {
	return format.Corrupt(0, 0, "the file ends inside the npy header, after %d bytes", len(head))
}

// readText returns the dictionary's text and consumes the header.
func readText(src format.Source, major byte) (string, error) {
	lead := fixedBytes + 4
	if major == 1 {
		lead = fixedBytes + 2
	}
	head, err := window(src, lead)
	if err != nil {
		return "", err
	}
	if len(head) < lead {
		return "", cutOff(head)
	}
	n := int64(binary.LittleEndian.Uint16(head[fixedBytes:]))
	if major > 1 {
		n = int64(binary.LittleEndian.Uint32(head[fixedBytes:]))
	}
	if n > int64(maxHeaderBytes-lead) {
		return "", &format.RefusedError{OffsetBytes: int64(fixedBytes), Reason: fmt.Sprintf("the npy header has %d bytes, more than the %d that are read: save the array with fewer or shorter fields", n, maxHeaderBytes-lead)}
	}
	if head, err = window(src, lead+int(n)); err != nil {
		return "", err
	}
	if len(head) < lead+int(n) {
		return "", cutOff(head)
	}
	text, ok := decode(head[lead:], major)
	if !ok {
		return "", format.Corrupt(0, int64(lead), "the npy header is not UTF-8")
	}
	return text, src.Discard(int64(lead) + n)
}

// window returns the next n bytes, fewer only at the shard's end.
func window(src format.Source, n int) ([]byte, error) {
	head, err := src.Window(n)
	if err == io.EOF {
		err = nil
	}
	return head[:min(n, len(head))], err
}

// decode converts a header to UTF-8: before version 3.0 it is Latin-1.
func decode(text []byte, major byte) (string, bool) {
	if major == 3 {
		return string(text), utf8.Valid(text)
	}
	var b strings.Builder
	for _, c := range text {
		b.WriteRune(rune(c))
	}
	return b.String(), true
}

// parseHeader parses the dictionary. Errors describe what is wrong with it.
func parseHeader(text string, longs bool) (header, error) {
	p := parser{text: text, longs: longs}
	var h header
	found := map[string]literal{}
	if !strings.HasPrefix(text, "{") {
		return h, p.unexpected("a dictionary")
	}
	p.at++
	for p.next() != '}' {
		key, err := p.value()
		if err != nil {
			return h, err
		}
		if _, twice := found[key.content]; key.class != aString || twice {
			return h, p.errorf("%.40s is not a key, or is there twice", key.text)
		}
		if err := p.take(':'); err != nil {
			return h, err
		}
		if found[key.content], err = p.value(); err != nil {
			return h, err
		}
		if p.next() != '}' {
			if err := p.take(','); err != nil {
				return h, err
			}
		}
	}
	p.at++
	if err := p.end(); err != nil {
		return h, err
	}
	return h, h.set(found)
}

// set sets the three values.
func (h *header) set(found map[string]literal) error {
	descr, hasDescr := found["descr"]
	order, hasOrder := found["fortran_order"]
	shape, hasShape := found["shape"]
	if len(found) != 3 || !hasDescr || !hasOrder || !hasShape {
		return fmt.Errorf("the npy header's keys are not descr, fortran_order and shape")
	}
	if order.class != aBool {
		return fmt.Errorf("the npy header's fortran_order is %.40s, not True or False", order.text)
	}
	if shape.class != aTuple {
		return fmt.Errorf("the npy header's shape is %.40s, not a tuple", shape.text)
	}
	n, err := numbers(shape.items)
	if err != nil {
		return fmt.Errorf("the npy header's shape is %.80s, not numbers alone", shape.text)
	}
	h.descr, h.fortran, h.shape = descr, order.number == 1, n
	return nil
}
