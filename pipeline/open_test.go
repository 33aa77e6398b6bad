package pipeline

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

func TestUnsupportedSchemesAreNamed(t *testing.T) {
	for dataset, want := range map[string]string{
		"gs://bucket":              "dataset: gs:// is not supported yet: ",
		"hf://datasets/org/name":   "dataset: hf:// is not supported yet: ",
		"file:///data/train":       "dataset: file:// is not supported: give the path alone",
		"ftp://someone:secret@h/x": "dataset: ftp:// is not supported: datasets are paths, s3:// buckets, and files by https:// or http://",
		"https://h/*.tar?secret":   "dataset: https://h: ",
	} {
		_, err := Open(t.Context(), testSpec(t, dataset), Options{})
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
	for path, want := range map[string]string{
		"/data/s3://x": "local", "train*.tar": "local", "://x": "local", "3s://x": "local", "s3:/x": "local",
		"S3://bucket/{a..b}/*.tar": "s3", "s3://bucket": "s3", "https://host/x.tar": "web", "HTTP://host/x.tar": "web",
	} {
		s, err := schemeOf(path)
		require.NoError(t, err)
		require.Equal(t, want, s.name, path)
	}
}

// If a directory with such a name exists, the name means the directory.
func TestDirectoryNamedLikeSchemeIsADirectory(t *testing.T) {
	dir := makeLines(t)
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("s3:", 0o755))
	require.NoError(t, os.Symlink(dir, filepath.Join("s3:", "train")))
	d := open(t, testSpec(t, "s3://train"))
	require.EqualValues(t, testRecords, d.Records())
	require.False(t, IsRemote("s3://train"))
	require.True(t, IsRemote("s3://other"))
}

// Files in directories are opened one by one, whatever was measured of the file system, and the
// storage reports itself how they are read.
func TestDirectoriesOfFilesReportHowTheyAreRead(t *testing.T) {
	s := testSpec(t, makeFiles(t, 100))
	p := storage.DefaultProfile(storage.KindDisk)
	openThem := func(name string) *Dataset {
		s.Format.Name = name
		d, err := Open(context.Background(), s, Options{Storage: &p})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		return d
	}
	folders := openThem("files")
	set, err := folders.Set(t.Context(), 0, nil, s.Deal)
	require.NoError(t, err)
	readFile(t, set, 0, stream.Data, 100_000)
	st := folders.Status()
	require.Zero(t, st.Storage.GapBytes)
	require.Equal(t, "files", st.Engine.Engine)
	require.Positive(t, st.Engine.Reads)
	likes := p
	likes.GapBytes = 0
	require.Equal(t, likes, st.Storage, "all else is the file system's")

	s.Dataset, s.IndexDir = makePlainLines(t), t.TempDir()
	plain := openThem("jsonl")
	require.Equal(t, p, plain.Status().Storage)
	require.Contains(t, []string{"uring", "pread"}, plain.Status().Engine.Engine)
}

func TestOnlyExplicitFormatReadsDirectoriesAsShards(t *testing.T) {
	for _, name := range formats.Names() {
		_, ok := foldered(spec.Format{Name: name, RecordBytes: 4})
		require.Equal(t, name == "files", ok, name)
	}
	_, ok := foldered(spec.Format{Name: "auto"})
	require.False(t, ok)
}
