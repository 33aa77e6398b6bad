package synthetic_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/lc0"
	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/format/tfrecord"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// npyHead is the size of an array's header.
const npyHead = 128

func shard(t *testing.T, s synthetic.Shape, first, count uint64) []byte {
	t.Helper()
	require.NoError(t, s.Validate())
	var b bytes.Buffer
	require.NoError(t, s.WriteShard(&b, first, count, nil))
	return b.Bytes()
}

func TestBytesDependOnShapeAndNumbersOnly(t *testing.T) {
	for _, format := range plainFormats() {
		t.Run(format, func(t *testing.T) {
			s := synthetic.Shape{Format: format, RecordBytes: 4096, Seed: 7}
			whole := shard(t, s, 100, 50)
			require.Equal(t, whole, shard(t, s, 100, 50))
			if format == "npy" { // each shard has a header of its own
				require.Equal(t, shard(t, s, 120, 30)[npyHead:], whole[npyHead+20*4096:])
				return
			}
			joined := append(shard(t, s, 100, 20), shard(t, s, 120, 30)...)
			if format == "tar" { // each shard has an end of its own
				joined = append(shard(t, s, 100, 20)[:len(joined)-len(shard(t, s, 120, 30))-1024], shard(t, s, 120, 30)...)
			}
			require.True(t, bytes.Equal(whole, joined), "records don't depend on how they are cut into shards")
			s.Seed++
			require.NotEqual(t, whole, shard(t, s, 100, 50))
		})
	}
}

func TestRecordsHaveRequestedSizes(t *testing.T) {
	for _, format := range plainFormats() {
		t.Run(format, func(t *testing.T) {
			const records, mean = 2000, 12500
			b := shard(t, synthetic.Shape{Format: format, RecordBytes: mean}, 0, records)
			require.InEpsilon(t, records*mean, len(b), 0.03)
		})
	}
}

// plainFormats returns the formats whose shards need not be compressed.
func plainFormats() []string {
	return slices.DeleteFunc(slices.Clone(synthetic.Formats), func(f string) bool { return f == "lc0" })
}

func TestGamesAreValidFramesAndCompress(t *testing.T) {
	const frames = 2*synthetic.GameFrames + 7
	for codec, decoder := range map[string]format.Codec{"gz": lc0.Game{}, "tar": lc0.Tar{}} {
		s := synthetic.Shape{Format: "lc0", Codec: codec, RecordBytes: synthetic.FrameBytes, Seed: 7}
		raw := shard(t, s, 50, frames)
		require.Equal(t, raw, shard(t, s, 50, frames))
		require.Less(t, len(raw), frames*synthetic.FrameBytes/10)
		records := 0
		sum, err := format.Scan(t.Context(), lc0.New(spec.Format{Lc0Check: true}), decoder, bytes.NewReader(raw), int64(len(raw)), func(format.Extent) error { records++; return nil }, func() {})
		require.NoError(t, err)
		require.Empty(t, sum.Lost().First)
		require.Equal(t, frames, records)
		require.Equal(t, "version 6", sum.Kind)
		require.Len(t, sum.Members, map[string]int{"gz": 1, "tar": 3}[codec])
	}
	require.ErrorContains(t, synthetic.Shape{Format: "lc0", RecordBytes: 5000}.Validate(), "between 8356")
	require.ErrorContains(t, synthetic.Shape{Format: "lc0", RecordBytes: 8356, Codec: "zst"}.Validate(), "gz, tar")
}

func TestTarIsReadByArchiveTar(t *testing.T) {
	r := tar.NewReader(bytes.NewReader(shard(t, synthetic.Shape{Format: "tar", RecordBytes: 6000}, 41, 2)))
	for _, name := range []string{"000000041.jpg", "000000041.cls", "000000042.jpg", "000000042.cls"} {
		h, err := r.Next()
		require.NoError(t, err)
		require.Equal(t, name, h.Name)
		_, err = io.Copy(io.Discard, r)
		require.NoError(t, err)
	}
	_, err := r.Next()
	require.ErrorIs(t, err, io.EOF)
}

func TestLinesAreJSON(t *testing.T) {
	for _, bytesEach := range []int64{64, 1200} {
		lines := bufio.NewScanner(bytes.NewReader(shard(t, synthetic.Shape{Format: "jsonl", RecordBytes: bytesEach}, 1e9, 300)))
		n := 0
		for ; lines.Scan(); n++ {
			var v struct {
				ID   int
				Text string
			}
			require.NoError(t, json.Unmarshal(lines.Bytes(), &v), "%s", lines.Text())
			require.Equal(t, int(1e9)+n, v.ID)
		}
		require.Equal(t, 300, n)
	}
}

func TestFramesHaveValidChecksums(t *testing.T) {
	b := shard(t, synthetic.Shape{Format: "tfrecord", RecordBytes: 900}, 3, 1)
	require.NoError(t, tfrecord.Format{}.Verify(b))
}

func TestCompressedShardsDecodeToSameBytes(t *testing.T) {
	s := synthetic.Shape{Format: "jsonl", RecordBytes: 1200}
	plain := shard(t, s, 0, 3000)
	s.Codec = "gz"
	packed := shard(t, s, 0, 3000)
	require.Less(t, len(packed), len(plain)/2, "it compresses as text does")
	g, err := gzip.NewReader(bytes.NewReader(packed))
	require.NoError(t, err)
	decoded, err := io.ReadAll(g)
	require.NoError(t, err)
	require.True(t, bytes.Equal(plain, decoded))
	s.Codec = "zst"
	z, err := zstd.NewReader(bytes.NewReader(shard(t, s, 0, 3000)))
	require.NoError(t, err)
	defer z.Close()
	decoded, err = io.ReadAll(z)
	require.NoError(t, err)
	require.True(t, bytes.Equal(plain, decoded))
	s.Codec = "lz4"
	decoded, err = io.ReadAll(lz4.NewReader(bytes.NewReader(shard(t, s, 0, 3000))))
	require.NoError(t, err)
	require.True(t, bytes.Equal(plain, decoded))
}

func TestInvalidShapesReportAllProblems(t *testing.T) {
	err := synthetic.Shape{Format: "tar", Codec: "xz", RecordBytes: 100}.Validate()
	require.ErrorContains(t, err, "gz, zst, lz4")
	require.ErrorContains(t, err, "between 4096")
	require.ErrorContains(t, synthetic.Shape{Format: "csv"}.Validate(), "tar, jsonl, fixed, tfrecord, npy")
}

type failing struct{ after int }

var errFull = errors.New("full")

func (f *failing) Write(p []byte) (int, error) {
	if f.after -= len(p); f.after < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestWriteErrorStopsGeneration(t *testing.T) {
	for _, codec := range append([]string{""}, synthetic.Codecs...) {
		s := synthetic.Shape{Format: "jsonl", RecordBytes: 1200, Codec: codec}
		require.ErrorIs(t, s.WriteShard(&failing{100_000}, 0, 2000, nil), errFull, codec)
	}
}
