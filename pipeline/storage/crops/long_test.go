package crops

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// steppy is an array of long chunks whose crops have few steps and so want few blocks: a chunk has
// 57 KiB in 113 blocks.
var steppy = encode.Array{
	Shape: []int64{390, 9, 40}, Chunk: []int64{200, 9, 16}, Object: []int64{400, 9, 32}, Dims: []string{"t", "y", "x"},
	DataType: "uint16", ItemBytes: 2, Fill: 77, Codec: encode.BloscLZ4, BlockBytes: 512,
}

var steppyCrops = spec.Zarr{
	Crop:   []spec.DimValue{{Dim: "t", Value: 3}, {Dim: "y", Value: 7}, {Dim: "x", Value: 7}},
	Stride: []spec.DimValue{{Dim: "t", Value: 4}, {Dim: "y", Value: 2}, {Dim: "x", Value: 9}},
}

// notInMemory hides that a storage can be read from memory.
type notInMemory struct{ storage.Storage }

func (s notInMemory) Caps() storage.Caps {
	c := s.Storage.Caps()
	c.OpenResident = nil
	return c
}

// openLong opens an array whose chunks are all long, readable from memory or not.
func openLong(t testing.TB, a encode.Array, z spec.Zarr, memory int64, resident bool) *made {
	m := &made{dir: t.TempDir(), array: a}
	m.absent = write(t, m.dir, a)
	under := openLocal(t, m.dir)
	if !resident {
		under = notInMemory{under}
	}
	m.Storage = Wrap(under, Config{Spec: z, Base: "a.zarr", MemoryBytes: memory, Seed: 5})
	m.longInMemory, m.longBelow = 1, 1
	t.Cleanup(func() { require.NoError(t, m.Storage.Close()) })
	m.list(t)
	return m
}

// ranges returns all records of a storage in random order.
func (m *made) ranges(seed uint64) []storage.Block {
	c := m.cubes["a.zarr"]
	var list []storage.Block
	for _, n := range rand.New(rand.NewPCG(seed, 4)).Perm(int(c.Cut.Total())) {
		list = append(list, storage.Block{Object: m.object, OffsetBytes: int64(len(c.header)) + int64(n)*c.row.Bytes, SizeBytes: c.row.Bytes})
	}
	return list
}

func TestCropsOfLongChunksDoNotDependOnMemoryOrExpectations(t *testing.T) {
	steps := steppyCrops
	steps.Step = []spec.DimValue{{Dim: "t", Value: 2}, {Dim: "x", Value: 2}}
	stored := steppy
	stored.BlockBytes = 64 << 10 // one block
	unsharded := steppy
	unsharded.Object, unsharded.Codec = unsharded.Chunk, encode.BloscZstd
	memories := []int64{9 << 10, 0, 1 << 20}
	if testing.Short() {
		memories = memories[:1]
	}
	for name, c := range map[string]struct {
		a encode.Array
		z spec.Zarr
	}{"lz4": {steppy, steppyCrops}, "steps": {steppy, steps}, "one block": {stored, steppyCrops}, "unsharded zstd": {unsharded, steppyCrops}} {
		for _, memory := range memories {
			for _, resident := range []bool{false, true} {
				t.Run(fmt.Sprint(name, ", ", memory, ", ", resident), func(t *testing.T) {
					m := openLong(t, c.a, c.z, memory, resident)
					want := m.want()
					all := m.ranges(uint64(memory))
					all = all[:min(len(all), 200)]
					require.Equal(t, len(all), m.noted(1, all))
					for i, r := range all {
						m.Passed(1, all[i:i+1])
						if i%2 == 1 {
							continue // it is not read after all
						}
						got, err := m.read(r.OffsetBytes, r.SizeBytes, 0)
						require.NoError(t, err)
						require.True(t, bytes.Equal(want[r.OffsetBytes:][:r.SizeBytes], got))
						require.LessOrEqual(t, m.Stats().HeldBytes, memory)
					}
					m.Drop(1)
					require.Zero(t, m.cells.Stats().Wanted)
					require.Zero(t, m.future.chunks)
					got, err := m.read(0, m.object.SizeBytes, 0)
					require.NoError(t, err)
					require.True(t, bytes.Equal(want, got))
					rapid.Check(t, func(t *rapid.T) {
						n := rapid.Int64Range(1, 3*m.cubes["a.zarr"].row.Bytes).Draw(t, "n")
						off := rapid.Int64Range(0, m.object.SizeBytes-n).Draw(t, "off")
						got, err := m.read(off, n, 0)
						require.NoError(t, err)
						require.True(t, bytes.Equal(want[off:off+n], got), "[%d, %d)", off, off+n)
					})
				})
			}
		}
	}
}

// Blocks that are wanted again are found in the cache, even if they were expected before the block
// size was known.
func TestEachBlockIsDecodedOnceIfMemoryAndFutureAllow(t *testing.T) {
	for _, resident := range []bool{false, true} {
		m := openLong(t, steppy, steppyCrops, 1<<20, resident)
		want, all := m.want(), m.ranges(7)
		require.Equal(t, len(all), m.noted(1, all))
		for i, r := range all {
			m.Passed(1, all[i:i+1])
			got, err := m.read(r.OffsetBytes, r.SizeBytes, 0)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want[r.OffsetBytes:][:r.SizeBytes], got))
		}
		blocks := uint64(6-len(m.absent)) * 113
		require.LessOrEqual(t, m.Stats().Blocks, blocks)
		require.Greater(t, m.Stats().Blocks, blocks/2)
		require.Greater(t, m.Stats().Found, 2*blocks)
	}
}

