package inflate

import (
	"bytes"
	"compress/flate"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestStreamsDecodeHoweverTheyAreSplit(t *testing.T) {
	all := streams(t, 300)
	all = append(all, streams(t, 150_000)...)
	for form, d := range forms() {
		r := rand.New(rand.NewPCG(1, 2))
		for _, s := range all {
			for _, split := range []struct{ in, out int }{{1 << 30, 1 << 30}, {1, 1 << 30}, {1000, 5000}, {1 << 30, 1000}, {50, 70_000}, {7, 1}} {
				if len(s.decoded) > 1000 {
					split.in, split.out = max(split.in, 100), max(split.out, 1000)
				}
				d.Reset()
				raw := append(bytes.Clone(s.raw), "behind"...)
				got, used, status := decode(t, d, raw, upTo(r, split.in), upTo(r, split.out))
				require.Equal(t, End, status, "%s: %s: %v", form, s.name, split)
				require.Equal(t, len(s.raw), used, "%s: %s", form, s.name)
				require.True(t, bytes.Equal(s.decoded, got), "%s: %s: %v", form, s.name, split)
				rawBits, decodedBytes := d.Position()
				require.Equal(t, int64(8*len(s.raw)), rawBits)
				require.Equal(t, int64(len(s.decoded)), decodedBytes)
			}
		}
	}
}

// Of a truncated stream as much is decoded as another library decodes.
func TestTruncatedStreamsNeedMoreInput(t *testing.T) {
	for form, d := range forms() {
		for _, s := range streams(t, 300) {
			step := max(1, len(s.raw)/200)
			for n := 0; n < len(s.raw); n += step {
				want, _, err := byLibrary(s.raw[:n])
				require.Equal(t, io.ErrUnexpectedEOF, err)
				d.Reset()
				got, _, status := decode(t, d, s.raw[:n], whole, whole)
				require.Equal(t, Input, status, "%s: %s: %d of %d", form, s.name, n, len(s.raw))
				require.True(t, bytes.Equal(want, got), "%s: %s: %d of %d: %d bytes, and not %d", form, s.name, n, len(s.raw), len(got), len(want))
			}
		}
	}
}

// requireAsLibrary compares decoders with Go's library on arbitrary bytes.
func requireAsLibrary(t testing.TB, decoders map[string]*Decoder, raw []byte, next, take func(int) int) {
	t.Helper()
	want, wantUsed, err := byLibrary(raw)
	for _, d := range decoders {
		requireDecodes(t, d, raw, want, wantUsed, err, next, take)
	}
}

// requireDecodes compares a decoder with the library's result for raw.
func requireDecodes(t testing.TB, d *Decoder, raw, want []byte, wantUsed int, err error, next, take func(int) int) {
	t.Helper()
	d.Reset()
	got, used, status := decode(t, d, raw, next, take)
	if err == nil {
		require.Equal(t, End, status)
		require.Equal(t, wantUsed, used)
		require.True(t, bytes.Equal(want, got))
		return
	}
	require.Equal(t, err != io.ErrUnexpectedEOF, status == Bad, "%v", err)
	require.Equal(t, len(want), len(got))
	require.True(t, bytes.Equal(want, got), "before what is refused it decodes what the library does")
	var corrupt flate.CorruptInputError
	if errors.As(err, &corrupt) {
		rawBits, _ := d.Position()
		require.Equal(t, int64(corrupt), (rawBits+7)/8)
	}
}

func TestStreamsWithFlippedBitMatchLibrary(t *testing.T) {
	all := forms()
	r := rand.New(rand.NewPCG(5, 6))
	for _, s := range streams(t, 200) {
		if len(s.raw) > 3000 {
			continue
		}
		for i := 0; i < 8*len(s.raw); i += 1 + len(s.raw)/100 {
			damaged := bytes.Clone(s.raw)
			damaged[i/8] ^= 1 << (i % 8)
			requireAsLibrary(t, all, damaged, upTo(r, 1<<30), whole)
		}
	}
	for _, s := range streams(t, 100_000) {
		for range 3 {
			damaged := bytes.Clone(s.raw)
			damaged[r.IntN(len(damaged))] ^= 1 << r.IntN(8)
			requireAsLibrary(t, all, damaged, upTo(r, 5000), whole)
		}
	}
}

// Codes with all numbers of bits, complete or not, of all sizes.
func TestRefusedCodesMatchLibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	accepted, all := 0, forms()
	for range 10_000 {
		w := &bitWriter{}
		w.bits(5, 3)
		lits, dists := r.IntN(31), r.IntN(32)
		w.bits(uint64(lits), 5)
		w.bits(uint64(dists), 5)
		w.bits(15, 4)
		var lens [19]uint64 // of a complete code-length code: 4 bits each, except for the last ones
		for i := range 19 {
			lens[i] = 4
			if i >= 13 {
				lens[i] = 5
			}
		}
		for _, at := range lensOrder {
			w.bits(lens[at], 3)
		}
		code := func(symbol int) {
			if symbol < 13 {
				w.code(uint64(symbol), 4)
			} else {
				w.code(uint64(26+symbol-13), 5)
			}
		}
		writeLens(r, code, lits+257, 256)
		writeLens(r, code, dists+1, r.IntN(dists+1))
		for range 200 {
			w.bits(uint64(r.Uint32()), 8)
		}
		if _, _, err := byLibrary(w.p); err == nil {
			accepted++
		}
		requireAsLibrary(t, all, w.p, whole, whole)
	}
	require.Greater(t, accepted, 200)
}

