package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/rows"
)

// naiveHybrid decodes as levels and indexes do, a bit at a time. ok is false if n values are not
// there, or one is above most.
func naiveHybrid(b []byte, width, n int, most uint64) (out []uint64, ok bool) {
	for len(out) < n {
		head, k := binary.Uvarint(b)
		if k <= 0 || head > 1<<33 {
			return nil, false
		}
		b = b[k:]
		if head&1 == 0 {
			size := (width + 7) / 8
			if len(b) < size {
				return nil, false
			}
			var v uint64
			for i := range size {
				v |= uint64(b[i]) << (8 * i)
			}
			b = b[size:]
			if v >= 1<<width || head > 1 && v > most {
				return nil, false
			}
			for range min(int(head>>1), n-len(out)) {
				out = append(out, v)
			}
			continue
		}
		before := len(out)
		for i := range 8 * int(head>>1) {
			if len(out) == n || (i+1)*width > 8*len(b) {
				break
			}
			var v uint64
			for bit := range width {
				at := i*width + bit
				v |= uint64(b[at/8]>>(at%8)&1) << bit
			}
			if v > most {
				return nil, false
			}
			out = append(out, v)
		}
		if len(out) < n && width > 0 && 8*int(head>>1)*width > 8*len(b) && len(out) == before {
			return nil, false
		}
		b = b[min(len(b), int(head>>1)*width):]
	}
	return out, true
}

func FuzzLevels(f *testing.F) {
	f.Add([]byte{0x03, 0xaa, 0x10, 0x01}, uint16(16), uint8(1))
	f.Add([]byte{0x03, 0x88, 0xc6, 0xfa, 0x06, 0x02}, uint16(9), uint8(6))
	f.Fuzz(func(t *testing.T, b []byte, n uint16, most uint8) {
		if most == 0 {
			return
		}
		h := hybrid{b: b, width: bits.Len8(most)}
		got := make([]uint8, n)
		err := h.levels(got, most)
		want, ok := naiveHybrid(b, h.width, int(n), uint64(most))
		require.Equal(t, ok, err == nil, "%v", err)
		for i := range want {
			require.Equal(t, want[i], uint64(got[i]))
		}
	})
}

func FuzzIndexes(f *testing.F) {
	f.Add([]byte{0x03, 0x88, 0xc6, 0xfa}, uint16(8), uint8(3), uint32(8))
	f.Add([]byte{0x05, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 0xff}, uint16(16), uint8(13), uint32(1<<13))
	f.Fuzz(func(t *testing.T, b []byte, n uint16, width uint8, size uint32) {
		if width > 32 || size == 0 || size > 1<<31 {
			return
		}
		h := hybrid{b: b, width: int(width)}
		got := make([]int32, n)
		err := h.indexes(got, int(size))
		want, ok := naiveHybrid(b, h.width, int(n), uint64(size)-1)
		require.Equal(t, ok, err == nil, "%v", err)
		for i := range want {
			require.Equal(t, int32(want[i]), got[i])
		}
	})
}

func FuzzBitPackedLevels(f *testing.F) {
	f.Add([]byte{0x05, 0x39, 0x77}, uint16(8), uint8(7))
	f.Fuzz(func(t *testing.T, b []byte, n uint16, most uint8) {
		if most == 0 {
			return
		}
		got := make([]uint8, n)
		size, err := bitPackedLevels(got, b, most)
		width := bits.Len8(most)
		if int(n)*width > 8*len(b) {
			require.Error(t, err)
			return
		}
		ok := true
		for i := range int(n) {
			v := 0
			for bit := range width {
				at := i*width + bit
				v = 2*v + int(b[at/8]>>(7-at%8)&1)
			}
			if ok = ok && v <= int(most); ok {
				require.Equal(t, uint8(v), got[i])
			}
		}
		require.Equal(t, ok, err == nil)
		if ok {
			require.Equal(t, (int(n)*width+7)/8, size)
		}
	})
}

// naiveDeltas decodes DELTA_BINARY_PACKED a bit at a time.
func naiveDeltas(b []byte, n int) (out []uint64, ok bool) {
	next := func() uint64 {
		v, k := binary.Uvarint(b)
		if k <= 0 {
			ok, b = false, nil
			return 0
		}
		b = b[k:]
		return v
	}
	unzig := func(v uint64) uint64 { return v>>1 ^ -(v & 1) }
	ok = true
	block, minis, total := next(), next(), next()
	if !ok || block == 0 || block > maxBlock || block%128 != 0 || minis == 0 || minis > block || block%minis != 0 || block/minis%32 != 0 || total != uint64(n) {
		return nil, false
	}
	value := unzig(next())
	for out = append(out, value); ok && len(out) < n; {
		low := unzig(next())
		if !ok || len(b) < int(minis) {
			return nil, false
		}
		widths := b[:minis]
		b = b[minis:]
		for _, width := range widths {
			if len(out) == n {
				break
			}
			k := min(int(block/minis), n-len(out))
			if width > 64 || k*int(width) > 8*len(b) {
				return nil, false
			}
			for i := range k {
				var v uint64
				for bit := range int(width) {
					at := i*int(width) + bit
					v |= uint64(b[at/8]>>(at%8)&1) << bit
				}
				value += low + v
				out = append(out, value)
			}
			b = b[min(len(b), int(block/minis)/8*int(width)):]
		}
	}
	return out, ok
}

