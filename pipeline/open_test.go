package pipeline

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

func TestSchemesThatAreNotSupportedSaySoAndWhatIs(t *testing.T) {
	const supported = "what is supported are paths of this machine's file systems: name a directory, a file or a quoted pattern"
	for dataset, want := range map[string]string{
		"s3://bucket/train":                "s3:// is not supported yet: ",
		"S3://bucket/{a..b}/*.tar":         "s3:// is not supported yet: ",
		"gs://bucket":                      "gs:// is not supported yet: ",
		"https://example.org/train-01.tar": "https:// is not supported yet: ",
		"hf://datasets/org/name":           "hf:// is not supported yet: ",
		"file:///data/train":               "file:// is unknown: ",
	} {
		_, err := Open(context.Background(), testSpec(t, dataset), Options{})
		require.EqualError(t, err, "dataset "+dataset+": "+want+supported)
	}
	for _, path := range []string{"/data/s3://x", "train*.tar", "://x", "3s://x", "s3:/x"} {
		s, err := schemeOf(path)
		require.NoError(t, err)
		require.Equal(t, "local", s.name)
	}
}

// A directory may have a name like that: what is there is meant.
func TestADirectoryWithTheNameOfASchemeIsADirectory(t *testing.T) {
	dir := makeLines(t)
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("s3:", 0o755))
	require.NoError(t, os.Symlink(dir, filepath.Join("s3:", "train")))
	d := open(t, testSpec(t, "s3://train"))
	require.EqualValues(t, testRecords, d.Records())
	_, err := Open(context.Background(), testSpec(t, "s3://other"), Options{})
	require.ErrorContains(t, err, "s3:// is not supported yet")
}

// Directories of files are opened one by one whatever is measured of the file system,
// and say themselves how they are read.
func TestDirectoriesOfFilesSayHowTheyAreRead(t *testing.T) {
	s := testSpec(t, makeFiles(t, 100))
	p := profile.Defaults(profile.KindDisk)
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

func TestOnlyAFormatThatIsAskedForHasDirectoriesAsShards(t *testing.T) {
	for _, name := range spec.Formats {
		_, ok := foldered(spec.Format{Name: name, RecordBytes: 4})
		require.Equal(t, name == "files", ok, name)
	}
	_, ok := foldered(spec.Format{Name: "auto"})
	require.False(t, ok)
}
