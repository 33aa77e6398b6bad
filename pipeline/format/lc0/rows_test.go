package lc0_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/format/lc0"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

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
