package crops

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/listing"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// holding is a worker of TestBuffersNeverExceedPool, with the actual sizes of its buffers.
type holding struct {
	*buffers
	is    sizes
	busy  bool
	taken int64
	alone bool
}

// Whatever jobs there are and whenever they end, all buffers together fit the room, and a job that
// needs more than the pool has the pool to itself.
func TestBuffersNeverExceedPool(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kib := func(name string, least, most int64) int64 { return rapid.Int64Range(least, most).Draw(t, name) << 10 }
		workers := rapid.IntRange(1, 9).Draw(t, "workers")
		total := kib("total", 16<<10, 200<<10)
		usual := kib("usual", 1, 40<<10)
		most := min(usual+kib("longer", 0, 40<<10), total)
		usual = min(usual, most)
		r := newRoom(total, workers)
		described := kib("described", 0, 200<<10)
		bound := r.share(usual, most, described)
		left := max(total-described, leastRoom)
		require.LessOrEqual(t, bound, left)
		if left >= 2*most {
			require.LessOrEqual(t, bound, left/2)
		}
		require.GreaterOrEqual(t, bound, min(most, left))
		each := r.eachBytes.Load()
		all := make([]*holding, workers)
		for i := range all {
			all[i] = &holding{buffers: newBuffers()}
			defer all[i].close()
		}
		w := &waiter{wake: func() {}}
		var waits *sizes // the job that there was no room for
		running := 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			h := all[rapid.IntRange(0, workers-1).Draw(t, "worker")]
			if h.busy {
				h.left(each, h.taken)
				if h.held == (sizes{}) {
					h.is = sizes{}
				}
				if h.taken > 0 {
					r.give(h.taken)
					running--
				}
				h.busy, h.taken, h.alone = false, 0, false
				continue
			}
			job := waits
			if job == nil {
				n := min(rapid.SampledFrom([]int64{usual, usual / 3, most, most}).Draw(t, "size"), left) // jobs that fit what is left
				part := rapid.Int64Range(0, n).Draw(t, "stored")
				job = &sizes{stored: part, chunk: n - part}
			}
			taken := max(job.sum()-each, 0)
			if taken > 0 {
				if !r.try(taken, w) {
					require.Positive(t, running, "somebody ends, and then there is room")
					waits = job
					continue
				}
				waits, running = nil, running+1
			}
			before := h.held
			h.fit(*job, each, taken)
			if h.held != before.with(*job) {
				h.is = sizes{} // the buffers were freed
			}
			h.is, h.busy, h.taken = h.is.with(*job), true, taken
			require.LessOrEqual(t, h.is.sum(), each+taken)
			sum := int64(0)
			for _, x := range all {
				sum += x.is.sum()
			}
			require.LessOrEqual(t, sum, bound)
		}
	})
}

func TestPoolIsSharedByNeedOfJobs(t *testing.T) {
	r := newRoom(100<<20, 8)
	require.EqualValues(t, 50<<20, r.share(30<<20, 30<<20, 0))
	require.EqualValues(t, 60<<20, r.share(60<<20, 60<<20, 0), "more than half, for one")
	require.EqualValues(t, 8<<20, r.share(1<<20, 1<<20, 0), "enough for all")
	require.EqualValues(t, 1<<20, r.eachBytes.Load(), "and none asks")
	require.EqualValues(t, 10<<20, r.share(1<<20, 3<<20, 0), "and for one that is longer than usual")
	require.EqualValues(t, 1<<20, r.eachBytes.Load(), "and of the others none asks")
	require.EqualValues(t, 20<<20, r.share(10<<20, 10<<20, 60<<20), "half of what descriptions leave")
	require.EqualValues(t, 16<<20, r.share(20<<20, 20<<20, 100<<20), "the least")
	require.EqualValues(t, math.MaxInt64, newRoom(0, 8).eachBytes.Load(), "without a bound nobody asks")
}

