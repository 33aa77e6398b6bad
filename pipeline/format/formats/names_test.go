package formats_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func TestFormatsOfNames(t *testing.T) {
	for path, want := range map[string]string{
		"a.tar": "tar", "A.TAR": "tar", "a.tgz": "tar", "a.tzst": "tar", "a.tar.lz4": "tar",
		"a.jsonl": "jsonl", "a.NDJSON.GZ": "jsonl", "a.jsonl.zstd": "jsonl",
		"a.tfrecord-00000-of-00010": "tfrecord", "a.tfrec.gz": "tfrecord", "a.tfrecords.c000": "tfrecord",
		"a.npy": "npy", "a.txt.gz": "lines",
		"a.json": "", "a.gz": "", "a": "", "a.jsonl.1": "", "a.jsonl.bak": "", "a.jsonl~": "", "a.jsonl.xz": "", "a.jsonl.aa": "",
		"a.jsonl.gz.zst": "", "tar": "", ".tar": "", "a.tar/b": "", "x-00000-of-00010": "",
	} {
		require.Equal(t, want, formats.ParseName(path).Format, path)
	}
}

func TestExtensionsOfPaths(t *testing.T) {
	for path, want := range map[string]string{
		"d/train.bin": ".bin", "d/TRAIN.BIN": ".bin", "a.bin.gz": ".bin", "x.bin-00000-of-00002": ".bin",
		"training.123.gz": ".#", "a.7": ".#", "part-00000": "", "part-r-00000-of-00002": "", "README": "", "a.": "",
	} {
		require.Equal(t, want, formats.Extension(path), path)
	}
}

// The codec is determined by the first bytes, not by the name.
func TestTheCodecIsWhatTheFirstBytesAre(t *testing.T) {
	text := []byte("{\"a\": 1}\n")
	skippable := append(binary.LittleEndian.AppendUint32(nil, 0x184d2a50), 4, 0, 0, 0, 1, 2, 3, 4)
	// The first length of a TFRecord may look like gzip.
	frame := binary.LittleEndian.AppendUint64(nil, 0x088b1f)
	sum := crc32.Checksum(frame, crc32.MakeTable(crc32.Castagnoli))
	frame = append(binary.LittleEndian.AppendUint32(frame, (sum>>15|sum<<17)+0xa282ead8), make([]byte, formats.CodecHeadBytes)...)
	require.Equal(t, []byte{0x1f, 0x8b, 0x08}, frame[:3])
	for _, c := range []struct {
		name, format, path string
		head               []byte
		want               string
	}{
		{"plain", "jsonl", "a.jsonl", text, ""},
		{"plain in spite of .gz", "jsonl", "a.jsonl.gz", text, ""},
		{"gzip", "jsonl", "a.jsonl", formattest.Gzip(text), "gzip"},
		{"zstd in .gz", "jsonl", "a.jsonl.gz", formattest.Zstd(text), "zstd"},
		{"gzip in .tar", "tar", "a.tar", formattest.Gzip(text), "gzip"},
		{"skippable frames first, then zstd", "jsonl", "a.jsonl", append(bytes.Clone(skippable), formattest.Zstd(text)...), "zstd"},
		{"skippable frames alone are what the name says", "jsonl", "a.jsonl.lz4", skippable, "lz4"},
		{"and else zstd's", "jsonl", "a.jsonl", skippable, "zstd"},
		{"cut in its magic number", "jsonl", "a.jsonl.gz", []byte{0x1f}, "gzip"},
		{"nothing, behind a codec's name", "jsonl", "a.jsonl.gz", nil, "gzip"},
		{"nothing", "jsonl", "a.jsonl", nil, ""},
		{"a TFRecord whose length looks like gzip", "tfrecord", "a.tfrecord", frame[:formats.CodecHeadBytes], ""},
		{"fixed is what its name says", "fixed", "a.bin", formattest.Gzip(text), ""},
		{"fixed, compressed by its name", "fixed", "a.bin.gz", text, "gzip"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := formats.New(spec.Format{Name: c.format, RecordBytes: 1})
			require.NoError(t, err)
			name := ""
			if codec := formats.CodecOf(f, c.path, c.head); codec != nil {
				name = codec.Name()
			}
			require.Equal(t, c.want, name)
		})
	}
}

// Files of other kinds are refused with an error that names their kind, in all formats that are
// recognized by their bytes, under any codec.
func TestForeignBytesAreRefused(t *testing.T) {
	text := []byte("{\"a\": 1}\n")
	foreign := map[string][]byte{
		"gzip": formattest.Gzip(text), "zstd": formattest.Zstd(text), "lz4": formattest.LZ4(text), "xz": []byte("\xfd7zXZ\x00\x00"),
		"bzip2": []byte("BZh91AY&SY...."), "zip archive": []byte("PK\x03\x04..."), "7z": []byte("7z\xbc\xaf\x27\x1c.."), "Parquet": []byte("PAR1...."),
		"Arrow": []byte("ARROW1\x00\x00...."), "HDF5": []byte("\x89HDF\r\n\x1a\n..."), "UTF-16": []byte("\xff\xfe{\x00}\x00"), "UTF-32": []byte("\xff\xfe\x00\x00{\x00\x00\x00"),
		"Git LFS": []byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\n"), "HTML page": []byte("\n<!DOCTYPE HTML>\n<html>"),
	}
	for what, bytesOf := range foreign {
		for _, name := range []string{"tar", "jsonl", "lines", "tfrecord", "npy"} {
			f, err := formats.New(spec.Format{Name: name})
			require.NoError(t, err)
			raw := formattest.Gzip(bytesOf)
			codec := formats.CodecOf(f, "a", raw)
			require.NotNil(t, codec)
			_, err = format.Scan(context.Background(), f, codec, bytes.NewReader(raw), int64(len(raw)), func(format.Extent) error { return nil }, func() {})
			var refused *format.RefusedError
			require.ErrorAs(t, err, &refused, "%s as %s", what, name)
			require.ErrorContains(t, err, what)
			require.ErrorContains(t, err, "inside its gzip")
		}
	}
	_, is := format.IsForeign([]byte("BZh is how a text may begin"))
	require.False(t, is)
}
