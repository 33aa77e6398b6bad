package cubes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

func TestWhatIsDecodedAtATimeNeverExceedsTheRoom(t *testing.T) {
	r := newRoom(100<<20, 8)
	require.EqualValues(t, 50<<20, r.share(30<<20, 0))
	var under, most atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				taken := r.take(20 << 20)
				if now := under.Add(taken); now > most.Load() {
					most.Store(now)
				}
				under.Add(-taken)
				r.give(taken)
			}
		})
	}
	all.Wait()
	require.LessOrEqual(t, most.Load(), int64(50<<20))
	require.Zero(t, r.usedBytes)
	require.EqualValues(t, 60<<20, r.take(60<<20), "what is larger is decoded alone")
	r.give(60 << 20)
	require.EqualValues(t, 60<<20, r.share(60<<20, 0), "more than half, for one")
	require.EqualValues(t, 8<<20, r.share(1<<20, 0), "enough for all")
	require.EqualValues(t, 20<<20, r.share(10<<20, 60<<20), "half of what descriptions leave")
	require.EqualValues(t, 16<<20, r.share(20<<20, 100<<20), "the least")
	require.Zero(t, r.take(1<<20), "ordinary bricks wait for nothing")
}

// The workers' shares are so small that every brick asks for room.
func TestCropsAreTheSameWhereBricksHaveToWaitForRoom(t *testing.T) {
	for _, codec := range []encode.Codec{encode.Zstd, encode.BloscLZ4} {
		a := small
		a.Codec = codec
		for _, resident := range []bool{true, false} {
			dir := t.TempDir()
			absent := write(t, dir, a)
			under := openLocal(t, dir)
			if !resident {
				under = notInMemory{under}
			}
			m := &made{dir: dir, array: a, absent: absent, Storage: Over(under, Config{Spec: smallCrops, Base: "a.zarr", MemoryBytes: 1 << 20})}
			closed := sync.OnceValue(m.Storage.Close)
			t.Cleanup(func() { closed() })
			m.list(t)
			m.room.mu.Lock()
			m.room.mostBytes = 8 << 10
			m.room.mu.Unlock()
			m.room.eachBytes.Store(1)
			whole, err := m.read(0, m.object.SizeBytes, 0)
			require.NoError(t, err)
			require.True(t, bytes.Equal(m.want(), whole), "%s, resident: %v", codec, resident)
			require.NoError(t, closed()) // a worker gives its room back after it has answered
			require.Zero(t, m.room.usedBytes)
		}
	}
}

// document is that of an array of one dimension, of version 2.
func document(t *testing.T, dir string, shape, chunk int64, more map[string]any) {
	t.Helper()
	d := map[string]any{"zarr_format": 2, "shape": []int64{shape}, "chunks": []int64{chunk}, "dtype": "|u1", "compressor": map[string]any{"id": "zlib"}, "fill_value": 0, "order": "C", "filters": nil}
	for name, value := range more {
		d[name] = value
	}
	b, err := json.Marshal(d)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".zarray"), b, 0o644))
}

func listErr(t *testing.T, dir string, crop int64) (*Storage, error) {
	s := Over(openLocal(t, dir), Config{Spec: spec.Zarr{Crop: []spec.DimValue{{Value: crop}}}, Base: "a.zarr", MemoryBytes: 32 << 20})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s, s.List(t.Context(), func(string, bool) bool { return true }, func(storage.Object) error { return nil })
}

func TestChunksThatMemoryCannotHoldAreRefusedBeforeTheyAreDecoded(t *testing.T) {
	for name, c := range map[string]struct {
		chunk int64
		more  map[string]any
		want  string
	}{
		"a large chunk": {64 << 20, nil,
			"decoding a chunk of the array (64 MiB, stored in 9 B) takes 64 MiB of memory, and half of --memory is 32 MiB: use --memory 130MiB or more, or write the array in smaller chunks"},
		"two codecs, and what is between them": {20 << 20, map[string]any{"filters": []any{map[string]any{"id": "zlib"}}}, "and half of --memory is 32 MiB"},
		"one that fits":                        {20 << 20, nil, ""},
		"a long chunk that is stored as it is, of which crops have little": {1 << 30, map[string]any{"compressor": nil}, ""},
	} {
		dir := t.TempDir()
		document(t, dir, 2*c.chunk, c.chunk, c.more)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "0"), []byte("not read!"), 0o644))
		_, err := listErr(t, dir, 1024)
		if c.want == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.want, name)
		}
	}
}

func TestAnIndexThatMemoryCannotHoldIsRefused(t *testing.T) {
	for entries, refused := range map[int64]bool{1 << 19: false, 1 << 20: true} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "zarr.json"), fmt.Appendf(nil, `{"zarr_format": 3, "node_type": "array", "shape": [%d], "data_type": "uint8",
			"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [%[1]d]}}, "chunk_key_encoding": {"name": "default"}, "fill_value": 7,
			"codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [1], "codecs": [{"name": "bytes"}], "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]}}]}`, entries), 0o644))
		_, err := listErr(t, dir, 64)
		if refused {
			require.ErrorContains(t, err, "the index of a shard of the array, of 1048576 chunks, takes 40 MiB of memory, and half of --memory is 32 MiB: use --memory 80MiB or more")
		} else {
			require.NoError(t, err)
		}
	}
}
