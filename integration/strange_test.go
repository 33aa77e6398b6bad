package integration

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rawTar writes archives header by header, as old, foreign and hostile programs do, without
// archive/tar's checks.
type rawTar struct {
	buf bytes.Buffer
	r   *rand.Rand
	// paths are few, so that keys are often equal.
	paths []string
}

// header writes one header block. size is a field of 12 bytes.
func (w *rawTar) header(name string, kind byte, size []byte, magic, prefix string) {
	var h [512]byte
	copy(h[:100], name)
	copy(h[100:], "0000644\x000000000\x000000000\x00")
	copy(h[124:136], size)
	copy(h[136:], "00000000000\x00")
	h[156] = kind
	copy(h[157:257], []string{"", "a/link"}[w.r.IntN(2)])
	copy(h[257:265], magic)
	if w.r.IntN(4) == 0 {
		copy(h[265:], "us\xe9r\xff") // signed and unsigned sums differ for these
	}
	copy(h[345:500], prefix)
	if w.r.IntN(5) == 0 {
		copy(h[500:], "rest")
	}
	copy(h[148:156], "        ")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	if w.r.IntN(6) == 0 { // as signed bytes
		sum = 0
		for _, b := range h {
			sum += int(int8(b))
		}
	}
	copy(h[148:156], fmt.Sprintf([]string{"%06o\x00 ", "%07o\x00", "%6o\x00 ", " %05o \x00"}[w.r.IntN(4)], sum))
	w.buf.Write(h[:])
}

// size writes a number in one of the possible notations.
func (w *rawTar) size(n int) []byte {
	switch w.r.IntN(4) {
	case 0:
		return fmt.Appendf(nil, "%011o ", n)
	case 1:
		return fmt.Appendf(nil, "%10o\x00 ", n)
	case 2: // base 256
		b := make([]byte, 12)
		b[0] = 0x80
		for i := 11; n > 0; i-- {
			b[i] = byte(n)
			n >>= 8
		}
		return b
	}
	return fmt.Appendf(nil, "%011o\x00", n)
}

func (w *rawTar) data(b []byte) {
	w.buf.Write(b)
	w.buf.Write(make([]byte, -len(b)&511))
}

// extension writes an extension header and its data.
func (w *rawTar) extension(kind byte, data string) {
	w.header("././@Ext", kind, w.size(len(data)), w.magic(), "")
	w.data([]byte(data))
}

func (w *rawTar) magic() string {
	return []string{"ustar\x0000", "ustar\x0000", "ustar  \x00", "", "ustar\x00\x00\x00"}[w.r.IntN(5)]
}

func paxRecord(name, value string) string {
	rest := " " + name + "=" + value + "\n"
	n := len(rest)
	for n != len(rest)+len(fmt.Sprint(n)) {
		n = len(rest) + len(fmt.Sprint(n))
	}
	return fmt.Sprint(n) + rest
}

// strangePath draws a path, or something that a program took for one.
func strangePath(r *rand.Rand) string {
	directory := []string{"", "d/", "./d/", "d//", "/d/", "__x__/", "____/", "__/", "___/", "a.b/", ".d/", strings.Repeat("l", 90) + "/", strings.Repeat("m", 150) + "/"}[r.IntN(13)]
	base := []string{"s", "s", "t", "é", "__s__"}[r.IntN(5)]
	return directory + base + []string{".txt", ".a.b", ".", "", ".txt/", ".json"}[r.IntN(6)]
}

// member writes a member after any of the possible extension headers.
func (w *rawTar) member() {
	path := w.paths[w.r.IntN(len(w.paths))]
	size := []int{0, 1, 511, 512, 513, w.r.IntN(2000)}[w.r.IntN(6)]
	told := size
	for range w.r.IntN(3) {
		switch w.r.IntN(7) {
		case 0:
			w.extension("xX"[w.r.IntN(2)], paxRecord("mtime", "1.5")+paxRecord("comment", "")+paxRecord("LSIOFS.x", "a=b\n\x00c"))
		case 1:
			w.extension("xX"[w.r.IntN(2)], paxRecord("path", "first/"+path)+paxRecord("path", path))
		case 2:
			w.extension('L', path+"\x00")
		case 3:
			w.extension('L', path)
		case 4:
			w.extension('K', strings.Repeat("k", 120)+"\x00")
		case 5:
			w.extension('g', paxRecord("comment", "for all"))
		case 6:
			if told == size {
				w.extension('x', paxRecord("size", fmt.Sprint(size)))
				told = w.r.IntN(5000)
			}
		}
	}
	kind := "0000\x007123456DVMNAz"[w.r.IntN(16)]
	name, prefix := path, ""
	if i := strings.LastIndex(path, "/"); i > 0 && w.r.IntN(2) == 0 {
		name, prefix = path[i+1:], path[:i]
	}
	w.header(name, kind, w.size(told), w.magic(), prefix)
	if !strings.ContainsRune("123456", rune(kind)) {
		w.data(bytes.Repeat([]byte{byte('a' + size%26)}, size))
	}
}

// TestStrangeArchivesGiveTheSameStreamsAsInTheReference compares archives with headers in any
// combination: old magics, several extension headers, sizes in any notation, links that claim a
// size, names that are not valid.
func TestStrangeArchivesGiveTheSameStreamsAsInTheReference(t *testing.T) {
	r := rand.New(rand.NewPCG(*drawSeed, 8))
	for i := range *draws * 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Logf("again: go test ./integration -run '%s' -draws %d -drawseed %d", t.Name(), *draws, *drawSeed)
			d := dataset{dir: t.TempDir(), ext: ".tar"}
			paths := []string{strangePath(r), strangePath(r), strangePath(r)}
			for shard := range 3 {
				w := &rawTar{r: r, paths: paths}
				for range 8 + r.IntN(20) {
					w.member()
				}
				if r.IntN(3) > 0 {
					w.buf.Write(make([]byte, 1024))
				}
				require.NoError(t, os.WriteFile(filepath.Join(d.dir, fmt.Sprintf("%d.tar", shard)), w.buf.Bytes(), 0o644))
			}
			requireSameOutcome(t, d)
		})
	}
}
