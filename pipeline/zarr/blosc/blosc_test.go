package blosc

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// golden is a buffer that c-blosc made; see testdata/make.py.
type golden struct {
	name   string
	bytes  int64
	sha256 string
	buffer []byte
}

func goldens(t testing.TB) []golden {
	b, err := os.ReadFile("testdata/buffers.txt")
	require.NoError(t, err)
	var list []golden
	for line := range strings.Lines(string(b)) {
		if line[0] == '#' {
			continue
		}
		f := strings.Fields(line)
		require.Len(t, f, 6)
		n, err := strconv.ParseInt(f[3], 10, 64)
		require.NoError(t, err)
		buffer, err := base64.StdEncoding.DecodeString(f[5])
		require.NoError(t, err)
		list = append(list, golden{fmt.Sprintf("%s/shuffle=%s/item=%s/%d", f[0], f[1], f[2], n), n, f[4], buffer})
	}
	require.Greater(t, len(list), 30)
	return list
}

func decodeAll(t testing.TB, buffer []byte, decodedBytes int64) ([]byte, error) {
	h, err := Parse(buffer, int64(len(buffer)), decodedBytes)
	if err != nil {
		return nil, err
	}
	d := NewDecoder()
	defer d.Close()
	dst := make([]byte, decodedBytes)
	return dst, d.Decode(dst, buffer, h, 0, h.Blocks())
}

func TestCBloscBuffers(t *testing.T) {
	for _, g := range goldens(t) {
		t.Run(g.name, func(t *testing.T) {
			got, err := decodeAll(t, g.buffer, g.bytes)
			require.NoError(t, err)
			sum := sha256.Sum256(got)
			require.Equal(t, g.sha256, hex.EncodeToString(sum[:]))
		})
	}
}

func drawVariant(t *rapid.T) (variant, []byte) {
	v := variant{
		codec: byte(rapid.IntRange(0, 4).Draw(t, "codec")), shuffled: rapid.Bool().Draw(t, "shuffled"), bitShuffled: rapid.Bool().Draw(t, "bits"),
		stored: rapid.IntRange(0, 9).Draw(t, "stored") == 0, whole: rapid.Bool().Draw(t, "whole"),
		itemBytes: rapid.SampledFrom([]int{1, 2, 3, 4, 5, 8, 16, 17, 255}).Draw(t, "item"),
		dice:      rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)),
	}
	data := make([]byte, rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, 40000)).Draw(t, "bytes"))
	noise := v.dice.IntN(4)
	for i := range data {
		data[i] = byte(i / v.itemBytes / 3 >> (i % v.itemBytes))
		if noise > 0 && v.dice.IntN(40) < noise {
			data[i] = byte(v.dice.Uint32())
		}
	}
	if len(data) > 0 {
		v.blockBytes = rapid.IntRange(1+len(data)/100, len(data)).Draw(t, "block")
		if whole := v.blockBytes / v.itemBytes * v.itemBytes; whole > 0 {
			v.blockBytes = whole // as every writer does
		} else {
			v.whole = true
		}
	}
	return v, data
}

func TestAnyRangeOfBlocksDecodes(t *testing.T) {
	d := NewDecoder()
	defer d.Close()
	rapid.Check(t, func(t *rapid.T) {
		v, data := drawVariant(t)
		buffer := v.encode(&testing.T{}, data)
		behind := append(bytes.Clone(buffer), "behind it"...)
		h, err := Parse(behind[:HeaderBytes], int64(len(behind)), int64(len(data)))
		require.NoError(t, err)
		first := rapid.IntRange(0, h.Blocks()).Draw(t, "first")
		last := rapid.IntRange(first, h.Blocks()).Draw(t, "last")
		begin, end := h.Range(first, last)
		dst := bytes.Repeat([]byte{0xCC}, int(end-begin)+8)
		require.NoError(t, d.Decode(dst[:end-begin], behind, h, first, last))
		require.Equal(t, data[begin:end], dst[:end-begin])
		require.Equal(t, "\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc", string(dst[end-begin:]))
		if len(data) == 0 {
			return
		}
		// The blocks of a range of bytes cover it, and one block less would not.
		low := int64(rapid.IntRange(0, len(data)-1).Draw(t, "low"))
		high := int64(rapid.IntRange(int(low)+1, len(data)).Draw(t, "high"))
		first, last = h.BlocksOf(low, high)
		begin, end = h.Range(first, last)
		require.True(t, begin <= low && high <= end && first >= 0 && last <= h.Blocks())
		_, endOfFirst := h.Range(first, first+1)
		beginOfLast, _ := h.Range(last-1, last)
		require.True(t, endOfFirst > low && beginOfLast < high)
		// One block, given only its own bytes.
		start, err := h.Start(behind[:h.StartsBytes()], first)
		require.NoError(t, err)
		begin, end = h.Range(first, first+1)
		dst = make([]byte, end-begin)
		require.NoError(t, d.DecodeBlock(dst, buffer[start:], h, first))
		require.Equal(t, data[begin:end], dst)
	})
}

