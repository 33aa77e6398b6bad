package lc0_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/format/lc0"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// randomFrame has random bytes, except for those that must have certain values.
func randomFrame(r *rand.Rand, version, format uint32) []byte {
	f := make([]byte, sizes[version])
	for i := range f {
		f[i] = byte(r.Uint32())
	}
	binary.LittleEndian.PutUint32(f, version)
	if version >= 5 {
		binary.LittleEndian.PutUint32(f[4:], format)
	}
	if version < 6 {
		f[valuesAt(version)-1] = []byte{255, 0, 1}[r.IntN(3)]
	}
	return f
}

// naiveRow computes lczero-training's tensors, element by element: planes, then values.
func naiveRow(f []byte) (planes [112][64]float32, values [6][3]uint32) {
	version, format := binary.LittleEndian.Uint32(f), uint32(1)
	if version >= 5 {
		format = binary.LittleEndian.Uint32(f[4:])
	}
	bits := f[policyAt(version)+7432:]
	flags := f[valuesAt(version)-8:]
	for p := range 104 {
		plane := binary.LittleEndian.Uint64(bits[8*p:])
		for s := range 64 {
			planes[p][s] = float32(plane >> (s ^ 7) & 1)
		}
	}
	set := func(p int, v float32) {
		for s := range 64 {
			planes[p][s] = v
		}
	}
	row := func(p, first int, b byte) {
		for i := range 8 {
			planes[p][first+i] = float32(b >> i & 1)
		}
	}
	by := float32(99)
	if format == 1 {
		for i := range 5 {
			set(104+i, float32(flags[i]))
		}
	} else {
		row(104, 0, flags[0])
		row(104, 56, flags[2])
		row(105, 0, flags[1])
		row(105, 56, flags[3])
		if format == 2 {
			set(108, float32(flags[4]))
		} else {
			row(108, 56, flags[4])
		}
	}
	if format > 3 {
		by = 100
	}
	set(109, float32(flags[5])/by)
	if (format == 132 || format == 133) && flags[6] >= 128 {
		set(110, 1)
	}
	set(111, 1)

	at := func(v6 int) uint32 { // by its offset in a frame of version 6
		if at := v6 - 8280 + valuesAt(version); at+4 <= len(f) {
			return binary.LittleEndian.Uint32(f[at:])
		}
		return 0
	}
	const nan = 0x7fc00000
	values = [6][3]uint32{
		{at(8308), at(8312), at(8304)}, {at(8284), at(8292), at(8300)}, {at(8316), at(8320), at(8324)},
		{at(8328), at(8332), at(8336)}, {at(8280), at(8288), at(8296)}, {at(8352), 0, nan},
	}
	if version == 7 {
		values[5][1] = at(8356)
	}
	if version < 6 {
		result := float32(int8(flags[7]))
		values[0][0], values[0][1] = math.Float32bits(result), 0
		if result == 0 {
			values[0][1] = math.Float32bits(1)
		}
		values[3] = [3]uint32{nan, nan, nan}
	}
	return planes, values
}

// naiveHalf returns the nearest float16. It searches the finite, non-negative ones, which ascend,
// for the first that is not below f, and compares it with the one before.
var naiveHalf = func() func(f float32) uint16 {
	value := func(h int) *big.Rat {
		exponent, mantissa := h>>10, int64(h&1023)
		if exponent == 0 {
			return big.NewRat(mantissa, 1<<24)
		}
		x := big.NewRat(1024+mantissa, 1<<25) // times 2^exponent
		return x.Mul(x, new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), uint(exponent))))
	}
	known := map[float32]uint16{}
	return func(f float32) uint16 {
		if h, ok := known[f]; ok {
			return h
		}
		want := new(big.Rat).SetFloat64(float64(f))
		best := sort.Search(0x7bff, func(h int) bool { return value(h).Cmp(want) >= 0 })
		if below := best - 1; below >= 0 {
			up, down := new(big.Rat).Sub(value(best), want), new(big.Rat).Sub(want, value(below))
			if c := down.Cmp(up); c < 0 || c == 0 && below&1 == 0 {
				best = below
			}
		}
		known[f] = uint16(best)
		return uint16(best)
	}
}()

