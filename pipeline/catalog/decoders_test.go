package catalog

import (
	"bytes"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// zstOf makes a frame with a window of windowBytes.
func zstOf(t *testing.T, windowBytes int, lines []byte) []byte {
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, zstd.WithWindowSize(windowBytes), zstd.WithEncoderConcurrency(1))
	require.NoError(t, err)
	for part := range bytes.Lines(lines) { // written in parts; otherwise the encoder knows the size and reduces the window
		_, err = w.Write(part)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// The memory of decoders follows from the windows, which only the files contain.
func TestIndexRecordsDecoderMemoryOfShard(t *testing.T) {
	w := newWorld(t)
	lines := bytes.Repeat(linesOf(1000, "z"), 100)
	w.write("a.jsonl.zst", zstOf(t, 8<<20, lines))
	w.write("b.jsonl.zst", append(zstOf(t, 1<<20, lines), zstOf(t, 2<<20, lines)...)) // decoded ahead
	w.write("c.jsonl.gz", gz(lines))
	w.write("d.jsonl", lines)
	c := w.mustOpen()
	for i, least := range []int64{8 << 20, 2 << 20, 256 << 10, 0} {
		held := c.Shard(i).DecoderBytes
		require.GreaterOrEqual(t, held, least, c.Shard(i).Object.Path)
		require.LessOrEqual(t, held, least+least/2+(256<<10)*min(least, 1), c.Shard(i).Object.Path)
	}
}