// If few blocks of a chunk are wanted, little more than these is read.
func TestLongChunkReadsLittleMoreThanHeadAndWantedBlocks(t *testing.T) {
	for _, resident := range []bool{false, true} {
		m := openLong(t, steppy, steppyCrops, 0, resident)
		all := m.ranges(1)[:50]
		_, err := m.read(all[0].OffsetBytes, all[0].SizeBytes, 0)
		require.NoError(t, err)
		before := m.Stats()
		for _, r := range all {
			_, err := m.read(r.OffsetBytes, r.SizeBytes, 0)
			require.NoError(t, err)
		}
		after := m.Stats()
		chunks, read := after.Decoded-before.Decoded, after.StoredBytes-before.StoredBytes
		require.Positive(t, chunks)
		head, blocks, gaps := uint64(16+4*113), uint64(4*(512+8)), uint64(0)
		require.LessOrEqual(t, read, chunks*(head+blocks+gaps), "of some 50 KiB each")
	}
}

func TestLongChunkWithDamagedBlocksIsNamed(t *testing.T) {
	a := steppy
	a.Object = a.Chunk
	for _, resident := range []bool{false, true} {
		for name, damage := range map[string]func(b []byte){
			"size":   func(b []byte) { b[5]++ },
			"start":  func(b []byte) { b[16+3] = 0x7f },
			"starts": func(b []byte) { copy(b[16:], bytes.Repeat([]byte{0xff}, 4*113)) },
			"blocks": func(b []byte) { clear(b[16+4*113:]) },
		} {
			m := openLong(t, a, steppyCrops, 1<<20, resident)
			path := filepath.Join(m.dir, "c/0/0/0")
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			damage(b)
			require.NoError(t, os.WriteFile(path, b, 0o644))
			m.list(t)
			_, err = m.read(0, m.object.SizeBytes, 0)
			require.ErrorContains(t, err, "c/0/0/0: chunk (0,0,0) at [0, ", name)
			require.ErrorContains(t, err, "blosc: ")
		}
	}
}

// If the object of a long chunk is rewritten between the reads of its head and of its blocks, the
// result is an error or the old bytes.
func TestLongChunkOfRewrittenObjectNeverMixesVersions(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	for _, resident := range []bool{false, true} {
		for stop := 0; ; stop++ {
			m := &made{dir: t.TempDir(), array: steppy}
			m.absent = write(t, m.dir, steppy)
			other := steppy
			other.Codec = encode.BloscZstd
			dir := t.TempDir()
			write(t, dir, other)
			under := &rewriting{Storage: openLocal(t, m.dir), stop: -1, from: dir, to: m.dir}
			m.Storage = Wrap(under, Config{Spec: steppyCrops, Base: "a.zarr", MemoryBytes: 64 << 10})
			if m.longInMemory, m.longBelow = 1, 1; !resident {
				m.caps.OpenResident = nil
			}
			m.list(t)
			under.asked, under.stop = 0, stop // the documents have been read
			want, failed := m.want(), 0
			for _, r := range m.ranges(3)[:40] {
				got, err := m.read(r.OffsetBytes, r.SizeBytes, 0)
				if err != nil {
					require.ErrorIs(t, err, storage.ErrChanged)
					failed++
					continue
				}
				require.True(t, bytes.Equal(want[r.OffsetBytes:][:r.SizeBytes], got))
			}
			require.NoError(t, m.Storage.Close())
			require.Equal(t, under.done, failed > 0, "resident %v, %d", resident, stop)
			if !under.done || stop == 5 {
				require.Greater(t, stop, 3)
				break
			}
		}
	}
}

// rewriting is a storage whose objects are overwritten before a read or a lookup in memory.
type rewriting struct {
	storage.Storage
	from, to string

	mu          sync.Mutex
	stop, asked int
	done        bool
}

func (s *rewriting) next() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked++; s.asked-1 != s.stop {
		return
	}
	s.done = true
	for _, name := range []string{"c/0/0/0", "c/0/0/1"} {
		b, err := os.ReadFile(filepath.Join(s.from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(s.to, name), b, 0o644)
		}
		if err != nil {
			panic(err)
		}
	}
}

func (s *rewriting) Submit(reads []*storage.Read) {
	for _, r := range reads {
		s.next()
		came := make(chan error, 1)
		s.Storage.Submit([]*storage.Read{{Object: r.Object, OffsetBytes: r.OffsetBytes, Buf: r.Buf, Done: func(err error) { came <- err }}})
		r.Done(<-came)
	}
}

func (s *rewriting) Caps() storage.Caps { return storage.Caps{OpenResident: s.OpenResident} }

func (s *rewriting) OpenResident(o storage.Object) (storage.Resident, error) {
	r, err := s.Storage.Caps().OpenResident(o)
	if err != nil || r == nil {
		return nil, err
	}
	return &rewritten{r, s}, nil
}

type rewritten struct {
	storage.Resident
	of *rewriting
}

func (r *rewritten) ReadAt(p []byte, off int64) bool {
	r.of.next()
	return r.Resident.ReadAt(p, off)
}
