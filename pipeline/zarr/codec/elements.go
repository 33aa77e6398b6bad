package codec

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// unshuffle puts the bytes of elements back together; remaining bytes are copied.
func unshuffle(dst, src []byte, itemBytes int) int {
	n := len(src) / itemBytes
	for j := range itemBytes {
		at := j
		for _, b := range src[j*n : (j+1)*n] {
			dst[at] = b
			at += itemBytes
		}
	}
	copy(dst[n*itemBytes:], src[n*itemBytes:])
	return len(src)
}

// elements undoes a step that works on numbers.
func elements(dst, src []byte, s zarr.Step) (int, error) {
	if len(src)%s.From.Bytes != 0 {
		return 0, fmt.Errorf("%d bytes are not a whole number of elements of %d bytes", len(src), s.From.Bytes)
	}
	n := len(src) / s.From.Bytes
	if n*s.To.Bytes > len(dst) {
		return 0, fmt.Errorf("it needs %d numbers, and has %d", n, len(dst)/s.To.Bytes)
	}
	sum, float := uint64(0), 0.0
	for i := range n {
		x := load(src[i*s.From.Bytes:], s.From)
		bits := uint64(0)
		switch s.Codec {
		case zarr.Delta:
			if s.To.Kind != 'f' {
				sum += x
				bits = sum
				break
			}
			if i == 0 {
				float = value(x, s.From)
			} else {
				float += value(x, s.From)
			}
			bits = floatBits(float, s.To)
			float = value(bits, s.To) // each sum is rounded
		case zarr.FixedScaleOffset:
			var err error
			if bits, err = cast(scaled(value(x, s.From), s), s.To); err != nil {
				return 0, err
			}
		default:
			bits = floatBits(value(x, s.From), s.To)
		}
		store(dst[i*s.To.Bytes:], bits, s.To)
	}
	return n * s.To.Bytes, nil
}

// scaled returns x/Scale + Offset, computed in float32 if From is float32, as NumPy does.
func scaled(x float64, s zarr.Step) float64 {
	if s.From.Kind == 'f' && s.From.Bytes == 4 {
		y := float32(x) / float32(s.Scale)
		return float64(y + float32(s.Offset))
	}
	y := x / s.Scale
	return y + s.Offset
}

// load reads a number into the lowest bits; a signed one is sign-extended.
func load(b []byte, n zarr.Number) uint64 {
	order := binary.ByteOrder(binary.LittleEndian)
	if n.Big {
		order = binary.BigEndian
	}
	signed := n.Kind == 'i'
	switch n.Bytes {
	case 1:
		if signed {
			return uint64(int8(b[0]))
		}
		return uint64(b[0])
	case 2:
		if signed {
			return uint64(int16(order.Uint16(b)))
		}
		return uint64(order.Uint16(b))
	case 4:
		if signed {
			return uint64(int32(order.Uint32(b)))
		}
		return uint64(order.Uint32(b))
	}
	return order.Uint64(b)
}

// store writes a number from the lowest bits.
func store(b []byte, bits uint64, n zarr.Number) {
	order := binary.ByteOrder(binary.LittleEndian)
	if n.Big {
		order = binary.BigEndian
	}
	switch n.Bytes {
	case 1:
		b[0] = byte(bits)
	case 2:
		order.PutUint16(b, uint16(bits))
	case 4:
		order.PutUint32(b, uint32(bits))
	default:
		order.PutUint64(b, bits)
	}
}

// value returns the value of a number's bits.
func value(bits uint64, n zarr.Number) float64 {
	switch {
	case n.Kind == 'i':
		return float64(int64(bits))
	case n.Kind == 'u':
		return float64(bits)
	case n.Bytes == 4:
		return float64(math.Float32frombits(uint32(bits)))
	}
	return math.Float64frombits(bits)
}

// floatBits returns the bits of the nearest float32 or float64.
func floatBits(x float64, n zarr.Number) uint64 {
	if n.Bytes == 4 {
		return uint64(math.Float32bits(float32(x)))
	}
	return math.Float64bits(x)
}

// cast converts x to a number type. A value that does not fit is an error; elsewhere the result
// depends on the machine.
func cast(x float64, n zarr.Number) (uint64, error) {
	if n.Kind == 'f' {
		return floatBits(x, n), nil
	}
	x = math.Trunc(x)
	low, high := 0.0, math.Ldexp(1, 8*n.Bytes)
	if n.Kind == 'i' {
		low, high = -math.Ldexp(1, 8*n.Bytes-1), math.Ldexp(1, 8*n.Bytes-1)
	}
	if !(x >= low && x < high) {
		return 0, fmt.Errorf("%v does not fit into an integer of %d bytes", x, n.Bytes)
	}
	if n.Kind == 'i' {
		return uint64(int64(x)), nil
	}
	return uint64(x), nil
}
