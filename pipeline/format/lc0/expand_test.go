package lc0

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// The processor-specific version gives the same result as the table of rows, and writes no byte
// more.
func TestExpandedPlanesMatchTable(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{1, 2, 4} {
		for n := range 2*lastPlanes + 1 {
			planes := make([]byte, n*planeBytes)
			for i := range planes {
				planes[i] = byte(r.Uint32())
			}
			const behind = 40
			want := bytes.Repeat([]byte{0xaa}, n*squares*size+behind)
			got := bytes.Clone(want)
			sharedTables().expandByTable(want, planes, size)
			sharedTables().expand(got, planes, size)
			require.Equal(t, want, got, "%d planes of elements of %d bytes", n, size)
			require.Equal(t, bytes.Repeat([]byte{0xaa}, behind), got[n*squares*size:])
		}
		require.Panics(t, func() { sharedTables().expand(make([]byte, squares*size-1), make([]byte, planeBytes), size) })
	}
}

func BenchmarkExpand(b *testing.B) {
	for _, size := range []int{1, 2, 4} {
		dst, planes := make([]byte, bitPlanes*squares*size), make([]byte, bitPlanes*planeBytes)
		for name, f := range map[string]func([]byte, []byte, int){"": sharedTables().expand, "ByTable": sharedTables().expandByTable} {
			b.Run(fmt.Sprintf("%d%s", size, name), func(b *testing.B) {
				b.SetBytes(int64(len(dst)))
				for b.Loop() {
					f(dst, planes, size)
				}
			})
		}
	}
}
