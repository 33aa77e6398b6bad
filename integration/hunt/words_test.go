package hunt

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// wordBytes is the length of a word.
const wordBytes = 16

// Versions of a dataset's content.
const (
	versionA = 'A' // the indexed one
	versionB = 'B' // the later one
)

// word returns 16 bytes of a shard's content that encode the shard, the offset (in the decoded
// shard, a multiple of 16) and the version. The last three letters are a hash of these, so that
// they don't compress to nothing.
func word(shard int, off int64, version byte) []byte {
	hash := (uint64(shard)<<40 ^ uint64(off)<<8 ^ uint64(version)) * 0x9E3779B97F4A7C15
	b := fmt.Appendf(make([]byte, 0, wordBytes), "S%02x@%07x#%c", shard, off, version)
	for range 3 {
		b = append(b, 'a'+byte(hash>>60))
		hash <<= 4
	}
	return b
}

// fill writes the content at offset off of a decoded shard.
func fill(b []byte, shard int, off int64, version byte) {
	for len(b) > 0 {
		at := off % wordBytes
		n := copy(b, word(shard, off-at, version)[at:])
		b, off = b[n:], off+int64(n)
	}
}

// content returns n bytes of content.
func content(n, shard int, off int64, version byte) []byte {
	b := make([]byte, n)
	fill(b, shard, off, version)
	return b
}

var wordPattern = regexp.MustCompile(`S([0-9a-f]{2})@([0-9a-f]{7})#([AB])`)

// origin describes where bytes come from.
func origin(b []byte) string {
	if m := wordPattern.FindSubmatch(b); m != nil {
		shard, _ := strconv.ParseUint(string(m[1]), 16, 16) // the pattern only matches digits
		off, _ := strconv.ParseUint(string(m[2]), 16, 64)
		return fmt.Sprintf("version %s of shard %d at %d", m[3], shard, off)
	}
	if len(bytes.Trim(b, "\x00")) == 0 {
		return "zeros"
	}
	return fmt.Sprintf("%.32q", b)
}

func TestAnyPieceOfContentIdentifiesItsOrigin(t *testing.T) {
	whole := content(1000, 7, 0, versionB)
	for off := range 900 {
		require.Equal(t, whole[off:off+40], content(40, 7, int64(off), versionB))
		at := (off + wordBytes - 1) / wordBytes * wordBytes
		require.Equal(t, fmt.Sprintf("version B of shard 7 at %d", at), origin(whole[off:off+31]))
	}
	require.Equal(t, "zeros", origin(make([]byte, 5)))
	require.NotEqual(t, content(16, 1, 16, versionA), content(16, 1, 16, versionB))
}
