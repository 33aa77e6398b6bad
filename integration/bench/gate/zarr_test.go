package gate

import (
	"encoding/binary"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// The array is the same whatever its chunks and codecs are, and the loop cuts crops of it, so it
// measures all of the work.
func TestLoopCutsCropsOfGeneratedArray(t *testing.T) {
	z := spec.Zarr{Jitter: true}
	var err error
	z.Crop, err = spec.ParseDims("time=5,y=9,x=11")
	require.NoError(t, err)
	z.Stride, err = spec.ParseDims("time=3,y=4,x=5")
	require.NoError(t, err)
	for _, codec := range encode.Codecs {
		for _, chunk := range [][]int64{{4, 8, 8}, {3, 7, 16}} {
			for _, kind := range []string{"int16", "float32"} {
				m := MakeZarr{Dir: filepath.Join(t.TempDir(), "a"), Shape: []int64{13, 30, 41}, Object: []int64{chunk[0] * 2, chunk[1] * 3, chunk[2]}, Chunk: chunk, Codec: codec, DataType: kind, Seed: 5}
				made, err := m.Run(t.Context())
				require.NoError(t, err)
				require.EqualValues(t, 13*30*41*m.itemBytes(), made.DecodedBytes)
				l, err := openZarrLoop(m.Dir, z)
				require.NoError(t, err)
				requireCropsOf(t, l, m)
				l.close()
			}
		}
	}
}

func requireCropsOf(t *testing.T, l *zarrLoop, m MakeZarr) {
	t.Helper()
	whole := MakeZarr{Chunk: m.Shape, DataType: m.DataType, Seed: m.Seed}
	elements := make([]byte, m.Shape[0]*m.Shape[1]*m.Shape[2]*m.itemBytes())
	whole.fill([]int64{0, 0, 0}, elements)
	seen := map[uint32]bool{}
	for i := 0; i < len(elements); i += int(m.itemBytes()) {
		seen[number(elements[i:], m)] = true
	}
	require.Greater(t, len(seen), 100, "the elements differ")
	cropper := l.newCropper()
	defer cropper.decoder.Close()
	for ordinal := range l.cut.Total() {
		require.NoError(t, cropper.cropOf(ordinal, 3))
		at := cropper.crop.Origin
		i := 0
		for tt := range int64(5) {
			for y := range int64(9) {
				for x := range int64(11) {
					place := (((at[0]+tt)*m.Shape[1]+at[1]+y)*m.Shape[2] + at[2] + x) * m.itemBytes()
					require.Equal(t, number(elements[place:], m), number(cropper.record[i:], m), "crop %d at %v", ordinal, at)
					i += int(m.itemBytes())
				}
			}
		}
		require.Len(t, cropper.record, i)
	}
}

// number returns an element as a number that orders elements; all elements are positive.
func number(b []byte, m MakeZarr) uint32 {
	if m.DataType == "float32" {
		return uint32(math.Float32frombits(binary.LittleEndian.Uint32(b)) * 8)
	}
	return uint32(binary.LittleEndian.Uint16(b))
}

func TestImpossibleArraysAreRefused(t *testing.T) {
	good := MakeZarr{Shape: ZarrShape, Object: ZarrObject, Chunk: ZarrChunk, Codec: encode.None, DataType: "int16"}
	require.NoError(t, good.Validate())
	for want, edit := range map[string]func(m *MakeZarr){
		"shape, shard and chunk have 2, 3 and 3 edges": func(m *MakeZarr) { m.Shape = []int64{1, 2} },
		"multiples of those of chunks":                 func(m *MakeZarr) { m.Chunk = []int64{16, 64, 60} },
		"x: edges of the array (0)":                    func(m *MakeZarr) { m.Shape = []int64{1, 1, 0} },
		"GiB is too large":                             func(m *MakeZarr) { m.Shape = []int64{1 << 20, 1 << 20, 1 << 20} },
		`codec "brotli"`:                               func(m *MakeZarr) { m.Codec = "brotli" },
		`data type "int8"`:                             func(m *MakeZarr) { m.DataType = "int8" },
	} {
		m := good
		edit(&m)
		require.ErrorContains(t, m.Validate(), want)
	}
}
