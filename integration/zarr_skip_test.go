package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// removeSome removes every n-th file of an array's bricks.
func removeSome(t *testing.T, dir string, n int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	i := 0
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if i++; i%n == 0 {
			require.NoError(t, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	require.Positive(t, i)
}

// Crops that would need a chunk that is not stored are in no order, whatever jitter does: in arrays
// of several hierarchies, in sharded ones, and in lists.
func TestCropsThatNeedMissingChunkAreExcluded(t *testing.T) {
	serve.Tier(t, serve.CI)
	for _, name := range []string{"blosc-lz4-1", "order-f", "slash"} {
		d := cropsOf(store(t, makeVersion2, name), append(smallCrops, "--missing", "skip")...)
		requireCrops(t, d, smallOrder())
	}
	for _, name := range []string{"sharded-blosc-zstd", "plain-blosc", "start"} {
		path := store(t, makeVersion3, name)
		for _, more := range [][]string{nil, {"--jitter"}, {"--select", "time=3:", "--edge", "cover"}} {
			d := cropsOf(path, slices.Concat(smallCrops, []string{"--missing", "skip"}, more)...)
			requireCrops(t, d, smallOrder())
			s := smallOrder()
			s.Split, s.SplitSeed, s.SplitBy = "0.2..1", 4, "record"
			requireCrops(t, d, s)
		}
	}
	dir := store(t, makeSeveral, "all")
	removeSome(t, filepath.Join(dir, "2018.zarr/a/t2m"), 9)
	removeSome(t, filepath.Join(dir, "2019.zarr/wind"), 4)
	removeSome(t, filepath.Join(dir, "2019.zarr/oro"), 4)
	for _, array := range []string{"a/t2m", "w=wind,a/t2m,oro"} {
		flags := []string{"--array", array, "--crop", "time=2,y=4,x=4", "--stride", "time=1,y=3,x=3", "--jitter", "--missing", "skip"}
		requireCrops(t, cropsOf(dir, flags...), smallOrder())
	}
}

// Indexing finds damaged chunk files. With --on-corrupt skip, crops that need one are left out with
// a message, and a mount has the others.
func TestCropsThatNeedDamagedFileAreExcludedOnRequest(t *testing.T) {
	path := store(t, makeVersion3, "sharded-blosc-zstd")
	flags := append(slices.Clone(smallCrops), "--stride", "time=2,y=5,x=4")
	d := cropsOf(path, flags...)
	s := smallOrder()
	s.Shuffle, s.Workers = "none", 1
	whole := newReference(t, d).data(s, 0)

	shard := filepath.Join(path, "c/0/0/0")
	b, err := os.ReadFile(shard)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(shard, b[:20], 0o644))
	r := tool(t, append([]string{"cat", path}, append(d.flags, s.flags()...)...)...)
	require.NotZero(t, r.code)
	require.Contains(t, r.stderr, "c/0/0/0")
	require.Contains(t, r.stderr, "--on-corrupt skip")
	require.Empty(t, r.stdout)

	r = tool(t, append([]string{"cat", path, "--on-corrupt", "skip"}, append(d.flags, s.flags()...)...)...)
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stderr, "crops are left out: they need some of 1 damaged files (--on-corrupt skip), such as")
	record := 4 * 10 * 9 * 2
	from, rest := len(whole)%record, map[string]int{}
	require.Positive(t, from)
	for i := from; i < len(whole); i += record {
		rest[string(whole[i:i+record])]++
	}
	got := r.stdout[len(r.stdout)%record:]
	require.Positive(t, len(got))
	require.Less(t, len(got), len(whole)-from)
	for i := 0; i < len(got); i += record {
		rest[string(got[i:i+record])]--
		require.GreaterOrEqual(t, rest[string(got[i:i+record])], 0, "crop %d", i/record)
	}
	s.Shuffle = "block"
	m := mountDataset(t, d, s, "--on-corrupt", "skip")
	read, err := os.ReadFile(m.path("worker-0.npy"))
	require.NoError(t, err)
	require.Len(t, read, len(r.stdout))
}
