package lc0_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// sizes are those of pipeline/format/GAMES.md.
var sizes = map[uint32]int{3: 8276, 4: 8292, 5: 8308, 6: 8356, 7: 8396}

func policyAt(version uint32) int {
	if version < 5 {
		return 4
	}
	return 8
}

// valuesAt returns the offset of the first byte after a frame's counters.
func valuesAt(version uint32) int { return policyAt(version) + 7432 + 832 + 8 }

// frame returns a valid frame; n makes it differ from others.
func frame(version uint32, n int) []byte {
	f := make([]byte, sizes[version])
	binary.LittleEndian.PutUint32(f, version)
	for i := range 1858 {
		share := float32(-1)
		if version == 3 {
			share = 0
		}
		if i == n%1858 {
			share = 1
		}
		put(f, policyAt(version)+4*i, share)
	}
	binary.LittleEndian.PutUint64(f[policyAt(version)+7432:], uint64(n)*0x9e3779b97f4a7c15)
	return f
}

func put(f []byte, at int, v float32) { binary.LittleEndian.PutUint32(f[at:], math.Float32bits(v)) }

// game returns n consecutive frames.
func game(version uint32, from, n int) []byte {
	var b []byte
	for i := range n {
		b = append(b, frame(version, from+i)...)
	}
	return b
}

func gz(parts ...[]byte) []byte {
	var b bytes.Buffer
	for _, p := range parts {
		w := gzip.NewWriter(&b)
		_, _ = w.Write(p)
		_ = w.Close()
	}
	return b.Bytes()
}

// file is a member of a tar.
type file struct {
	name string
	data []byte
}

// tarOf returns a tar of these files; a name that ends in a slash is a directory.
func tarOf(t require.TestingT, files ...file) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.data))}
		require.NoError(t, w.WriteHeader(h))
		_, err := w.Write(f.data)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func TestFramesHaveSizesOfSpecification(t *testing.T) {
	for version, behind := range map[uint32]int{3: 0, 4: 4 * 4, 5: 7 * 4, 6: 15*4 + 4 + 2*2 + 4 + 4, 7: 15*4 + 4 + 2*2 + 4 + 2*4 + 2*2 + 8*4} {
		require.Equal(t, sizes[version], valuesAt(version)+behind, "version %d", version)
	}
}
