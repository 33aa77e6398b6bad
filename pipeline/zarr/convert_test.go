package zarr

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var numberTypes = []Dtype{
	named("bool"), named("int8"), named("int16"), named("int32"), named("int64"), named("uint8"), named("uint16"), named("uint32"), named("uint64"),
	named("float16"), named("bfloat16"), named("float32"), named("float64"),
}

// exactly returns an element, little-endian, as an arbitrary-precision number; nil for NaN, and
// infinities separately.
func exactly(d Dtype, e []byte) (x *big.Float, infinite float64) {
	var wide [8]byte
	copy(wide[:], e)
	bits, n := binary.LittleEndian.Uint64(wide[:]), 8*d.ItemBytes
	f, isFloat := formatOf(d.class, d.ItemBytes)
	switch {
	case d.class == aBool:
		return new(big.Float).SetInt64(int64(min(bits, 1))), 0
	case d.class == anInt:
		return new(big.Float).SetInt64(int64(bits<<(64-n)) >> (64 - n)), 0
	case !isFloat || d.class == aUint:
		return new(big.Float).SetUint64(bits), 0
	}
	sign := 1.0
	if bits>>(f.bits()-1) == 1 {
		sign = -1
	}
	exponent, mantissa := int(bits>>f.mantissa&(1<<f.exponent-1)), bits&(1<<f.mantissa-1)
	switch {
	case exponent == 1<<f.exponent-1 && mantissa > 0:
		return nil, 0
	case exponent == 1<<f.exponent-1:
		return nil, sign
	case exponent == 0:
		exponent = 1
	default:
		mantissa |= 1 << f.mantissa
	}
	m := new(big.Float).SetPrec(64).SetUint64(mantissa)
	m.Mul(m, big.NewFloat(sign)) // so that 0 gets its sign
	return m.SetMantExp(m, exponent-(1<<(f.exponent-1)-1)-f.mantissa), 0
}

// convertedNaively returns an element of crops, computed with arbitrary precision and rounded after
// each step.
func convertedNaively(p *Packing, e []byte) []byte {
	x, infinite := exactly(p.Type, e)
	bits := uint32(nanBits)
	switch {
	case slices.ContainsFunc(p.Missing, func(m []byte) bool { return bytes.Equal(m, e) }):
	case infinite != 0:
		bits = math.Float32bits(float32(math.Inf(int(infinite)) * float64(p.Scale)))
	case x != nil:
		rounded := func(x *big.Float) float32 { y, _ := x.Float32(); return y }
		first := rounded(x)
		if math.IsInf(float64(first), 0) {
			bits = math.Float32bits(first * p.Scale)
			break
		}
		product := rounded(new(big.Float).SetPrec(200).Mul(big.NewFloat(float64(first)), big.NewFloat(float64(p.Scale))))
		// A float64 holds the exact sum of two float32, or more than twice its bits.
		bits = math.Float32bits(float32(float64(product) + float64(p.Offset)))
	}
	return binary.LittleEndian.AppendUint32(nil, bits)
}

func drawPacking(t *rapid.T, n numbered) *Packing {
	p := &Packing{Type: n.Type}
	p.Scale = rapid.SampledFrom([]float32{1, 0.01, -0.5, 3e38, 1e-40}).Draw(t, "scale")
	p.Offset = rapid.SampledFrom([]float32{0, 273.15, -1e30}).Draw(t, "offset")
	total := product(n.Shape)
	for range rapid.IntRange(0, 2).Draw(t, "missing") {
		p.addMissing(n.element(rapid.Int64Range(0, max(total-1, 0)).Draw(t, "which")))
	}
	return p
}

// Crops of converted elements are the same, whatever pieces crops and chunks come in, and in
// whatever order elements are stored.
func TestConvertedCropsMatchExactArithmetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawNumbered(t)
		n.Type = rapid.SampledFrom(numberTypes).Draw(t, "number").withOrder(rapid.Bool().Draw(t, "big numbers"))
		n.Fill = n.Fill[:0]
		for i := range n.Type.ItemBytes {
			n.Fill = append(n.Fill, byte(40*i+3))
		}
		special := rapid.SampledFrom([]uint64{0, 0x7ff0_0000_0000_0000, 0xfff8_0000_0000_0001, 0x8000_0000_0000_0000}).Draw(t, "special")
		n.element = func(i int64) []byte {
			bits := uint64(i) * 0x9e37_79b9_7f4a_7c15
			if i%5 == 3 {
				bits = special
			}
			return binary.BigEndian.AppendUint64(nil, bits)[:n.Type.ItemBytes]
		}
		p := drawPacking(t, n)
		n.converted = func(e []byte) []byte { return convertedNaively(p, e) }
		testCopies(t, n, p)
	})
}

func TestHalfFloatsAreExact(t *testing.T) {
	for h := range 1 << 16 {
		x, infinite := exactly(named("float16"), binary.LittleEndian.AppendUint16(nil, uint16(h)))
		y := float64(halfFloat(uint16(h)))
		switch {
		case infinite != 0:
			require.True(t, math.IsInf(y, int(infinite)))
		case x == nil:
			require.True(t, math.IsNaN(y))
		default:
			want, _ := x.Float64()
			require.Equal(t, math.Float64bits(want), math.Float64bits(y), "%x", h)
		}
	}
}

func TestConversionsAllocateNothing(t *testing.T) {
	for _, d := range numberTypes {
		for _, step := range []int64{1, 2} {
			a := &Array{Shape: []int64{4, 9, 40}, Chunk: []int64{4, 9, 40}, Type: d.withOrder(step == 2), Fill: make([]byte, d.ItemBytes)}
			crop := &Crop{Origin: []int64{0, 0, 0}, Count: []int64{2, 3, 11}, Step: []int64{1, 1, step}}
			k := NewCopier(a, &Packing{Type: a.Type, Scale: 2}, crop.Count, crop.Step)
			dst, src := make([]byte, 2*3*11*4), make([]byte, a.ChunkBytes())
			_ = crop.Parts(a.Shape, a.Chunk, func(p *Part) error {
				require.Zero(t, testing.AllocsPerRun(10, func() {
					k.Copy(Window{Bytes: dst}, Window{Bytes: src}, p)
					k.Copy(Window{Bytes: dst[3:90], OffsetBytes: 3}, Window{Bytes: src}, p)
					k.Fill(Window{Bytes: dst}, p)
				}), "%s", d.Descr)
				return nil
			})
		}
	}
}
