package tar_test

import (
	"bytes"
	"fmt"
	"strings"

	"pgregory.net/rapid"
)

// archive is an archive that a test assembles, header by header.
type archive struct{ bytes.Buffer }

// field sets bytes of a header.
type field struct {
	at   int
	text string
}

var (
	ustar = field{257, "ustar\x0000"}
	gnu   = field{257, "ustar  \x00"}
	old   = field{257, "\x00\x00\x00\x00\x00\x00\x00\x00"}
)

func prefix(s string) field { return field{345, s} }

// base256 is a size in base 256.
func base256(n uint64) field {
	b := []byte{0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	for i := range 8 {
		b[11-i] = byte(n >> (8 * i))
	}
	return field{124, string(b)}
}

// header returns a header block; fields are set before its checksum.
func header(kind byte, name string, size int, fields ...field) []byte {
	h := make([]byte, 512)
	copy(h[:100], name)
	copy(h[100:], "0000644\x000000000\x000000000\x00")
	copy(h[124:], fmt.Sprintf("%011o\x00", size))
	copy(h[136:], "00000000000\x00")
	h[156] = kind
	copy(h[257:], ustar.text)
	for _, f := range fields {
		copy(h[f.at:], f.text)
	}
	return naiveChecksum(h)
}

// signed replaces a header's checksum by that of signed bytes.
func signed(h []byte) []byte {
	copy(h[148:156], "        ")
	sum := 0
	for _, c := range h {
		sum += int(int8(c))
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return h
}

// add appends a header and data.
func (a *archive) add(h []byte, data string) *archive {
	a.Write(h)
	a.WriteString(data)
	a.Write(make([]byte, -len(data)&511))
	return a
}

func (a *archive) file(name, data string, fields ...field) *archive {
	return a.add(header('0', name, len(data), fields...), data)
}

func (a *archive) ext(kind byte, data string) *archive {
	return a.add(header(kind, "././@LongLink", len(data)), data)
}

func (a *archive) end() []byte {
	a.Write(make([]byte, 1024))
	return a.Bytes()
}

func paxRecord(key, value string) string {
	for n := len(value); ; n++ {
		if s := fmt.Sprintf("%d %s=%s\n", n, key, value); len(s) == n {
			return s
		}
	}
}

// draw returns a random archive with a bit of everything.
func draw(t *rapid.T) []byte {
	var a archive
	for range rapid.IntRange(0, 8).Draw(t, "members") {
		drawMember(t, &a)
	}
	switch rapid.IntRange(0, 3).Draw(t, "end") {
	case 0:
		return a.Bytes()
	case 1:
		return append(a.end(), "anything"...)
	}
	return a.end()
}

func drawMember(t *rapid.T, a *archive) {
	for range rapid.SampledFrom([]int{0, 0, 0, 1, 1, 2, 3}).Draw(t, "extensions") {
		drawExtension(t, a)
	}
	name := drawName(t, 100)
	kind := rapid.SampledFrom([]byte("0000000\x0071235gVS"[:14])).Draw(t, "type")
	data := strings.Repeat("d", rapid.SampledFrom([]int{0, 1, 511, 512, 513, 1000}).Draw(t, "size"))
	size := len(data)
	if kind >= '1' && kind <= '6' {
		data = ""
	}
	if kind == 'g' {
		data = paxRecord("comment", "a global one")
		size = len(data)
	}
	fields := []field{rapid.SampledFrom([]field{ustar, ustar, gnu, old}).Draw(t, "magic")}
	switch rapid.IntRange(0, 5).Draw(t, "prefix") {
	case 0, 1:
		fields = append(fields, prefix(drawName(t, 155)))
	case 2:
		fields = append(fields, prefix(strings.Repeat("p", rapid.IntRange(125, 155).Draw(t, "prefix bytes"))))
	}
	if rapid.IntRange(0, 9).Draw(t, "base 256") == 0 {
		fields = append(fields, base256(uint64(size)))
	}
	h := header(kind, name, size, fields...)
	if rapid.IntRange(0, 9).Draw(t, "signed") == 0 {
		h = signed(h)
	}
	a.add(h, data)
}

// drawName draws names with keys that coincide, and every kind of name that is not eligible.
func drawName(t *rapid.T, most int) string {
	s := rapid.SampledFrom([]string{"", "", "a/", "a/b.c/", "./", "/", "__x__/", "____/", "__/", "ä/", strings.Repeat("long/", 25)}).Draw(t, "directory") +
		rapid.SampledFrom([]string{"s1", "s1", "s2", "s2", "", ".", "__s__", strings.Repeat("n", 60)}).Draw(t, "stem") +
		rapid.SampledFrom([]string{".jpg", ".cls", ".seg.png", "", "."}).Draw(t, "extension")
	return s[:min(len(s), most)]
}

func drawExtension(t *rapid.T, a *archive) {
	switch rapid.IntRange(0, 5).Draw(t, "extension header") {
	case 0:
		a.ext('L', drawName(t, 300)+rapid.SampledFrom([]string{"", "\x00", "\x00junk"}).Draw(t, "NUL"))
	case 1:
		a.ext('K', drawName(t, 300)+"\x00")
	default:
		var data strings.Builder
		for range rapid.IntRange(0, 3).Draw(t, "records") {
			switch rapid.IntRange(0, 3).Draw(t, "record") {
			case 0:
				data.WriteString(paxRecord("mtime", "1700000000.5"))
			case 1:
				data.WriteString(paxRecord("comment", strings.Repeat("c", rapid.IntRange(0, 600).Draw(t, "comment"))))
			default:
				data.WriteString(paxRecord("path", drawName(t, 300)))
			}
		}
		a.ext(rapid.SampledFrom([]byte("xxxX")).Draw(t, "type"), data.String())
	}
}
