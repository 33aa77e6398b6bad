package formats_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/format/gzip"
	"github.com/lsiofs/lsiofs/pipeline/format/lc0"
	"github.com/lsiofs/lsiofs/pipeline/format/lz4"
	"github.com/lsiofs/lsiofs/pipeline/format/zstd"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func TestEveryFormatOfSpecIsRegistered(t *testing.T) {
	for _, name := range spec.Formats {
		f := spec.Format{Name: name}
		if name == "fixed" {
			f.RecordBytes = 4
		}
		format, err := formats.New(f)
		require.NoError(t, err)
		require.Equal(t, name, format.Name())
		require.NotEmpty(t, formats.Checked(name))
	}
	_, err := formats.New(spec.Format{Name: "auto"})
	require.ErrorContains(t, err, `--format "auto" is not known: formats are tar, jsonl`)
}

func TestNoExtensionBelongsToTwoFormats(t *testing.T) {
	seen := map[string]string{}
	for _, f := range formats.All() {
		for _, e := range f.Extensions() {
			require.Empty(t, seen[e])
			seen[e] = f.Name()
		}
	}
}

func TestSplit(t *testing.T) {
	for path, want := range map[string][2]string{
		"a/b.tar":                     {"a/b.tar", ""},
		"a/b.tar.gz":                  {"a/b.tar", "gzip"},
		"a/b.tgz":                     {"a/b.tar", "gzip"},
		"a/b.tar.zst":                 {"a/b.tar", "zstd"},
		"a/b.tar.lz4":                 {"a/b.tar", "lz4"},
		"a/b.gz":                      {"a/b", "gzip"},
		"a.gz/b":                      {"a.gz/b", ""},
		"a.gz/b.jsonl":                {"a.gz/b.jsonl", ""},
		"b.jsonl.zst":                 {"b.jsonl", "zstd"},
		"b.jsonl.gz.gz":               {"b.jsonl.gz", "gzip"},
		"a.jsonl.zstd":                {"a.jsonl", "zstd"},
		"a.JSONL.GZ":                  {"a.JSONL", "gzip"},
		"a.jsonl.gzip":                {"a.jsonl", "gzip"},
		"a.tzst":                      {"a.tar", "zstd"},
		"x.tfrecord-00001-of-00004":   {"x.tfrecord", ""},
		"x.jsonl-00001-of-00004.gz":   {"x.jsonl", "gzip"},
		"x.jsonl.gz-00001-of-00004":   {"x.jsonl", "gzip"},
		"part-0.json.c000.gz":         {"part-0.json", "gzip"},
		"part-00001-of-00004.json.gz": {"part-00001-of-00004.json", "gzip"},
		"gz":                          {"gz", ""},
		".gz":                         {".gz", ""},
		"a/.tgz":                      {"a/.tgz", ""},
	} {
		stem, codec := formats.Split(path)
		name := ""
		if codec != nil {
			name = codec.Name()
		}
		require.Equal(t, want, [2]string{stem, name}, path)
	}
}

// Existing indexes of users contain these numbers.
func TestCodecsKeepTheirNumbers(t *testing.T) {
	for number, codec := range []format.Codec{nil, gzip.Codec{}, zstd.Codec{}, lz4.Codec{}, lc0.Game{}, lc0.Tar{}} {
		require.EqualValues(t, number, formats.CodecNumber(codec))
		require.Equal(t, codec, formats.NumberedCodec(uint32(number)))
	}
	require.Nil(t, formats.NumberedCodec(6))
	require.Nil(t, formats.NumberedCodec(1<<32-1))
}
