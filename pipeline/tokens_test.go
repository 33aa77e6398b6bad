package pipeline

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// tokenFiles are those of the vectors, which another program wrote.
const tokenFiles = "format/tokens/testdata/"

func copyTokens(t *testing.T, from string) string {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(tokenFiles+from)))
	return dir
}

func TestVectorsOfTokens(t *testing.T) {
	for _, v := range []struct {
		want, dir, pattern string
		change             func(*spec.Format)
	}{
		{"megatron-pack.npy", "megatron", "", func(f *spec.Format) { f.Rows.Pack = "4" }},
		{"megatron-pack.npy", "megatron", "*.bin", func(f *spec.Format) { f.Rows.Pack = "4" }},
		{"megatron-documents.bin", "megatron", "", nil},
		{"megatron-documents.bin", "megatron", "*.bin", func(f *spec.Format) { f.Name = "tokens" }},
		{"datatrove-pack-labels.npy", "datatrove", "", func(f *spec.Format) { f.Name, f.Rows = "tokens", spec.Rows{Pack: "3+1", Dtype: "u4"} }},
		{"datatrove-pack-labels.npy", "datatrove", "00000_tok.ds", func(f *spec.Format) { f.Rows = spec.Rows{Pack: "3+1", Dtype: "u4"} }},
	} {
		want, err := os.ReadFile(tokenFiles + v.want)
		require.NoError(t, err)
		dir := copyTokens(t, v.dir)
		for _, memory := range []int64{1 << 20, 1 << 30} {
			for _, n := range []int{1, 7, stream.MaxReadBytes} {
				s := tablesSpec(t, filepath.Join(dir, v.pattern), v.change)
				s.Order.Shuffle, s.MemoryBytes = spec.ShuffleNone, memory
				require.Equal(t, string(want), string(stream0(t, s, n)), "%s %s, memory %d, reads of %d", v.want, v.pattern, memory, n)
			}
		}
	}
}

// writeMegatron writes a .bin of tokens 0, 1, 2 … of two bytes, and its .idx.
func writeMegatron(t *testing.T, path string, lengths ...int) {
	sum := 0
	idx := append([]byte("MMIDIDX\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"), 8)
	idx = binary.LittleEndian.AppendUint64(idx, uint64(len(lengths)))
	idx = binary.LittleEndian.AppendUint64(idx, 0)
	for _, n := range lengths {
		idx = binary.LittleEndian.AppendUint32(idx, uint32(n))
	}
	for _, n := range lengths {
		idx = binary.LittleEndian.AppendUint64(idx, uint64(2*sum))
		sum += n
	}
	var data []byte
	for i := range sum {
		data = binary.LittleEndian.AppendUint16(data, uint16(i))
	}
	require.NoError(t, os.WriteFile(path+".bin", data, 0o644))
	require.NoError(t, os.WriteFile(path+".idx", idx, 0o644))
}

func TestPackedTokensHaveTheBytesOfRecordsOfOneSize(t *testing.T) {
	dir := t.TempDir()
	writeMegatron(t, filepath.Join(dir, "a"), 30_000, 1, 20_000)
	writeMegatron(t, filepath.Join(dir, "b"), 64, 64)
	for _, shuffle := range []spec.Shuffle{spec.ShuffleReservoir, spec.ShuffleFull} {
		for _, memory := range []int64{1 << 20, 1 << 30} {
			s := tablesSpec(t, dir, func(f *spec.Format) { f.Rows.Pack = "32+1" })
			s.Order.Shuffle, s.MemoryBytes = shuffle, memory
			got := stream0(t, s, 4095)
			f := tablesSpec(t, filepath.Join(dir, "*.bin"), func(f *spec.Format) {
				*f = spec.Format{Name: "fixed", RecordBytes: 66, StrideBytes: 64, Remainder: spec.RemainderDrop}
			})
			f.Order.Shuffle, f.MemoryBytes = shuffle, memory
			want := stream0(t, f, 4095)
			require.Len(t, got, 128+len(want))
			require.True(t, bytes.Equal(want, got[128:]), "shuffle %s, memory %d", shuffle, memory)
		}
	}
}

// A change of the file that describes a shard, or its absence, is a change of the shard.
func TestADescriptionIsPartOfItsShard(t *testing.T) {
	dir := t.TempDir()
	writeMegatron(t, filepath.Join(dir, "a"), 3, 4)
	writeMegatron(t, filepath.Join(dir, "b"), 1)
	s := tablesSpec(t, dir, func(f *spec.Format) { f.Name = "tokens" })
	s.Order.Shuffle = spec.ShuffleNone
	records := func() uint64 { return open(t, s).current.catalog.Records() }
	require.Equal(t, uint64(3), records())
	bin, err := os.ReadFile(filepath.Join(dir, "a.bin"))
	require.NoError(t, err)
	times, err := os.Stat(filepath.Join(dir, "a.bin"))
	require.NoError(t, err)
	writeMegatron(t, filepath.Join(dir, "other"), 2, 2, 3)
	require.NoError(t, os.Rename(filepath.Join(dir, "other.idx"), filepath.Join(dir, "a.idx")))
	require.NoError(t, os.Remove(filepath.Join(dir, "other.bin")))
	require.Equal(t, uint64(4), records())
	require.Equal(t, uint64(4), records())
	now, err := os.Stat(filepath.Join(dir, "a.bin"))
	require.NoError(t, err)
	require.Equal(t, times.ModTime(), now.ModTime())
	require.Len(t, bin, 14)

	require.NoError(t, os.Rename(filepath.Join(dir, "a.idx"), filepath.Join(dir, "hidden")))
	_, err = Open(context.Background(), s, Options{})
	require.ErrorContains(t, err, "a.bin")
	require.ErrorContains(t, err, "--dtype")
	s.Format.Rows = spec.Rows{Pack: "2", Dtype: "u2"}
	require.Equal(t, uint64(3), records())
	require.NoError(t, os.Rename(filepath.Join(dir, "hidden"), filepath.Join(dir, "a.idx")))
	require.NoError(t, os.Chtimes(filepath.Join(dir, "a.idx"), time.Time{}, time.Unix(7, 0)))
	require.Equal(t, uint64(3), records())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.idx"), []byte("MMIDIDX"), 0o644))
	_, err = Open(context.Background(), s, Options{})
	require.ErrorContains(t, err, "a.bin")
	require.ErrorContains(t, err, "not an index of Megatron")
}

func TestIndexesOfOthersDescribeNoTokens(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.bin"), make([]byte, 64), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.idx"), []byte("0 512\n512 1024\n"), 0o644))
	_, err := Open(context.Background(), tablesSpec(t, dir, nil), Options{})
	require.ErrorContains(t, err, "holds no shards")
	s := tablesSpec(t, dir, nil)
	s.Grow.On, s.Format = true, spec.Format{Name: "tokens", Rows: spec.Rows{Pack: "4", Dtype: "u2"}, Remainder: spec.RemainderCorrupt}
	_, err = Open(context.Background(), s, Options{})
	require.ErrorContains(t, err, "--grow can't see")
}