func FuzzDeltas(f *testing.F) {
	f.Add([]byte{0x80, 1, 4, 5, 2, 2, 0, 0, 0, 0}, uint16(5), true)
	f.Add(append([]byte{0x80, 1, 4, 5, 2, 3, 57, 0, 0, 0}, bytes.Repeat([]byte{0xb7}, 57*4)...), uint16(5), false)
	f.Add(append([]byte{0x80, 1, 4, 40, 2, 3, 64, 63, 0, 0}, bytes.Repeat([]byte{0xb7}, 127*4)...), uint16(40), false)
	f.Fuzz(func(t *testing.T, b []byte, n uint16, narrow bool) {
		if n == 0 {
			return
		}
		size := 8
		if narrow {
			size = 4
		}
		got, _, err := deltas(make([]byte, 0, int(n)*size), b, int(n), size)
		want, ok := naiveDeltas(b, int(n))
		require.Equal(t, ok, err == nil, "%v", err)
		if !ok {
			return
		}
		for i := range want {
			if narrow {
				require.Equal(t, uint32(want[i]), binary.LittleEndian.Uint32(got[4*i:]))
			} else {
				require.Equal(t, want[i], binary.LittleEndian.Uint64(got[8*i:]))
			}
		}
	})
}

// FuzzValues decodes a page of values of every type and encoding: there are as many, or an error,
// and no more memory than is permitted.
func FuzzValues(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 'a', 'b'}, uint32(1), uint8(0), uint8(6))
	f.Add([]byte{0x80, 1, 4, 2, 4, 2, 0, 0, 0, 0, 'a', 'b', 'c', 'd', 'e'}, uint32(2), uint8(6), uint8(6))
	f.Add([]byte{0x80, 1, 4, 2, 0, 2, 0, 0, 0, 0, 0x80, 1, 4, 2, 4, 2, 0, 0, 0, 0, 'a', 'b', 'c', 'd', 'e'}, uint32(2), uint8(7), uint8(6))
	f.Fuzz(func(t *testing.T, b []byte, n uint32, enc, phys uint8) {
		if int(phys) >= len(physicalNames) || n > 1<<31 {
			return
		}
		mem := &memory{most: 1 << 20}
		l := &leaf{leafInfo: &leafInfo{phys: physical(phys), width: physical(phys).width(5)}, mem: mem}
		err := l.decodeValues(encoding(enc), b, int(n))
		require.LessOrEqual(t, mem.used, mem.most)
		if err != nil {
			_, isRefused := errors.AsType[*rows.RefusedError](err)
			_, isReason := errors.AsType[reason](err)
			require.True(t, isRefused || isReason, "%T", err)
			return
		}
		if l.width > 0 {
			require.GreaterOrEqual(t, len(l.val.bytes), int(n)*l.width)
			return
		}
		require.Len(t, l.val.spans, int(n))
		for _, s := range l.val.spans {
			require.LessOrEqual(t, uint64(s.At)+uint64(s.Len), uint64(len(l.val.bytes)))
		}
	})
}

func FuzzPageHeader(f *testing.F) {
	f.Add([]byte{0x15, 0, 0x15, 8, 0x15, 8, 0x2c, 0x15, 2, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := parsePageHeader(b)
		if err == nil {
			require.True(t, n <= len(b) && h.raw >= 0 && h.size >= 0 && h.values >= 0)
		}
	})
}

// FuzzFooter opens files whose footers are b, and reads them: they have 200 bytes of data.
func FuzzFooter(f *testing.F) {
	for _, data := range vectorFiles(f) {
		size := binary.LittleEndian.Uint32(data[len(data)-8:])
		f.Add(data[len(data)-8-int(size) : len(data)-8])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		data := append([]byte(magic), make([]byte, 200)...)
		data = binary.LittleEndian.AppendUint32(append(data, b...), uint32(len(b)))
		survive(t, "footer", append(data, magic...))
	})
}

func FuzzFile(f *testing.F) {
	for _, data := range vectorFiles(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, b []byte) { survive(t, "file", b) })
}

func vectorFiles(f *testing.F) [][]byte {
	paths, _ := filepath.Glob("testdata/vectors/*.parquet")
	var all [][]byte
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(f, err)
		all = append(all, data)
	}
	return all
}
