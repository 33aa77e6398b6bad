package codec

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// chunk is a chunk made by numcodecs; see testdata/make.py.
type chunk struct {
	name            string
	chain           zarr.Chain
	decoded, stored []byte
}

func chunks(t testing.TB) []chunk {
	text, err := os.ReadFile("testdata/bricks.txt")
	require.NoError(t, err)
	var list []chunk
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		require.Len(t, f, 4)
		doc := fmt.Sprintf(`{"zarr_format": 2, "shape": [300], "chunks": [300], "dtype": %q, "fill_value": 0, "order": "C", %s}`, f[1], f[0][1:len(f[0])-1])
		a, err := zarr.ParseV2(f[0], []byte(doc), nil)
		require.NoError(t, err)
		b := chunk{name: f[0] + f[1], chain: a.Chain}
		b.decoded, err = base64.StdEncoding.DecodeString(f[2])
		require.NoError(t, err)
		b.stored, err = base64.StdEncoding.DecodeString(f[3])
		require.NoError(t, err)
		require.EqualValues(t, a.ChunkBytes(), len(b.decoded))
		list = append(list, b)
	}
	require.Greater(t, len(list), 20)
	return list
}

func TestNumcodecsChunks(t *testing.T) {
	d := NewDecoder()
	defer d.Close()
	for _, b := range chunks(t) {
		dst := make([]byte, len(b.decoded))
		before := bytes.Clone(b.stored)
		require.NoError(t, d.Decode(dst, b.stored, b.chain), b.name)
		require.Equal(t, b.decoded, dst, b.name)
		require.Equal(t, before, b.stored)
		// If all sizes are known, every missing or extra byte is noticed, and so is a truncated
		// frame.
		require.Error(t, d.Decode(dst, b.stored[:len(b.stored)-1], b.chain), b.name)
		require.Error(t, d.Decode(make([]byte, len(dst)+8), b.stored, b.chain), b.name)
		require.Error(t, d.Decode(make([]byte, len(dst)-8), b.stored, b.chain), b.name)
		require.Error(t, d.Decode(dst, nil, b.chain), b.name)
	}
}

func TestDamageNeverPanics(t *testing.T) {
	list := chunks(t)
	d := NewDecoder()
	defer d.Close()
	rapid.Check(t, func(t *rapid.T) {
		b := list[rapid.IntRange(0, len(list)-1).Draw(t, "chunk")]
		stored := bytes.Clone(b.stored)
		for range rapid.IntRange(1, 4).Draw(t, "damages") {
			stored[rapid.IntRange(0, len(stored)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		dst := make([]byte, len(b.decoded)+8)
		_ = d.Decode(dst[:len(b.decoded)], stored, b.chain)
		require.Equal(t, make([]byte, 8), dst[len(b.decoded):])
	})
}

func FuzzDecode(f *testing.F) {
	list := chunks(f)
	for i, b := range list {
		f.Add(i, b.stored)
	}
	d := NewDecoder()
	f.Fuzz(func(_ *testing.T, i int, stored []byte) {
		b := list[uint(i)%uint(len(list))]
		_ = d.Decode(make([]byte, len(b.decoded)), stored, b.chain)
	})
}

// TestChecksums uses the check value of crc32c, and published ones of fletcher32, with the bytes of
// each word swapped as in HDF5.
func TestChecksums(t *testing.T) {
	d := NewDecoder()
	defer d.Close()
	for _, c := range []struct {
		codec zarr.Codec
		text  string
		sum   uint32
	}{
		{zarr.CRC32C, "123456789", 0xe3069283}, {zarr.Fletcher32, "badc\x00e", 0xf04fc729}, {zarr.Fletcher32, "badcfehg", 0xebe19591},
	} {
		stored := binary.LittleEndian.AppendUint32([]byte(c.text), c.sum)
		chain := zarr.Chain{Steps: []zarr.Step{{Codec: c.codec}}}
		dst := make([]byte, len(c.text))
		require.NoError(t, d.Decode(dst, stored, chain))
		require.Equal(t, c.text, string(dst))
		for i := range stored {
			stored[i] ^= 4
			require.ErrorContains(t, d.Decode(dst, stored, chain), "the checksum is")
			stored[i] ^= 4
		}
	}
	// A last odd byte is the upper one of a word, and long data does not overflow.
	require.Equal(t, fletcher32([]byte("abc\x00")), fletcher32([]byte("abc")))
	naive1, naive2 := uint64(0), uint64(0)
	long := bytes.Repeat([]byte{0xFF, 0xFE}, 5000)
	for range 5000 {
		naive1 = (naive1 + 0xFFFE) % 65535
		naive2 = (naive2 + naive1) % 65535
	}
	got := fletcher32(long)
	require.EqualValues(t, naive1, got&0xffff%65535)
	require.EqualValues(t, naive2, got>>16%65535)
}

func TestConcatenatedFrames(t *testing.T) {
	w, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	want := []byte("a chunk in two frames, and a checksum after it")
	stored := append(w.EncodeAll(want[:20], nil), w.EncodeAll(want[20:], nil)...)
	stored = binary.LittleEndian.AppendUint32(stored, crc32.Checksum(stored, castagnoli))
	chain := zarr.Chain{Steps: []zarr.Step{{Codec: zarr.CRC32C}, {Codec: zarr.Zstd}}}
	d := NewDecoder()
	defer d.Close()
	got := make([]byte, len(want))
	require.NoError(t, d.Decode(got, stored, chain))
	require.Equal(t, want, got)
}

// TestEndlesslyDecodingChunk: decoding stops at the size that the chunk must have.
func TestEndlesslyDecodingChunk(t *testing.T) {
	w, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	d := NewDecoder()
	defer d.Close()
	dst := make([]byte, 1000)
	bomb := w.EncodeAll(make([]byte, 64<<20), nil)
	require.Less(t, len(bomb), 64<<10)
	chain := zarr.Chain{Steps: []zarr.Step{{Codec: zarr.Zstd}}}
	require.ErrorContains(t, d.Decode(dst, bomb, chain), "zstd: ")
}

func TestUnfittingCastsAreErrors(t *testing.T) {
	f8 := zarr.Number{Kind: 'f', Bytes: 8}
	for _, x := range []float64{128, -129, math.NaN(), math.Inf(1)} {
		stored := binary.LittleEndian.AppendUint64(nil, math.Float64bits(x))
		chain := zarr.Chain{Steps: []zarr.Step{{Codec: zarr.FixedScaleOffset, From: f8, To: zarr.Number{Kind: 'i', Bytes: 1}, Scale: 1}}}
		require.ErrorContains(t, NewDecoder().Decode(make([]byte, 1), stored, chain), "does not fit")
	}
}
