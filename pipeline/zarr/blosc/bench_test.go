package blosc

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// chunk is 16×64×64 int16 of 10-bit waves and noise, which blosc compresses to about a half.
func chunk(dice *rand.Rand) []byte {
	b := make([]byte, 0, 1<<17)
	for t := range 16 {
		for y := range 64 {
			for x := range 64 {
				wave := 512 + 300*math.Sin(float64(x+t)/20)*math.Cos(float64(y)/30) + float64(dice.IntN(24))
				b = binary.LittleEndian.AppendUint16(b, uint16(wave))
			}
		}
	}
	return b
}

func BenchmarkDecode(b *testing.B) {
	for _, c := range []struct {
		name string
		v    variant
	}{
		{"codec=lz4/shuffle=bytes", variant{codec: 1, itemBytes: 2, blockBytes: 1 << 17, shuffled: true}},
		{"codec=blosclz/shuffle=bytes", variant{codec: 0, itemBytes: 2, blockBytes: 1 << 17, shuffled: true}},
		{"codec=zstd/shuffle=bytes", variant{codec: 4, itemBytes: 2, blockBytes: 1 << 17, shuffled: true, whole: true}},
		{"codec=zstd/shuffle=bits", variant{codec: 4, itemBytes: 2, blockBytes: 1 << 17, bitShuffled: true, whole: true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			c.v.dice = rand.New(rand.NewPCG(1, 1))
			data := chunk(c.v.dice)
			buffer := c.v.encode(b, data)
			h, err := Parse(buffer, int64(len(buffer)), int64(len(data)))
			require.NoError(b, err)
			d := NewDecoder()
			defer d.Close()
			dst := make([]byte, len(data))
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if err := d.Decode(dst, buffer, h, 0, h.Blocks()); err != nil {
					b.Fatal(err)
				}
			}
			require.Equal(b, data, dst)
			b.ReportMetric(float64(len(data))/float64(len(buffer)), "ratio")
		})
	}
}

func BenchmarkUnshuffle(b *testing.B) {
	for _, item := range []int{2, 3, 4, 8} {
		src, dst := make([]byte, 1<<17), make([]byte, 1<<17)
		n := len(src) / item
		b.Run(fmt.Sprintf("item=%d/generic", item), func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				unshuffleRest(dst, src, item, n, 0)
			}
		})
		b.Run(fmt.Sprintf("item=%d", item), func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				unshuffle(dst, src, item)
			}
		})
		b.Run(fmt.Sprintf("item=%d/bits", item), func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				unshuffleBits(src, dst, item)
			}
		})
	}
}