func TestUnshufflesEqualGenericOne(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	for _, item := range []int{2, 3, 4, 8, 9} {
		for n := range 200 {
			src := make([]byte, n*item+n%item)
			for i := range src {
				src[i] = byte(dice.Uint32())
			}
			want, got := make([]byte, len(src)), make([]byte, len(src))
			for i := range n {
				for j := range item {
					want[i*item+j] = src[j*n+i]
				}
			}
			copy(want[n*item:], src[n*item:])
			unshuffle(got, src, item)
			require.Equal(t, want, got, "%d elements of %d", n, item)
			generic := make([]byte, len(src))
			unshuffleRest(generic, src, item, n, 0)
			require.Equal(t, want[:n*item], generic[:n*item])
			if done := unshuffleFast(bytes.Repeat([]byte{1}, len(src)), src, item, n); done > n {
				t.Fatalf("%d of %d elements", done, n)
			}
		}
	}
}

// TestUnshuffleStaysInBounds uses slices of larger ones, whose other bytes must not change.
func TestUnshuffleStaysInBounds(t *testing.T) {
	for _, item := range []int{2, 4, 8} {
		for n := range 70 {
			room := bytes.Repeat([]byte{0xCC}, n*item+64)
			unshuffle(room[32:32+n*item], make([]byte, n*item), item)
			require.Equal(t, bytes.Repeat([]byte{0xCC}, 32), room[:32])
			require.Equal(t, bytes.Repeat([]byte{0xCC}, 32), room[32+n*item:])
		}
	}
}

func TestInvalidHeaders(t *testing.T) {
	v := variant{codec: 1, itemBytes: 2, blockBytes: 1024, shuffled: true, dice: rand.New(rand.NewPCG(1, 1))}
	data := bytes.Repeat([]byte("0123456789abcdef"), 300)
	good := v.encode(t, data)
	le := binary.LittleEndian
	for want, edit := range map[string]func(b []byte) []byte{
		"version 1: this is not a buffer of blosc":      func(b []byte) []byte { b[0] = 1; return b },
		"blosc2 is not supported":                       func(b []byte) []byte { b[0] = 5; return b },
		"codec 1 of version 2":                          func(b []byte) []byte { b[1] = 2; return b },
		"codec 5 of version 1":                          func(b []byte) []byte { b[2] = 5 << 5; return b },
		"a flag that blosc 1 does not set":              func(b []byte) []byte { b[2] |= 8; return b },
		"elements have 0 bytes":                         func(b []byte) []byte { b[3] = 0; return b },
		"has 4801 bytes decoded, and it must have 4800": func(b []byte) []byte { le.PutUint32(b[4:], 4801); return b },
		"blocks of 0 bytes":                             func(b []byte) []byte { le.PutUint32(b[8:], 0); return b },
		"blocks of 4801 bytes":                          func(b []byte) []byte { le.PutUint32(b[8:], 4801); return b },
		"4800 blocks don't fit":                         func(b []byte) []byte { le.PutUint32(b[8:], 1); return b },
		"can't be split into 2 streams":                 func(b []byte) []byte { le.PutUint32(b[8:], 1023); return b },
		"bytes by its header":                           func(b []byte) []byte { le.PutUint32(b[12:], uint32(len(b)+1)); return b },
		"a stored buffer of 4800 bytes must have":       func(b []byte) []byte { b[2] |= flagStored; return b },
		"15 bytes are not a buffer":                     func(b []byte) []byte { return b[:15] },
		"block 0 begins at 0":                           func(b []byte) []byte { le.PutUint32(b[16:], 0); return b },
		"block 1 begins at 4294967295":                  func(b []byte) []byte { le.PutUint32(b[20:], 1<<32-1); return b },
		"block 2: a stream of 0 bytes":                  func(b []byte) []byte { le.PutUint32(b[le.Uint32(b[24:]):], 0); return b },
		"block 2: a stream of -1 bytes":                 func(b []byte) []byte { le.PutUint32(b[le.Uint32(b[24:]):], 1<<32-1); return b },
		"block 3: lz4: ":                                func(b []byte) []byte { clear(b[le.Uint32(b[28:])+4:][:20]); return b },
	} {
		_, err := decodeAll(t, edit(bytes.Clone(good)), int64(len(data)))
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "blosc: ")
	}
}

