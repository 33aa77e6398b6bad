package pipeline

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOverlongDirectoryListsAreCounted(t *testing.T) {
	long := strings.Repeat("d", maxDirectoriesPath/4)
	for _, tt := range []struct {
		name   string
		n      int
		path   string
		listed bool
	}{
		{"as many as are listed", maxDirectories, "d", true},
		{"one more", maxDirectories + 1, "d", false},
		{"paths as long as are listed", 4, long, true},
		{"a byte more", 4, long + "d", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list, omitted := listDirectories(tt.n, func(i int) (string, uint64) { return tt.path, uint64(i) })
			if !tt.listed {
				require.Empty(t, list)
				require.Equal(t, tt.n, omitted)
				return
			}
			require.Zero(t, omitted)
			require.Len(t, list, tt.n)
			require.Equal(t, directory{Path: tt.path, Records: uint64(tt.n - 1)}, list[tt.n-1])
		})
	}
	list, _ := listDirectories(1, func(int) (string, uint64) { return "caf\xe9", 3 })
	require.Equal(t, []directory{{Path: "caf\xe9", Hex: "636166e9", Records: 3}}, list)
}
