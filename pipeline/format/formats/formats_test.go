package formats_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/format/gzip"
	"github.com/lsiofs/lsiofs/pipeline/format/lc0"
	"github.com/lsiofs/lsiofs/pipeline/format/lz4"
	"github.com/lsiofs/lsiofs/pipeline/format/tables"
	"github.com/lsiofs/lsiofs/pipeline/format/zstd"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func TestEveryLineOfTheTablesIsTrue(t *testing.T) {
	for _, name := range formats.Names() {
		f := spec.Format{Name: name}
		if name == "fixed" {
			f.RecordBytes = 4
		}
		made, err := formats.New(f)
		require.NoError(t, err)
		require.Equal(t, name, made.Name())
		require.NotEmpty(t, formats.Checked(name))
		_, directories := made.(format.Foldered)
		require.Equal(t, directories || name == "zarr", formats.OfDirectories(name), name)
	}
	_, err := formats.New(spec.Format{Name: "auto"})
	require.ErrorContains(t, err, `--format "auto" is not known: formats are tar, jsonl`)
}

func TestUnknownFormatsAreProblemsOfASpec(t *testing.T) {
	s := spec.Default()
	s.Dataset = "/data"
	require.NoError(t, formats.Validate(s))
	s.Format.Name = "zip"
	require.EqualError(t, formats.Validate(s), `--format ("zip") must be one of auto, tar, jsonl, lines, tfrecord, npy, fixed, lc0, files, zarr, parquet, tokens`)
	s.Format.Name = "arrow"
	require.ErrorContains(t, formats.Validate(s), "--format arrow: Arrow is not supported yet: convert it")
	s.Deal.Workers = 0
	require.ErrorContains(t, formats.Validate(s), "\n--workers (0) must be between")
}

// pipeline/format/SHARDS.md: CONTENTS.
func TestContentsAreTriedInTheOrderOfThePages(t *testing.T) {
	require.Equal(t, []string{"lc0", "tar", "tfrecord", "jsonl", "parquet"}, formats.OfContent())
	require.Equal(t, []string{"tar", "jsonl", "lines", "tfrecord", "npy", "lc0", "parquet"}, formats.Detected())
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
	for number, codec := range []format.Codec{nil, gzip.Codec{}, zstd.Codec{}, lz4.Codec{}, lc0.Game{}, lc0.Tar{}, &tables.Codec{}} {
		require.EqualValues(t, number, formats.CodecNumber(codec))
		require.Equal(t, codec, formats.NumberedCodec(uint32(number)))
	}
	require.Nil(t, formats.NumberedCodec(7))
	require.Nil(t, formats.NumberedCodec(1<<32-1))
}
