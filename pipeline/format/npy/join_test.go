package npy

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFileIsDescribedByItsHeaderAndSize(t *testing.T) {
	r, err := rowsOfKind("'<f4' (3, 5)")
	require.NoError(t, err)
	head := r.Prologue(40)
	for n := range head {
		_, _, _, _, err := Framing{}.Describe(head[:n], int64(len(head))+2400)
		require.Error(t, err, "%d bytes of the header", n)
		require.LessOrEqual(t, Framing{}.HeaderBytes(head[:n]), len(head))
	}
	require.Equal(t, len(head), Framing{}.HeaderBytes(head[:12]))
	kind, rows, rowBytes, offset, err := Framing{}.Describe(head, int64(len(head))+2400)
	require.NoError(t, err)
	require.Equal(t, "'<f4' (3, 5)", kind)
	require.Equal(t, []int64{40, 60, int64(len(head))}, []int64{rows, rowBytes, offset})
	for _, wrong := range []int64{0, 2399, 2401, 1 << 62} {
		_, _, _, _, err := Framing{}.Describe(head, int64(len(head))+wrong)
		require.Error(t, err)
	}
	require.Equal(t, maxHeaderBytes, Framing{}.HeaderBytes([]byte(magic+"\x03\x00\xff\xff\xff\xff")))
}

func TestHeaderOfCombinedArraysHasAFieldForEachAndPadding(t *testing.T) {
	for _, c := range []struct {
		kinds []string
		want  string
		bytes int64
	}{
		{[]string{"'<f4' (3, 5)", "'>i2' ()"}, "[('a', '<f4', (3, 5)), ('', '|V4'), ('b', '>i2'), ('', '|V62')]", 128},
		{[]string{"'|u1' (64,)", "[('x', '<f8'), ('y', '|S3')] (2,)"}, "[('a', '|u1', (64,)), ('b', [('x', '<f8'), ('y', '|S3')], (2,)), ('', '|V42')]", 128},
		{[]string{"'<i8' (8,)", "'<i8' (8, 1)"}, "[('a', '<i8', (8,)), ('b', '<i8', (8, 1))]", 128},
	} {
		prologue, err := Framing{}.Prologue([]string{"a", "b"}, c.kinds, 7)
		require.NoError(t, err)
		kind, rows, rowBytes, offset, err := Framing{}.Describe(prologue, int64(len(prologue))+7*c.bytes)
		require.NoError(t, err)
		require.Equal(t, c.want+" ()", kind)
		require.Equal(t, []int64{7, c.bytes, int64(len(prologue))}, []int64{rows, rowBytes, offset})
	}
}
