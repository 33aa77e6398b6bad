package catalog

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
	"github.com/lsiofs/lsiofs/pipeline/catalog/index/indextest"
	"github.com/lsiofs/lsiofs/pipeline/format"
)

// TestNoNumberInIndexMakesLookupReadOutOfBounds puts numbers everywhere into an index with correct
// checksums: if it can still be opened, no look-up may panic.
func TestNoNumberInIndexMakesLookupReadOutOfBounds(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		key := index.Key{1}
		data := smallIndex(t, key, keyed)
		opened := 0
		for at := 0; at+8 <= len(data); at += 4 {
			for _, v := range []uint64{0, 1, 16, 127, 129, 1 << 31, 1 << 40, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
				changed := bytes.Clone(data)
				binary.LittleEndian.PutUint64(changed[at:], v)
				if i, err := index.Open(indextest.Repair(changed, index.Version, index.Generation, key), key); err == nil {
					opened++
					lookUp(&Catalog{image: i, coarse: newCoarse(i)})
				}
			}
		}
		require.Greater(t, opened, 100, "checksums were made right")
	}
}

// smallIndex returns a stored index of a shard that is made of parts and of one that is not.
func smallIndex(t *testing.T, key index.Key, keyed bool) []byte {
	dir := t.TempDir()
	store := index.OpenStore(dir, "", key, slog.New(slog.DiscardHandler))
	plain := plainShard{decoded: 400}
	for i := range int64(4) {
		plain.extents = append(plain.extents, format.Extent{OffsetBytes: 100 * i, SizeBytes: 100})
	}
	image := sealTo(t, store, []plainShard{
		{decoded: 5000, members: []format.Member{{}, {DecodedBytes: 120, RawBytes: 60}}, parts: true,
			extents: []format.Extent{{SizeBytes: 100}, {OffsetBytes: 120, SizeBytes: 30}, {OffsetBytes: 150, SizeBytes: 750}}},
		plain,
	}, keyed)
	require.NoError(t, image.Close())
	list, err := filepath.Glob(filepath.Join(dir, "*.index"))
	require.NoError(t, err)
	require.Len(t, list, 1)
	data, err := os.ReadFile(list[0])
	require.NoError(t, err)
	return data
}

// lookUp calls every kind of look-up.
func lookUp(c *Catalog) {
	n := min(c.Records(), 1000)
	numbers := make([]uint64, n)
	for k := range numbers {
		numbers[k] = uint64(k)
		_ = c.Growth(uint64(k), 1000)
	}
	c.Extents(numbers, make([]Extent, n))
	c.Sizes(numbers, make([]int64, n))
	c.KeyHashes(numbers, make([]uint64, n))
	c.ChunkStarts(100, 10)
	c.PieceStarts(100, 10, 1000)
	c.RecordAbove(500)
	for i := range c.Shards() {
		s := c.Shard(i)
		_ = c.Entry(i, s.DecodedBytes/2)
		_ = c.Part(i, s.DecodedBytes/2)
	}
}
