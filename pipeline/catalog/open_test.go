package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestRecordsOfEachFormatHaveExpectedExtents(t *testing.T) {
	lines := linesOf(300, "a")
	tests := []struct {
		name   string
		file   string
		data   []byte
		format spec.Format
		want   uint64
		ext    string
	}{
		{"tar", "a.tar", tarOf(300, "s"), spec.Format{Name: "auto"}, 300, ".tar"},
		{"tar in gzip", "a.tgz", gz(tarOf(300, "s")), spec.Format{Name: "auto"}, 300, ".tar"},
		{"jsonl", "a.jsonl", lines, spec.Format{Name: "auto"}, 300, ".jsonl"},
		{"jsonl in two members of gzip", "a.jsonl.gz", gz(lines, lines), spec.Format{Name: "auto"}, 600, ".jsonl"},
		{"tfrecord", "a.tfrecord", framesOf(300), spec.Format{Name: "auto"}, 300, ".tfrecord"},
		{"lines", "a.txt", lines, spec.Format{Name: "auto"}, 300, ".txt"},
		{"fixed", "a.bin", make([]byte, 1000), spec.Format{Name: "fixed", RecordBytes: 10}, 100, ".bin"},
		{"fixed that overlap", "a.bin", make([]byte, 1024+1000), spec.Format{Name: "fixed", RecordBytes: 10, StrideBytes: 8, HeaderBytes: 1024}, 124, ".bin"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.write(tt.file, tt.data)
			c := w.mustOpen(func(c *Config) { c.Format = tt.format })
			require.Equal(t, tt.want, c.Records())
			require.Equal(t, tt.ext, c.StreamExtension())
			numbers := make([]uint64, tt.want)
			for i := range numbers {
				numbers[i] = uint64(i)
			}
			extents := make([]Extent, tt.want)
			c.Extents(numbers, extents)
			var sum int64
			for i, e := range extents {
				require.EqualValues(t, i, e.Ordinal)
				sum += e.SizeBytes
			}
			require.Equal(t, sum, c.StreamBytes())
			require.LessOrEqual(t, extents[tt.want-1].OffsetBytes+extents[tt.want-1].SizeBytes, c.Shard(0).DecodedBytes)
			sealed := w.sealed()
			again := w.mustOpen(func(c *Config) { c.Format, c.Rebuild = tt.format, true })
			require.Equal(t, c.Identity(), again.Identity())
			require.Equal(t, sealed, w.sealed())
		})
	}
}

func TestFingerprintMatchesOrderMD(t *testing.T) {
	w := newWorld(t)
	two := gz(linesOf(5, "a"), linesOf(7, "b"))
	w.write("b.jsonl.gz", two)
	w.write("a/z.jsonl", linesOf(3, "c"))
	w.write("notes.md", []byte("# no shard\n"))
	c := w.mustOpen()
	text := fmt.Sprintf("lsiofs/1 dataset jsonl\n3 %d 3 a/z.jsonl\n12 %d 2 b.jsonl.gz\n",
		len(linesOf(3, "c")), len(linesOf(5, "a"))+len(linesOf(7, "b")))
	sum := sha256.Sum256([]byte(text))
	require.Equal(t, hex.EncodeToString(sum[:]), c.Fingerprint())
	require.Equal(t, 1, c.PassedOver())
	id := sha256.Sum256([]byte("lsiofs/1 shard b.jsonl.gz"))
	require.Equal(t, hex.EncodeToString(id[:8]), fmt.Sprintf("%016x", c.Shard(1).IDPrefix))
	require.EqualValues(t, 2, c.Shard(1).Members)
	first := int64(len(linesOf(5, "a")))
	second := format.Entry{DecodedBytes: first, RawBytes: int64(len(gz(linesOf(5, "a"))))}
	require.Equal(t, format.Entry{}, c.Entry(1, first-1))
	require.Equal(t, second, c.Entry(1, first))
	require.Equal(t, second, c.Entry(1, c.Shard(1).DecodedBytes))
}

func TestUnchangedDatasetOpensWithoutOpeningShards(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.write(fmt.Sprintf("%d.tar", i), tarOf(20, "s"))
	}
	w.write("README", []byte("judged by its content\n"))
	w.write("data-00000-of-00001", tarOf(9, "t")) // left out, because names show which files are shards
	var last Progress
	first := w.mustOpen(func(c *Config) { c.Progress = func(p Progress) { last = p } })
	require.True(t, last.Done)
	require.Equal(t, 5, last.Shards)
	require.Equal(t, last.BytesTotal, last.Bytes)
	require.Equal(t, uint64(100), last.Records)
	require.Zero(t, w.readsOf(func() {
		second := w.mustOpen(func(c *Config) { c.Progress = func(p Progress) { last = p } })
		require.Equal(t, first.Fingerprint(), second.Fingerprint())
		require.Equal(t, 2, second.PassedOver())
	}))
	require.Equal(t, 5, last.Reused)
	require.Equal(t, uint64(100), last.Records)
	require.Positive(t, w.readsOf(func() { w.mustOpen(func(c *Config) { c.Rebuild = true }) }))
	require.Len(t, w.indexFiles("*"), 2, "the index and one fingerprint's lines")
	info, err := os.Stat(w.indexFiles("*.index")[0])
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	info, err = os.Stat(w.index)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}

func TestOnlyChangedShardIsIndexedAgain(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.write(fmt.Sprintf("%d.jsonl", i), linesOf(50, fmt.Sprint(i)))
	}
	before := w.mustOpen()
	w.write("3.jsonl", linesOf(60, "new"))
	var touched []string
	w.onRead = func(o storage.Object) error { touched = append(touched, o.Path); return nil }
	after := w.mustOpen()
	require.Equal(t, []string{"3.jsonl"}, touched)
	require.Equal(t, uint64(260), after.Records())
	require.Equal(t, "1 of 5 shards differ: 3.jsonl has 60 records, and had 50", after.Explain(before.Fingerprint()))
	require.Equal(t, "it is the same dataset", after.Explain(after.Fingerprint()))
	require.Empty(t, after.Explain(strings.Repeat("0", 64)))
	require.Empty(t, after.Explain("../../x"))

	touched = nil
	later := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(w.data, "1.jsonl"), later, later))
	require.Equal(t, after.Fingerprint(), w.mustOpen().Fingerprint())
	require.Equal(t, []string{"1.jsonl"}, touched)

	touched = nil
	require.NoError(t, os.Remove(filepath.Join(w.data, "0.jsonl")))
	require.Equal(t, uint64(210), w.mustOpen().Records())
	require.Empty(t, touched, "the others are still known")
}
