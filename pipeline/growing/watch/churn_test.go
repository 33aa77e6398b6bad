package watch

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// churn makes the given number of changes below a directory, of the kinds that programs make.
func churn(t *testing.T, root string, steps int) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, uint64(steps)))
	at := func(dir string) string { return filepath.Join(root, dir, fmt.Sprintf("%d.tar", r.IntN(20))) }
	dirs := []string{".", "a", "b", "a/c", "d/e/f"}
	dir := func() string { return dirs[r.IntN(len(dirs))] }
	for range steps {
		switch path := at(dir()); r.IntN(8) {
		case 0, 1, 2:
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			require.NoError(t, os.WriteFile(path, make([]byte, 1+r.IntN(9)), 0o600))
		case 3:
			_ = os.Remove(path)
		case 4:
			_ = os.Rename(path, at(dir()))
		case 5:
			_ = os.Link(path, at(dir()))
		case 6:
			if d := dirs[1+r.IntN(len(dirs)-1)]; r.IntN(4) == 0 {
				require.NoError(t, os.RemoveAll(filepath.Join(root, d)))
			}
		case 7:
			a, b := filepath.Join(root, dirs[1+r.IntN(len(dirs)-1)]), filepath.Join(root, dirs[1+r.IntN(len(dirs)-1)])
			if !strings.HasPrefix(a+"/", b+"/") && !strings.HasPrefix(b+"/", a+"/") {
				_ = os.RemoveAll(b)
				_ = os.Rename(a, b)
			}
		}
	}
}

// walk returns the shards that exist.
func walk(t *testing.T, root string) (paths []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			rel, relErr := filepath.Rel(root, path)
			require.NoError(t, relErr)
			paths = append(paths, rel)
		}
		return err
	}))
	slices.Sort(paths)
	return paths
}