func TestTensorRowsMatchTables(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for version := uint32(3); version <= 7; version++ {
		for _, format := range []uint32{1, 2, 3, 4, 5, 132, 133} {
			if version < 5 && format != 1 {
				continue
			}
			f := randomFrame(r, version, format)
			planes, values := naiveRow(f)
			for element, size := range map[lc0.Element]int{lc0.U1: 14672, lc0.F2: 21840, lc0.F4: 36176} {
				tensors, err := lc0.NewTensors(element)
				require.NoError(t, err)
				require.Equal(t, size, tensors.RowBytes())
				var want []byte
				for p, plane := range planes {
					for _, v := range plane {
						switch {
						case element == lc0.U1 && p == 109:
							want = append(want, f[valuesAt(version)-3])
						case element == lc0.U1:
							want = append(want, byte(v))
						case element == lc0.F2:
							want = binary.LittleEndian.AppendUint16(want, naiveHalf(v))
						default:
							want = binary.LittleEndian.AppendUint32(want, math.Float32bits(v))
						}
					}
				}
				want = append(want, f[policyAt(version):policyAt(version)+7432]...)
				for _, row := range values {
					for _, v := range row {
						want = binary.LittleEndian.AppendUint32(want, v)
					}
				}
				got := make([]byte, tensors.RowBytes())
				for i := range got {
					got[i] = 0xaa
				}
				require.NoError(t, tensors.Present(got, f))
				require.True(t, string(want) == string(got), "version %d, format %d, %s: differs at byte %d", version, format, element, differs(want, got))
			}
		}
	}
}

func differs(a, b []byte) int {
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

func TestInvalidFramesAreNotRows(t *testing.T) {
	tensors, err := lc0.NewTensors(lc0.U1)
	require.NoError(t, err)
	row := make([]byte, tensors.RowBytes())
	r := rand.New(rand.NewPCG(1, 2))
	for why, f := range map[string][]byte{
		"the frame has 2 bytes": {6, 0}, "the frame has 8355 bytes, which does not fit its version 6": randomFrame(r, 6, 1)[:8355], "does not fit its version 9": {9, 0, 0, 0},
		"the frame's input format is 6": randomFrame(r, 6, 6), "the frame's input format is 0": randomFrame(r, 7, 0),
	} {
		require.ErrorContains(t, tensors.Present(row, f), why)
	}
	require.ErrorContains(t, tensors.Present(row[1:], randomFrame(r, 6, 1)), "a row of tensors has 14672 bytes, not 14671")
	_, err = lc0.NewTensors("f8")
	require.ErrorContains(t, err, "u1, f2 or f4")
	require.Zero(t, testing.AllocsPerRun(10, func() { _ = tensors.Present(row, randomFrameOnce) }))
}

var randomFrameOnce = randomFrame(rand.New(rand.NewPCG(3, 4)), 6, 1)

// NumPy reads rows with their dtype, and its own unpacking gives the same values.
func TestNumPyReadsTensorRows(t *testing.T) {
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(5, 6))
	var frames []byte
	const n = 3
	for range n {
		frames = append(frames, randomFrame(r, 6, 1)...)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "frames"), frames, 0o600))
	code := `
import numpy as np, sys
rows = np.fromfile("frames", np.uint8).reshape(-1, 8356)
want = np.zeros((len(rows), 112, 64), "f4")
want[:, :104] = np.unpackbits(rows[:, 7440:8272], axis=1).reshape(len(rows), 104, 64)
want[:, 104:109] = rows[:, 8272:8277, None]
want[:, 111] = 1
f = np.ascontiguousarray(rows[:, 8280:8356]).view("<f4")
values = np.full((len(rows), 6, 3), np.nan, "f4")
values[:, :5] = f[:, [[7, 8, 6], [1, 3, 5], [9, 10, 11], [12, 13, 14], [0, 2, 4]]]
values[:, 5, 0], values[:, 5, 1] = f[:, 18], 0
`
	for _, e := range []lc0.Element{lc0.U1, lc0.F2, lc0.F4} {
		tensors, err := lc0.NewTensors(e)
		require.NoError(t, err)
		var out []byte
		for i := range n {
			row := make([]byte, tensors.RowBytes())
			require.NoError(t, tensors.Present(row, frames[8356*i:8356*(i+1)]))
			out = append(out, row...)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, string(e)), out, 0o600))
		code += fmt.Sprintf(`
got = np.fromfile("%s", np.dtype(%s))
assert len(got) == len(rows)
want[:, 109] = rows[:, 8277, None] / np.float32(%d)
assert np.array_equal(got["planes"], want.reshape(-1, 112, 8, 8).astype("%s"))
assert np.array_equal(got["probabilities"].view("u4"), np.ascontiguousarray(rows[:, 8:7440]).view("<u4"))
assert np.array_equal(got["values"], values, equal_nan=True)
`, e, tensors.Descr(), map[bool]int{true: 1, false: 99}[e == lc0.U1], e)
	}
	formattest.NumPy(t, dir, code, nil)
}

func BenchmarkPresent(b *testing.B) {
	for _, e := range []lc0.Element{lc0.U1, lc0.F2, lc0.F4} {
		b.Run(string(e), func(b *testing.B) {
			tensors, err := lc0.NewTensors(e)
			require.NoError(b, err)
			row := make([]byte, tensors.RowBytes())
			for b.Loop() {
				_ = tensors.Present(row, randomFrameOnce)
			}
		})
	}
}

