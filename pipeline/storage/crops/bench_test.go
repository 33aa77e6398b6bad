package crops

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
	"github.com/lsiofs/lsiofs/pipeline/zarr/codec"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// satellite is an array like satellite images: 10 bits of waves and noise.
func satellite(c encode.Codec) encode.Array {
	return encode.Array{
		Shape: []int64{128, 1024, 1024}, Chunk: []int64{16, 64, 64}, Object: []int64{128, 512, 512}, Dims: []string{"time", "y", "x"},
		DataType: "int16", ItemBytes: 2, Codec: c,
	}
}

func writeSatellite(b *testing.B, dir string, a encode.Array) {
	noise := rand.New(rand.NewPCG(1, 2))
	require.NoError(b, a.Write(dir, func(place []int64, elements []byte) bool {
		for i := range len(elements) / 2 {
			y, x := place[1]*64+int64(i/64%64), place[2]*64+int64(i%64)
			binary.LittleEndian.PutUint16(elements[2*i:], uint16(400+y/4+x/8+noise.Int64N(24)))
		}
		return true
	}))
}

var satelliteCrops = spec.Zarr{
	Crop:   []spec.DimValue{{Dim: "time", Value: 24}, {Dim: "y", Value: 128}, {Dim: "x", Value: 128}},
	Stride: []spec.DimValue{{Dim: "time", Value: 12}, {Dim: "y", Value: 64}, {Dim: "x", Value: 64}}, Jitter: true,
}

// BenchmarkCrops reads crops of an array in the page cache: in random order, where each needs its
// own chunks, and in sequence, where neighbours share them. For comparison it runs a bare loop of
// the same decoders and copies on all cores.
func BenchmarkCrops(b *testing.B) {
	for _, c := range []encode.Codec{encode.None, encode.BloscLZ4, encode.BloscZstd} {
		dir := b.TempDir()
		writeSatellite(b, dir, satellite(c))
		s := Wrap(openLocal(b, dir), Config{Spec: satelliteCrops, Base: "a.zarr", MemoryBytes: 64 << 20})
		m := &made{Storage: s}
		m.list(b)
		crops := int64(s.cubes["a.zarr"].Cut.Total())
		b.Run(string(c)+"/random", func(b *testing.B) { m.readCrops(b, func(i int64) int64 { return i * 7919 % crops }) })
		b.Run(string(c)+"/near", func(b *testing.B) { m.readCrops(b, func(i int64) int64 { return i % crops }) })
		b.Run(string(c)+"/bare", func(b *testing.B) { m.bare(b, dir) })
		require.NoError(b, s.Close())
		require.NoError(b, os.RemoveAll(dir))
	}
}

// readCrops reads b.N crops, 32 at a time, with two readers.
func (m *made) readCrops(b *testing.B, of func(i int64) int64) {
	c := m.cubes["a.zarr"]
	b.SetBytes(c.row.Bytes)
	b.ReportAllocs()
	var next atomic.Int64
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			reads := make([]*storage.Read, 32)
			var ended sync.WaitGroup
			for i := range reads {
				reads[i] = &storage.Read{Object: m.object, Buf: make([]byte, c.row.Bytes), Done: func(err error) {
					if err != nil {
						b.Error(err)
					}
					ended.Done()
				}}
			}
			for {
				from := next.Add(int64(len(reads))) - int64(len(reads))
				if from >= int64(b.N) {
					return
				}
				n := min(int64(len(reads)), int64(b.N)-from)
				for i := range n {
					reads[i].OffsetBytes = int64(len(c.header)) + of(from+i)*c.row.Bytes
				}
				ended.Add(int(n))
				m.Submit(reads[:n])
				ended.Wait()
			}
		})
	}
	readers.Wait()
}

// bare only decodes and copies the chunks of b.N random crops, on all cores.
func (m *made) bare(b *testing.B, dir string) {
	c := m.cubes["a.zarr"]
	f := c.fields[0]
	objects := map[int64][]byte{}
	places := map[int64][]zarr.Place{}
	for n := range f.objects.Total() {
		o, _ := f.Object(n)
		content, err := os.ReadFile(filepath.Join(dir, o.Path))
		require.NoError(b, err)
		level := f.Array.Levels[0]
		at, err := level.IndexOffset(o.SizeBytes)
		require.NoError(b, err)
		places[n] = make([]zarr.Place, level.Entries())
		require.NoError(b, level.ParseIndex(places[n], content[at:at+level.IndexBytes()], o.SizeBytes, f.Array.Chain.Sizes(f.chunkBytes)[0]))
		objects[n] = content
	}
	b.SetBytes(c.row.Bytes)
	b.ResetTimer()
	var next atomic.Int64
	var cores sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		cores.Go(func() {
			d := codec.NewDecoder()
			defer d.Close()
			spot, crop := c.Cut.NewSpot(), c.Cut.NewCrop(0)
			j := zarr.NewJitter(0, 0, "a.zarr")
			chunk, out, at := make([]byte, f.chunkBytes), make([]byte, c.row.Bytes), make([]int64, 3)
			for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
				c.Cut.Locate(spot, uint64(i*7919)%c.Cut.Total(), &j)
				c.Cut.Place(0, crop, spot)
				_ = crop.Parts(f.Array.Shape, f.Array.Chunk, func(p *zarr.Part) error {
					f.Array.ObjectOf(at, p.Chunk)
					n := f.objects.Number(at)
					x := places[n][f.Array.EntryOf(0, p.Chunk)]
					stored := objects[n][x.OffsetBytes:][:x.SizeBytes]
					if f.Array.Chain.Raw() {
						f.copier.Copy(zarr.Window{Bytes: out}, zarr.Window{Bytes: stored}, p)
						return nil
					}
					if err := d.Decode(chunk, stored, f.Array.Chain); err != nil {
						b.Error(err)
					}
					f.copier.Copy(zarr.Window{Bytes: out}, zarr.Window{Bytes: chunk}, p)
					return nil
				})
			}
		})
	}
	cores.Wait()
}
