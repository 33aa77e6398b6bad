package tar_test

import (
	stdtar "archive/tar"
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/format/tar"
)

// naiveBlock returns one header as specified in pipeline/format/FILES.md, field by field.
func naiveBlock(name string, size int64, kind byte) []byte {
	h := make([]byte, 512)
	copy(h[:100], name)
	copy(h[100:], "0000644\x00"+"0000000\x00"+"0000000\x00"+fmt.Sprintf("%011o\x00", size)+"00000000000\x00"+"        ")
	h[156] = kind
	copy(h[257:], "ustar\x0000")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return h
}

// naiveRecord finds a PAX record's length by trial.
func naiveRecord(key, value string) string {
	for n := 1; ; n++ {
		if r := fmt.Sprintf("%d %s=%s\n", n, key, value); len(r) == n {
			return r
		}
	}
}

func naiveHeader(path string, size int64) []byte {
	pax, inField := "", size
	if len(path) > 100 {
		pax += naiveRecord("path", path)
	}
	if size >= 8<<30 {
		pax += naiveRecord("size", fmt.Sprint(size))
		inField = 0
	}
	var out []byte
	if pax != "" {
		out = append(naiveBlock("././@PaxHeader", int64(len(pax)), 'x'), pax...)
		out = append(out, make([]byte, -len(pax)&511)...)
	}
	return append(out, naiveBlock(path, inField, '0')...)
}

func TestHeadersEqualNaiveOnesAndParseWithArchiveTar(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path := strings.ReplaceAll(rapid.StringOfN(rapid.RuneFrom([]rune("ab./é\n 数")), 1, -1, 1200).Draw(t, "path"), "//", "/_")
		if n := rapid.SampledFrom([]int{0, 99, 100, 101, 255, 256, 480, 511, 512, 990}).Draw(t, "length"); n > 0 {
			path = strings.Repeat("p", n)
		}
		size := rapid.OneOf(rapid.Int64Range(0, 1<<20), rapid.SampledFrom([]int64{8<<30 - 1, 8 << 30, 8<<30 + 1, 9999999999, 10000000000, 1 << 60})).Draw(t, "size")
		got := tar.FileFraming{}.AppendHeader([]byte("before"), []byte(path), size)
		require.Equal(t, "before", string(got[:6]))
		require.Equal(t, naiveHeader(path, size), got[6:])
		require.Equal(t, int64(len(got)-6), tar.FileFraming{}.HeaderBytes(len(path), size))
		h, err := stdtar.NewReader(bytes.NewReader(got[6:])).Next()
		if err != nil { // it refuses names that are not valid paths
			require.NotErrorIs(t, err, io.ErrUnexpectedEOF)
			return
		}
		require.Equal(t, path, h.Name)
		require.Equal(t, size, h.Size)
		require.EqualValues(t, 0o644, h.Mode)
	})
}

func TestHeadersAllocateNothing(t *testing.T) {
	path, buffer := []byte("class/image.jpg"), make([]byte, 0, 4096)
	require.Zero(t, testing.AllocsPerRun(100, func() { buffer = tar.FileFraming{}.AppendHeader(buffer[:0], path, 12345) }))
}