// All versions have the same kind of rows, so their games may be mixed.
func TestGamesOfSeveralVersionsYieldRows(t *testing.T) {
	r := mustRows(t, spec.Format{As: spec.AsTensorsU1})
	raw := tarOf(t, file{"five.gz", gz(game(5, 0, 2))}, file{"empty.gz", gz(nil)}, file{"six.gz", gz(game(6, 0, 3))}, file{"4.gz", gz(game(4, 0, 1))}, file{"6.gz", gz(game(6, 7, 1))})
	s := scan(r, lc0.Tar{}, raw)
	require.NoError(t, s.err)
	require.Equal(t, "versions 4, 5, 6", s.Kind)
	var sizes []int64
	for _, x := range s.records {
		sizes = append(sizes, x.SizeBytes)
	}
	require.Equal(t, []int64{8308, 8308, 8356, 8356, 8356, 8292, 8356}, sizes)
	require.Len(t, s.Lost().First, 1)

	s = scan(r, lc0.Game{}, gz(game(7, 0, 3)))
	require.NoError(t, s.err)
	require.Equal(t, "version 7", s.Kind)
	checked := mustRows(t, spec.Format{As: spec.AsTensorsU1, Lc0Check: true})
	none := game(5, 0, 1)
	clear(none[policyAt(5) : policyAt(5)+4*1858])
	for i := range 1858 {
		none[policyAt(5)+4*i+3] = 0xbf
	}
	s = scan(checked, lc0.Tar{}, tarOf(t, file{"5.gz", gz(none)}, file{"6.gz", gz(game(6, 0, 2))}))
	require.NoError(t, s.err)
	require.Equal(t, "version 6", s.Kind, "of what is left")
}

func TestVersionKinds(t *testing.T) {
	f, r := lc0.Format{}, mustRows(t, spec.Format{As: spec.AsTensorsF2})
	require.True(t, f.SameKind("version 6", "version 6"))
	for _, pair := range [][2]string{{"version 6", "version 5"}, {"versions 5, 6", "versions 5, 6"}, {"version 8", "version 8"}, {"", ""}} {
		require.False(t, f.SameKind(pair[0], pair[1]), pair)
	}
	require.True(t, r.SameKind("version 6", "versions 3, 4, 5, 6, 7"))
	require.Equal(t, "versions 3, 5, 6", r.MixedKind([]string{"versions 5, 6", "version 3", "version 6"}))
	require.Equal(t, "version 6", r.MixedKind([]string{"version 6"}))
	for _, kind := range []string{"version 6", "versions 3, 7"} {
		of, err := r.OfKind(kind)
		require.NoError(t, err)
		require.Equal(t, 21840, of.(format.Presenter).RowBytes())
		require.Equal(t, ".npy", of.StreamExtension("x"))
	}
	for _, kind := range []string{"", "version 2", "versions 6", "versions 6, 5", "versions 5,6", "version 06", "6"} {
		_, err := r.OfKind(kind)
		require.Error(t, err, kind)
		_, err = f.OfKind(kind)
		require.Error(t, err, kind)
	}
	_, err := f.OfKind("versions 5, 6")
	require.ErrorContains(t, err, "not a version of frames")
}

func mustRows(t *testing.T, f spec.Format) lc0.Rows {
	r, err := lc0.NewRows(f)
	require.NoError(t, err)
	return r
}

// NumPy loads a stream of rows, also as a memory map.
func TestNumPyLoadsStreamsOfRows(t *testing.T) {
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(7, 8))
	code := "import numpy as np\n"
	for as, element := range map[spec.As]string{spec.AsTensorsU1: "u1", spec.AsTensorsF2: "f2", spec.AsTensorsF4: "f4"} {
		rows := mustRows(t, spec.Format{As: as})
		for _, n := range []int{0, 1, 5} {
			stream := rows.Prologue(uint64(n))
			for range n {
				row := make([]byte, rows.RowBytes())
				require.NoError(t, rows.Present(row, randomFrame(r, 7, 1)))
				stream = append(stream, row...)
			}
			name := fmt.Sprintf("%s-%d.npy", element, n)
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), append(stream, rows.Epilogue(uint64(n))...), 0o600))
			code += fmt.Sprintf(`
a = np.load("%s", mmap_mode="r" if %d else None)
assert a.shape == (%d,) and a.dtype.itemsize == %d, a.dtype
assert a["planes"].shape == (%d, 112, 8, 8) and a["planes"].dtype == "%s"
assert a["probabilities"].shape == (%d, 1858) and a["values"].shape == (%d, 6, 3) and a["values"].dtype == "f4"
`, name, n, n, rows.RowBytes(), n, element, n, n)
		}
		descr, remark := rows.RowType()
		require.Equal(t, rows.Descr(), descr)
		require.Equal(t, element == "u1", strings.Contains(remark, "undivided"))
	}
	formattest.NumPy(t, dir, code, nil)
}