func TestDamageNeverPanicsOrGrows(t *testing.T) {
	d := NewDecoder()
	defer d.Close()
	rapid.Check(t, func(t *rapid.T) {
		v, data := drawVariant(t)
		buffer := v.encode(&testing.T{}, data)
		for range rapid.IntRange(1, 4).Draw(t, "damages") {
			buffer[rapid.IntRange(0, len(buffer)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		buffer = buffer[:rapid.IntRange(len(buffer)/2, len(buffer)).Draw(t, "cut")]
		h, err := Parse(buffer, int64(len(buffer)), int64(len(data)))
		if err != nil {
			return
		}
		dst := make([]byte, len(data)+8)
		_ = d.Decode(dst[:len(data)], buffer, h, 0, h.Blocks())
		require.Equal(t, make([]byte, 8), dst[len(data):])
	})
}

// FuzzDecode compares buffers that decode with a simple second decoder, and blocks decoded
// separately with all of them.
func FuzzDecode(f *testing.F) {
	for i, g := range goldens(f) {
		if i%3 == 0 {
			f.Add(g.buffer, g.bytes)
		}
	}
	dice := rand.New(rand.NewPCG(3, 3))
	data := make([]byte, 5000)
	for i := range data {
		data[i] = byte(i / 7 * i % 11)
	}
	for codec := range byte(5) {
		for _, v := range []variant{{itemBytes: 4, shuffled: true}, {itemBytes: 2, bitShuffled: true}, {itemBytes: 8, whole: true}, {itemBytes: 3, shuffled: true}} {
			v.codec, v.blockBytes, v.dice = codec, v.itemBytes*320, dice
			f.Add(v.encode(f, data[:4800]), int64(4800))
		}
	}
	d := NewDecoder()
	f.Fuzz(func(t *testing.T, buffer []byte, decodedBytes int64) {
		if decodedBytes > 1<<16 || decodedBytes < 0 {
			return
		}
		h, err := Parse(buffer, int64(len(buffer)), decodedBytes)
		if err != nil {
			return
		}
		room := bytes.Repeat([]byte{0xcc}, int(decodedBytes)+8)
		dst := room[:decodedBytes]
		err = d.Decode(dst, buffer, h, 0, h.Blocks())
		require.Equal(t, bytes.Repeat([]byte{0xcc}, 8), room[decodedBytes:])
		if err == nil && h.codec() != 4 {
			want, failed := decodeNaively(buffer, int(decodedBytes))
			require.NoError(t, failed)
			require.True(t, bytes.Equal(want, dst))
		}
		for block := range h.Blocks() {
			begin, end := h.Range(block, block+1)
			one := make([]byte, end-begin)
			if failed := d.Decode(one, buffer, h, block, block+1); err == nil {
				require.NoError(t, failed)
				require.True(t, bytes.Equal(dst[begin:end], one))
			}
		}
	})
}

// TestDecodingAllocatesNothing leaves out zstd, which takes its memory from its own pool.
func TestDecodingAllocatesNothing(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 3000)
	for _, codec := range []byte{0, 1} {
		v := variant{codec: codec, itemBytes: 2, blockBytes: 16384, shuffled: true, dice: rand.New(rand.NewPCG(1, 1))}
		buffer := v.encode(t, data)
		d := NewDecoder()
		dst := make([]byte, len(data))
		h, err := Parse(buffer, int64(len(buffer)), int64(len(data)))
		require.NoError(t, err)
		require.NoError(t, d.Decode(dst, buffer, h, 0, h.Blocks()))
		require.Less(t, testing.AllocsPerRun(50, func() { _ = d.Decode(dst, buffer, h, 0, h.Blocks()) }), 1.0, "codec %d", codec)
		d.Close()
	}
}