// writeLens writes the lengths of codes of n symbols, including the one that is needed. In most
// cases it is a complete code, made by repeatedly splitting the code of 0 bits.
func writeLens(r *rand.Rand, code func(int), n, needed int) {
	lens := make([]int, n)
	leaves := []int{0}
	for want := 1 + r.IntN(n); len(leaves) < want; {
		i := r.IntN(len(leaves))
		if r.IntN(2) == 0 {
			i = len(leaves) - 1 // long ones
		}
		if leaves[i] == maxCodeLen {
			if r.IntN(50) == 0 {
				break
			}
			continue
		}
		leaves[i]++
		leaves = append(leaves, leaves[i])
	}
	if len(leaves) == 1 && r.IntN(2) == 0 {
		leaves[0] = 1
	}
	at := r.Perm(n)
	for i, l := range leaves {
		lens[at[i]] = l
	}
	if lens[needed] == 0 && leaves[0] > 0 {
		lens[needed], lens[at[0]] = lens[at[0]], 0
	}
	if r.IntN(10) == 0 {
		lens[r.IntN(n)] = r.IntN(maxCodeLen + 1)
	}
	for _, l := range lens {
		code(l)
	}
}

// A decoder that stopped at a block can continue there, and so can another one that is entered
// there, at any bit.
func TestDecoderResumesAtBlockOfAnother(t *testing.T) {
	for form, d := range forms() {
		entered := &Decoder{checked: d.checked}
		r := rand.New(rand.NewPCG(9, 9))
		stops, bits := 0, map[int64]bool{}
		for _, s := range streams(t, 400_000) {
			d.Reset()
			d.StopAt(10_000)
			var got []byte
			at := 0
			last := int64(-1)
			for status := Input; status != End; {
				var n int
				n, status = d.Decode(s.raw[at:min(len(s.raw), at+20_000)])
				at += n
				require.NotEqual(t, Bad, status)
				rawBits, decodedBytes := d.Position()
				history := bytes.Clone(d.History())
				got = append(got, d.Window()...)
				d.Take(len(d.Window()))
				if status != Block {
					continue
				}
				require.Equal(t, int64(len(got)), decodedBytes)
				require.Greater(t, decodedBytes, last)
				last = decodedBytes
				require.Equal(t, got[max(0, len(got)-historyBytes):], history)
				d.StopAt(decodedBytes + 1 + int64(r.IntN(100_000)))
				entered.ResetAt(history, uint(rawBits%8))
				rest, used, end := decode(t, entered, s.raw[rawBits/8:], upTo(r, 10_000), whole)
				require.Equal(t, End, end, "%s: %s", form, s.name)
				require.Equal(t, len(s.raw), int(rawBits/8)+used)
				require.True(t, bytes.Equal(s.decoded[decodedBytes:], rest), "%s: %s", form, s.name)
				stops++
				bits[rawBits%8] = true
			}
			require.True(t, bytes.Equal(s.decoded, got))
		}
		require.Greater(t, stops, 100)
		require.Len(t, bits, 8)
	}
}

func TestStopAfterEndIsIgnored(t *testing.T) {
	d := &Decoder{}
	s := streams(t, 300)[0]
	d.Reset()
	d.StopAt(301)
	_, status := d.Decode(s.raw)
	require.Equal(t, End, status)
}

func TestMatchBeforeHistoryIsInvalid(t *testing.T) {
	for _, d := range forms() {
		for _, padding := range []int{0, 100} { // in the last bytes, and in the loop
			for _, history := range []int{0, 1, 99, 100, 40_000} {
				w := &bitWriter{}
				w.bits(3, 3)
				w.fixedMatch(100, true)
				w.fixedSymbol(256)
				d.ResetAt(bytes.Repeat([]byte("x"), history), 0)
				_, s := d.Decode(append(w.p, make([]byte, padding)...))
				if history >= 100 {
					require.Equal(t, End, s)
					require.Equal(t, bytes.Repeat([]byte("x"), 258), d.Window())
				} else {
					require.Equal(t, Bad, s)
				}
			}
		}
	}
}

func TestDecoderReportsItsSizeAndAllocatesNothing(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(Decoder{}), uintptr(MemoryBytes))
	require.Greater(t, unsafe.Sizeof(Decoder{}), uintptr(MemoryBytes-1024))
	s := streams(t, 150_000)[3]
	d := &Decoder{}
	require.Zero(t, testing.AllocsPerRun(10, func() {
		d.Reset()
		for in := s.raw; ; {
			n, status := d.Decode(in)
			in = in[n:]
			d.Take(len(d.Window()))
			if status == End {
				return
			}
		}
	}))
}

func TestTakingMoreThanAvailablePanics(t *testing.T) {
	d := &Decoder{}
	d.Reset()
	require.Panics(t, func() { d.Take(1) })
	require.Panics(t, func() { d.Take(-1) })
}

// FuzzDecode compares both versions with Go's library on arbitrary bytes, split at random, with
// guard pages after input and window.
func FuzzDecode(f *testing.F) {
	for _, s := range streams(f, 300) {
		if len(s.raw) < 2000 {
			f.Add(s.raw, uint64(1))
		}
	}
	all := forms()
	all["guarded"] = guardedDecoder(f)
	room := guarded(f, 1<<20)
	f.Fuzz(func(t *testing.T, raw []byte, seed uint64) {
		if len(raw) > len(room) {
			t.Skip("more than the fuzzer makes")
		}
		raw = room[len(room)-copy(room[len(room)-len(raw):], raw):]
		r := rand.New(rand.NewPCG(seed, 1))
		requireAsLibrary(t, all, raw, upTo(r, 1+r.IntN(1000)), upTo(r, 1+r.IntN(100_000)))
		requireAsLibrary(t, all, raw, whole, whole)
	})
}
