package inflate

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	kflate "github.com/klauspost/compress/flate"
	"github.com/stretchr/testify/require"
)

// data makes n bytes of each kind.
var data = map[string]func(r *rand.Rand, n int) []byte{
	"text": func(r *rand.Rand, n int) []byte {
		words := strings.Fields("the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which one you were her all their there been if more when will would who so no")
		var b bytes.Buffer
		for b.Len() < n {
			b.WriteString(words[r.IntN(len(words))])
			b.WriteByte(" \n,."[r.IntN(4)])
		}
		return b.Bytes()[:n]
	},
	"random": func(r *rand.Rand, n int) []byte {
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(r.Uint32())
		}
		return p
	},
	"few values": func(r *rand.Rand, n int) []byte {
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(r.ExpFloat64() * 9)
		}
		return p
	},
	"zeros": func(_ *rand.Rand, n int) []byte { return make([]byte, n) },
	"periods": func(r *rand.Rand, n int) []byte { // of 1 to 40 bytes, and distant ones
		var p []byte
		for len(p) < n {
			back := 1 + r.IntN(40)
			if r.IntN(3) == 0 {
				back = 1 + r.IntN(historyBytes)
			}
			if back > len(p) {
				p = append(p, byte(r.Uint32()))
				continue
			}
			for range 3 + r.IntN(300) {
				p = append(p, p[len(p)-back])
			}
			if r.IntN(4) == 0 {
				p = append(p, byte(r.Uint32()))
			}
		}
		return p[:n]
	},
	"nearly random": func(r *rand.Rand, n int) []byte { // Huffman codes of mostly 8 bits
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(r.Uint32())
			if r.IntN(12) == 0 {
				p[i] = byte(r.IntN(4))
			}
		}
		return p
	},
	"long codes": func(r *rand.Rand, n int) []byte { // of more than 11 bits
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(min(255, int(r.ExpFloat64()*4)))
			if r.IntN(500) == 0 {
				p[i] = byte(r.Uint32())
			}
		}
		return p
	},
}

type stream struct {
	name    string
	raw     []byte
	decoded []byte
}

// streams compresses n bytes of each kind at several levels with two libraries.
func streams(t testing.TB, n int) (all []stream) {
	t.Helper()
	r := rand.New(rand.NewPCG(3, uint64(n)))
	for _, kind := range slices.Sorted(maps.Keys(data)) {
		p := data[kind](r, n)
		for _, level := range []int{flate.HuffmanOnly, 0, 1, 4, 6, 9} {
			var b, k bytes.Buffer
			w, err := flate.NewWriter(&b, level)
			require.NoError(t, err)
			kw, err := kflate.NewWriter(&k, level)
			require.NoError(t, err)
			for i, part := range [][]byte{p[:n/3], p[n/3:]} {
				_, err = w.Write(part)
				require.NoError(t, err)
				_, err = kw.Write(part)
				require.NoError(t, err)
				if i == 0 && level > 3 {
					require.NoError(t, w.Flush())
				}
			}
			require.NoError(t, w.Close())
			require.NoError(t, kw.Close())
			name := fmt.Sprintf("%s, %d bytes, level %d", kind, n, level)
			all = append(all, stream{name, b.Bytes(), p}, stream{name + " of the other library", k.Bytes(), p})
		}
	}
	extra := crafted()
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		raw := extra[name]
		decoded, _, err := byLibrary(raw)
		require.NoError(t, err, name)
		all = append(all, stream{name, raw, decoded})
	}
	return all
}

// bitWriter writes streams that no encoder makes.
type bitWriter struct {
	p []byte
	n uint
}

func (w *bitWriter) bits(v uint64, n uint) {
	for i := range n {
		if w.n%8 == 0 {
			w.p = append(w.p, 0)
		}
		w.p[w.n/8] |= byte(v>>i&1) << (w.n % 8)
		w.n++
	}
}

// code writes a code, highest bit first.
func (w *bitWriter) code(v uint64, n uint) {
	for i := range n {
		w.bits(v>>(n-1-i)&1, 1)
	}
}

// fixedSymbol writes a literal or length in the fixed code.
func (w *bitWriter) fixedSymbol(s int) {
	switch {
	case s < 144:
		w.code(uint64(0x30+s), 8)
	case s < 256:
		w.code(uint64(0x190+s-144), 9)
	case s < 280:
		w.code(uint64(s-256), 7)
	default:
		w.code(uint64(0xc0+s-280), 8)
	}
}

