package crops

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// ranges counts how often each range of a storage is read.
type ranges struct {
	storage.Storage
	mu   sync.Mutex
	read map[storage.Block]int
}

func (s *ranges) Caps() storage.Caps { return storage.Caps{} }

func (s *ranges) Submit(reads []*storage.Read) {
	s.mu.Lock()
	for _, r := range reads {
		s.read[storage.Block{Object: r.Object, OffsetBytes: r.OffsetBytes, SizeBytes: int64(len(r.Buf))}]++
	}
	s.mu.Unlock()
	s.Storage.Submit(reads)
}

// auditOf audits the cube, and returns the damages and the number of bytes decoded and read.
func (m *made) auditOf(t *testing.T) (damages []string, decoded, bytes int64) {
	decoded, err := m.Audit(context.Background(), m.object, func(reason string) { damages = append(damages, reason) }, func(n int64) { bytes += n })
	require.NoError(t, err)
	return damages, decoded, bytes
}

func TestAuditReadsEachChunkOnceIncludingUnused(t *testing.T) {
	for _, object := range [][]int64{{12, 40, 64}, {4, 8, 16}} {
		a := small
		a.Codec, a.Object = encode.BloscZstd, object
		m := &made{dir: t.TempDir(), array: a}
		m.absent = write(t, m.dir, a)
		under := &ranges{Storage: openLocal(t, m.dir), read: map[storage.Block]int{}}
		m.Storage = Wrap(under, Config{Spec: spec.Zarr{Crop: []spec.DimValue{{Value: 1}, {Value: 1}, {Value: 1}}, Select: []spec.Selection{{Dim: "t", Begin: 0, End: 1}}}, Base: "a.zarr"})
		m.list(t)
		damages, decoded, bytes := m.auditOf(t)
		require.Empty(t, damages)
		f := m.cubes["a.zarr"].fields[0]
		chunks := f.chunks.Total() - int64(len(m.absent))
		require.Equal(t, chunks*f.chunkBytes, decoded)
		require.Positive(t, bytes)
		for r, n := range under.read {
			require.Equal(t, 1, n, "%v", r)
		}
		if len(f.Array.Levels) == 0 {
			require.Len(t, under.read, int(chunks)+1, "and the document, when it was listed")
		}
		require.NoError(t, m.Storage.Close())
	}
}

func TestAuditNamesEachDamage(t *testing.T) {
	a := small
	a.Codec, a.Object = encode.BloscLZ4, a.Chunk
	m := open(t, a, smallCrops, 1<<20)
	f := m.cubes["a.zarr"].fields[0]
	var objects []storage.Object
	f.Each(func(n int64) bool {
		o, _ := f.Object(n)
		objects = append(objects, o)
		return true
	})
	require.Greater(t, len(objects), 10)
	full := func(i int) string { return filepath.Join(m.dir, objects[i].Path) }
	require.NoError(t, os.Remove(full(1)))
	b, err := os.ReadFile(full(4))
	require.NoError(t, err)
	w, err := os.OpenFile(full(4), os.O_WRONLY, 0) // the same size, a new modification time
	require.NoError(t, err)
	_, err = w.WriteAt(make([]byte, len(b)-20), 20)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	var damages []string
	_, err = m.Audit(context.Background(), m.object, func(reason string) { damages = append(damages, reason) }, func(int64) {})
	require.Empty(t, damages, "what can't be read is no damage")
	require.ErrorIs(t, err, storage.ErrChanged)
	require.ErrorContains(t, err, objects[1].Path+": chunk (")
	require.ErrorContains(t, err, objects[4].Path+": chunk (")

	m.list(t) // in their present version
	damages, _, _ = m.auditOf(t)
	require.Len(t, damages, 1)
	require.Contains(t, damages[0], objects[4].Path+": chunk (")
	require.Contains(t, damages[0], "blosc")

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = m.Audit(ctx, m.object, func(string) {}, func(int64) {})
	require.ErrorIs(t, err, context.Canceled)
}
