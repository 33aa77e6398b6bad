package diskcache

import (
	"encoding/hex"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"
)

// The bytes were computed by another program: caches outlive versions of this one.
func TestFormatMatchesManual(t *testing.T) {
	k := keyOf(Identity{"s3://bucket/train/000.tar", `"d41d8"`}, 4097)
	// printf 'lsiofs cache 1\ns3://bucket/train/000.tar\n"d41d8"\n4097\n' | sha256sum | cut -c-32
	require.Equal(t, "b68ea70a4e0f34587e5a5e9ef8f79ade", k.name())
	require.Equal(t, k.name()[:2], k.folder())

	page := []byte(strings.Repeat("x", pageBytes))
	whole := append(append(append([]byte{}, k[:]...), 7, 0, 0, 0, 0, 0, 0, 0), page...)
	require.Equal(t, crc32.Checksum(whole, crc32.MakeTable(crc32.Castagnoli)), newSummer(k).sum(7, page))

	h := header{ObjectBytes: 4097, Created: time.Unix(1795305600, 0), URL: "u", Validator: "vw"}
	b := h.encode()
	require.Equal(t, "6c73696f66734343"+"01000000"+"00100000"+"0110000000000000"+"8030026b00000000"+"01000000"+"02000000"+"757677"+"00", hex.EncodeToString(b[:44]))
	require.Len(t, b, headerBytes)
}

func TestChecksumIsNeverZero(t *testing.T) {
	// A page whose CRC is 0: the last four bytes of any content can be chosen to get that.
	s, page := newSummer(key{1}), make([]byte, pageBytes)
	table := crc32.MakeTable(crc32.Castagnoli)
	before := crc32.Update(crc32.Update(uint32(s), table, make([]byte, 8)), table, page[:pageBytes-4])
	// The state from which four bytes lead to 0 is computed backwards, bit by bit.
	state := uint32(0xffffffff)
	for range 32 {
		if state&0x80000000 != 0 {
			state = (state^crc32.Castagnoli)<<1 | 1
		} else {
			state <<= 1
		}
	}
	last := state ^ ^before
	for i := range 4 {
		page[pageBytes-4+i] = byte(last >> (8 * i))
	}
	require.Zero(t, crc32.Update(crc32.Update(uint32(s), table, make([]byte, 8)), table, page))
	require.EqualValues(t, 1, s.sum(0, page))
}

func TestHeadersRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := header{
			ObjectBytes: rapid.Int64Range(0, maxObjectBytes).Draw(t, "size"),
			Created:     time.Unix(rapid.Int64Range(0, 1<<40).Draw(t, "created"), 0),
			URL:         rapid.StringN(0, 200, 3000).Draw(t, "url"),
			Validator:   rapid.StringN(0, 100, 1000).Draw(t, "validator"),
		}
		got, err := parseHeader(h.encode())
		require.NoError(t, err)
		require.Equal(t, h, got)
	})
}

func TestLongHeaderTextsAreTruncated(t *testing.T) {
	h := header{URL: strings.Repeat("ü", 3000), Validator: "v"}
	got, err := parseHeader(h.encode())
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("ü", textBytes/2), got.URL)
	require.Empty(t, got.Validator)
}

func TestHeaderWithAnyChangedByteIsInvalid(t *testing.T) {
	h := header{ObjectBytes: 1 << 30, Created: time.Unix(1, 0), URL: "https://host/a", Validator: "generation:17"}
	b := h.encode()
	for i := range b {
		b[i] ^= 0x10
		_, err := parseHeader(b)
		require.ErrorIs(t, err, errHeader, "byte %d", i)
		b[i] ^= 0x10
	}
	_, err := parseHeader(b[:headerBytes-1])
	require.ErrorIs(t, err, errHeader)
}

// Headers have a valid sum, so that what follows the sum's check is tested, too.
func FuzzParseHeader(f *testing.F) {
	h := header{ObjectBytes: 5, URL: "u", Validator: "v"}
	f.Add(h.encode()[:100])
	f.Add([]byte("lsiofsCC\x01\x00\x00\x00\x00\x10\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, begins []byte) {
		b := make([]byte, headerBytes)
		copy(b[:headerSumAt], begins)
		for i, sum := 0, xxh3.Hash(b[:headerSumAt]); i < 8; i++ {
			b[headerSumAt+i] = byte(sum >> (8 * i))
		}
		h, err := parseHeader(b)
		if err != nil {
			require.ErrorIs(t, err, errHeader)
			return
		}
		require.Equal(t, b, h.encode(), "what is read is all that there is")
	})
}

func TestRangesAreExtendedToPages(t *testing.T) {
	for _, c := range []struct {
		off, n int64
		want   run
	}{{0, 1, run{0, 1}}, {0, 4096, run{0, 1}}, {1, 4096, run{0, 2}}, {4095, 2, run{0, 2}}, {4096, 4096, run{1, 2}}, {5000, 5000, run{1, 3}}} {
		require.Equal(t, c.want, runOf(c.off, c.n), c)
	}
}

// missing is compared with a list of pages.
func TestMissingPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		here := rapid.SliceOfN(rapid.Bool(), 0, 40).Draw(t, "here")
		first := rapid.Int64Range(0, 1000).Draw(t, "first")
		gap := rapid.Int64Range(0, 4).Draw(t, "gap")
		sums := make([]byte, len(here)*sumBytes)
		for i, is := range here {
			if is {
				sums[i*sumBytes+i%sumBytes] = 1
			}
		}
		var got []int64
		last := int64(-1000)
		for _, r := range missing(sums, first, gap) {
			require.Less(t, r.begin, r.end)
			require.Greater(t, r.begin-last, gap, "what is near is one run")
			require.False(t, here[r.begin-first], "a run begins with what is missing")
			require.False(t, here[r.end-1-first], "and ends with it")
			for page := r.begin; page < r.end; page++ {
				got = append(got, page)
			}
			last = r.end
		}
		for i, is := range here {
			if !is {
				require.True(t, slices.Contains(got, first+int64(i)))
			} else if gap == 0 {
				require.False(t, slices.Contains(got, first+int64(i)))
			}
		}
	})
}

func TestPageSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s pageSet
		model := map[int64]bool{}
		for range rapid.IntRange(0, 100).Draw(t, "steps") {
			page := rapid.Int64Range(0, 300).Draw(t, "page")
			if rapid.Bool().Draw(t, "add") {
				require.Equal(t, !model[page], s.add(page))
				model[page] = true
			} else {
				require.Equal(t, model[page], s.remove(page))
				delete(model, page)
			}
			require.Equal(t, model[page], s.has(page))
			require.EqualValues(t, len(model), s.n)
		}
	})
}