func TestMetadataReducesDecodingMemory(t *testing.T) {
	r := newRoom(100<<20, 8)
	require.NoError(t, r.fits(50<<20, "decoding", smallerChunks))
	r.share(10<<20, 60<<20, 60<<20)
	require.NoError(t, r.fits(40<<20, "decoding", smallerChunks))
	require.EqualError(t, r.fits(50<<20, "decoding", smallerChunks), "decoding takes 50 MiB of memory, and what describes the dataset leaves 40 MiB of half of --memory: use --memory 220MiB or more, or write the array in smaller chunks")
	require.EqualError(t, r.fits(101<<20, "decoding", smallerChunks), "decoding takes 101 MiB of memory, and half of --memory is 100 MiB: use --memory 202MiB or more, or write the array in smaller chunks")
}

// Blocks of blosc are as long as their decoded bytes, which a further codec may shrink.
func TestBlocksLongerThanTheirChunkAreCounted(t *testing.T) {
	dir := t.TempDir()
	document(t, dir, 2<<20, 1<<20, map[string]any{"filters": []any{map[string]any{"id": "zlib"}}, "compressor": map[string]any{"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 0}})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "0"), []byte("not read!"), 0o644))
	s, err := listErr(t, dir, 64)
	require.NoError(t, err)
	usual := s.cubes["a.zarr"].fields[0].usual
	require.Equal(t, sizes{stored: 9, chunk: 1 << 20, first: zarr.Bound(1 << 20), block: zarr.Bound(1 << 20)}, usual)
}

func TestJobsWaitForMemoryInOrder(t *testing.T) {
	r := newRoom(100<<20, 8)
	r.share(30<<20, 30<<20, 0)
	all := make([]int64, 0, 8)
	var mu sync.Mutex
	var group sync.WaitGroup
	for n := range 8 {
		group.Go(func() {
			for range 100 {
				size := int64(n+1) << 22
				r.take(size)
				mu.Lock()
				all = append(all, size)
				sum := int64(0)
				for _, x := range all {
					sum += x
				}
				assert.True(t, len(all) == 1 || sum <= r.poolBytes)
				mu.Unlock()
				mu.Lock()
				all = slices.Delete(all, slices.Index(all, size), slices.Index(all, size)+1)
				mu.Unlock()
				r.give(size)
			}
		})
	}
	group.Wait()
	require.Zero(t, r.usedBytes)
	require.Empty(t, r.line)
	first, second := &waiter{func() {}}, &waiter{func() {}}
	require.True(t, r.try(r.poolBytes, first))
	require.False(t, r.try(r.poolBytes, first))
	require.False(t, r.try(1, second))
	r.give(1)
	require.False(t, r.try(1, second), "there is room, but another one waits for longer")
	r.give(r.poolBytes - 1)
	require.False(t, r.try(1, second))
	require.True(t, r.try(r.poolBytes-1, first))
	require.True(t, r.try(1, second))
}

// next leaves jobs that there is no room for in their order, and no job that needs room overtakes
// them.
func TestBlockedJobIsOvertakenOnlyByJobsWithoutMemory(t *testing.T) {
	s := &Storage{room: newRoom(100<<20, 4), maxInFlight: 1 << 40, waiting: map[key]*task{}}
	s.some.L = &s.mu
	s.inLine.wake = func() {}
	s.room.share(30<<20, 30<<20, 0)
	each := s.room.eachBytes.Load()
	require.Less(t, each, int64(20<<20))
	small := &field{Field: &listing.Field{Array: &zarr.Array{}}, usual: sizes{chunk: each}}
	large := &field{Field: &listing.Field{Array: &zarr.Array{}}, usual: sizes{chunk: 30 << 20}}
	came := func(f *field, n int64) job { return job{came: &task{key: key{field: f, chunk: n}}} }
	next := func() job {
		j, ok := s.next(nil)
		require.True(t, ok)
		return j
	}
	s.jobs.push(came(large, 0))
	running := next()
	require.Positive(t, running.taken)
	s.jobs.push(came(large, 1))
	s.jobs.push(came(large, 2))
	s.jobs.push(came(small, 3))
	s.jobs.push(job{reading: &reading{}})
	for n, f := range []*field{large, small, large, small} {
		s.tasks.push(&task{key: key{field: f, chunk: int64(10 + n)}, object: int64(n)})
	}
	require.EqualValues(t, 3, next().came.chunk)
	require.NotNil(t, next().reading)
	require.EqualValues(t, 11, next().group[0].chunk)
	require.EqualValues(t, 13, next().group[0].chunk)
	s.closed = true // so that next returns if there is no job
	_, ok := s.next(nil)
	require.False(t, ok)
	for _, want := range []int64{1, 2, 10, 12} {
		s.room.give(running.taken)
		if running = next(); running.came != nil {
			require.Equal(t, want, running.came.chunk)
		} else {
			require.Equal(t, want, running.group[0].chunk)
		}
		_, ok := s.next(nil)
		require.False(t, ok, "one at a time")
	}
}

// The workers' shares are so small that every chunk asks for room.
func TestCropsAreUnchangedIfChunksWaitForMemory(t *testing.T) {
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
			m := &made{dir: dir, array: a, absent: absent, Storage: Wrap(under, Config{Spec: smallCrops, Base: "a.zarr", MemoryBytes: 1 << 20})}
			closed := sync.OnceValue(m.Storage.Close)
			t.Cleanup(func() { closed() })
			m.list(t)
			m.room.mu.Lock()
			m.room.poolBytes = 8 << 10
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

// document writes the document of a one-dimensional version 2 array.
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
	s := Wrap(openLocal(t, dir), Config{Spec: spec.Zarr{Crop: []spec.DimValue{{Value: crop}}}, Base: "a.zarr", MemoryBytes: 32 << 20})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s, s.List(t.Context(), func(string, bool) bool { return true }, func(storage.Object) error { return nil })
}

func TestChunksBeyondMemoryAreRefusedBeforeDecoding(t *testing.T) {
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

// After an index was read, the memory for it is not held in addition to what is decoded next.
func TestIndexReadBufferIsReleased(t *testing.T) {
	b := newBuffers()
	defer b.close()
	for _, taken := range []int64{0, 8 << 20} {
		b.fit(sizes{stored: 1 << 10, chunk: 1 << 10, index: 8 << 20}, 16<<20-taken, taken)
		_, err := b.stored.room(4 << 20)
		require.NoError(t, err)
		b.left(16<<20-taken, taken)
		require.LessOrEqual(t, int64(len(b.stored.mem)), b.held.stored)
	}
	_, err := b.stored.room(1 << 10)
	require.NoError(t, err)
	b.held.stored = 1 << 10
	b.left(16<<20, 0)
	require.Len(t, b.stored.mem, 1<<10, "what is as large as usual is kept")
}

func TestIndexBeyondMemoryIsRefused(t *testing.T) {
	const bytes, zstd = `{"name": "bytes"}`, `{"name": "bytes"}, {"name": "zstd", "configuration": {"level": 1, "checksum": false}}`
	for _, c := range []struct {
		entries, chunk int64
		codecs, want   string
	}{
		{1 << 19, 1, bytes, ""},
		{1 << 20, 1, bytes, "the index of a shard of the array, of 1048576 chunks, takes 40 MiB of memory, and half of --memory is 32 MiB: use --memory 80MiB or more, or write the array with larger chunks or smaller shards"},
		{1 << 19, 11 << 20, zstd, ""},
		{1 << 19, 13 << 20, zstd, "decoding a chunk of the array (13 MiB, stored in 0 B) next to an index of 20 MiB takes 33 MiB of memory, and half of --memory is 32 MiB: use --memory 66MiB or more, or write the array in smaller chunks"},
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "zarr.json"), fmt.Appendf(nil, `{"zarr_format": 3, "node_type": "array", "shape": [%d], "data_type": "uint8",
			"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [%[1]d]}}, "chunk_key_encoding": {"name": "default"}, "fill_value": 7,
			"codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [%d], "codecs": [%s], "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]}}]}`, c.entries*c.chunk, c.chunk, c.codecs), 0o644))
		_, err := listErr(t, dir, max(64, c.chunk))
		if c.want != "" {
			require.ErrorContains(t, err, c.want)
		} else {
			require.NoError(t, err)
		}
	}
}