// fixedMatch writes a match of the longest or the shortest length.
func (w *bitWriter) fixedMatch(distance int, long bool) {
	if long {
		w.fixedSymbol(285)
	} else {
		w.fixedSymbol(257)
	}
	for i := 29; i >= 0; i-- {
		if base := int(entries().dist[i] >> entryBase); base <= distance {
			w.code(uint64(i), 5)
			w.bits(uint64(distance-base), uint(entries().dist[i]&entryBits))
			return
		}
	}
}

// crafted returns streams with all distances, and with empty blocks.
func crafted() map[string][]byte {
	all := map[string][]byte{}
	for _, long := range []bool{false, true} {
		w := &bitWriter{}
		w.bits(3, 3)
		size := 300
		for i := range size {
			w.fixedSymbol(i * 7 % 256)
		}
		for distance := 1; distance <= historyBytes; distance += 1 + distance/100 {
			for ; size < distance; size += 258 {
				w.fixedMatch(250, true)
			}
			w.fixedMatch(distance, long)
			w.fixedSymbol(distance % 256)
			size += 3
		}
		w.fixedSymbol(256)
		all[fmt.Sprintf("distances, long: %v", long)] = w.p
	}
	far := &bitWriter{}
	far.bits(3, 3)
	for i := range historyBytes {
		far.fixedSymbol(i * i % 251)
	}
	for distance := historyBytes; distance > 0; distance -= 1 + distance/40 {
		far.fixedMatch(distance, distance%2 == 0)
		far.fixedSymbol(distance % 256)
	}
	far.fixedSymbol(256)
	all["the farthest distances"] = far.p
	empty := &bitWriter{}
	for range 1000 {
		empty.bits(2, 3)
		empty.fixedSymbol(256)
	}
	empty.bits(1, 3)
	empty.bits(0, (8-empty.n%8)%8)
	empty.bits(0xffff0000, 32)
	all["a thousand empty blocks"] = empty.p
	return all
}

// byLibrary returns the result of Go's library for a stream: what it decodes, how many bytes it
// uses, and its error.
func byLibrary(raw []byte) ([]byte, int, error) {
	in := bytes.NewReader(raw)
	library := libraries.Get().(io.ReadCloser)
	defer libraries.Put(library)
	if err := library.(flate.Resetter).Reset(in, nil); err != nil {
		return nil, 0, err
	}
	decoded, err := io.ReadAll(library)
	return decoded, len(raw) - in.Len(), err
}

var libraries = sync.Pool{New: func() any { return flate.NewReader(nil) }}

// decode passes raw to d in parts of the sizes that next returns, and takes as much at a time as
// take returns. It stops when the stream ends, is truncated, or bad.
func decode(t testing.TB, d *Decoder, raw []byte, next func(most int) int, take func(most int) int) (decoded []byte, used int, s Status) {
	t.Helper()
	at, end := 0, 0
	for idle := 0; ; {
		var n int
		n, s = d.Decode(raw[at:end])
		if n == 0 && len(d.Window()) == 0 && s == Output {
			idle++
		}
		if n > end-at || idle > 2 {
			require.Fail(t, "more is used than there was, or nothing moves", "%d of %d", n, end-at)
		}
		at += n
		w := d.Window()
		if m := len(w); m > 0 {
			m = take(m)
			decoded = append(decoded, w[:m]...)
			d.Take(m)
		}
		switch s {
		case Input:
			if end-at >= MinInput {
				require.Fail(t, "nothing of much input is used")
			}
			if end == len(raw) {
				decoded = append(decoded, d.Window()...)
				return decoded, at, s
			}
			end += next(len(raw) - end)
		case End, Bad:
			decoded = append(decoded, d.Window()...)
			_, again := d.Decode(raw[at:])
			require.Equal(t, s, again, "it stays")
			return decoded, at, s
		}
	}
}

func whole(n int) int { return n }

// upTo returns random sizes of at most n.
func upTo(r *rand.Rand, n int) func(int) int {
	return func(most int) int { return 1 + r.IntN(min(n, most)) }
}

// forms returns a decoder for each version of the loop that is available.
func forms() map[string]*Decoder {
	all := map[string]*Decoder{"checked": {checked: true}}
	if unsafeLoop {
		all["unsafe"] = &Decoder{}
	}
	return all
}
