package listing

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/servers"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/s3"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/web"
)

// unlisted is the storage of a directory that can't be listed.
func unlisted(t testing.TB, dir string) storage.Storage {
	return wrapped{Storage: openLocal(t, dir), list: func(context.Context, func(string, bool) bool, func(storage.Object) error) error {
		return fmt.Errorf("list: %w", remote.ErrNoListing)
	}}
}

// consolidatedV2 returns the consolidated metadata of a hierarchy.
func consolidatedV2(paths ...string) string {
	var list []string
	for _, p := range paths {
		list = append(list, fmt.Sprintf(`%q: %s, %q: %s`, p+"/.zarray", zarray("."), p+"/.zattrs", zattrs))
	}
	return `{"zarr_consolidated_format": 1, "metadata": {".zgroup": {"zarr_format": 2}, ` + strings.Join(list, ", ") + `}}`
}

func TestArraysOfServerWithoutListing(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, ".zgroup"), `{"zarr_format": 2}`)
	writeV2(t, filepath.Join(dir, "group/data"), ".", "0.0.0", "2.1.1", "README")
	under := unlisted(t, dir)
	text := refused(t, under, crops)
	require.Contains(t, text, "no consolidated metadata: name arrays with --array, or consolidate it")

	list, err := find(t, under, named("group/data"))
	require.NoError(t, err, "a name is enough")
	require.Equal(t, []int64{0, 11}, present(&list[0].Fields[0]))
	want := findOne(t, dir, named("group/data"))
	require.Equal(t, want.Object, list[0].Object, "the same as where there are listings")
	require.Contains(t, refused(t, under, named("other")), "has no array other; what it has can't be listed")

	write(t, filepath.Join(dir, ".zmetadata"), consolidatedV2("group/data"))
	list, err = find(t, under, crops)
	require.NoError(t, err)
	require.Equal(t, "group/data", list[0].Fields[0].Path)
	require.Equal(t, []int64{0, 11}, present(&list[0].Fields[0]))
	require.Contains(t, refused(t, under, named("other")), "has no array other; it has\n  group/data: t=6, y=4, x=4 <u2, in chunks of [2 2 2]")

	write(t, filepath.Join(dir, ".zmetadata"), consolidatedV2("group/data", "b"))
	require.Contains(t, refused(t, under, crops), "has 2 arrays with all dimensions of --crop")
	write(t, filepath.Join(dir, ".zmetadata"), consolidatedV2("../data"))
	require.Contains(t, refused(t, under, crops), "is not a path of an array or group")
	write(t, filepath.Join(dir, ".zmetadata"), strings.Repeat("[", 1000))
	require.Contains(t, refused(t, under, crops), ".zmetadata: ")
}

func TestUnlistedArraysOfVersion3Group(t *testing.T) {
	dir := t.TempDir()
	writeV3(t, filepath.Join(dir, "data"), small, func(place []int64) bool { return place[0] == 0 })
	doc, err := os.ReadFile(filepath.Join(dir, "data/zarr.json"))
	require.NoError(t, err)
	write(t, filepath.Join(dir, "zarr.json"), `{"zarr_format": 3, "node_type": "group", "consolidated_metadata": {"kind": "inline", "must_understand": false, "metadata": {
"empty": {"zarr_format": 3, "node_type": "group"}, "data": `+string(doc)+`}}}`)
	list, err := find(t, unlisted(t, dir), crops)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 1, 2, 3}, present(&list[0].Fields[0]))
	list, err = find(t, unlisted(t, filepath.Join(dir, "data")), crops)
	require.NoError(t, err, "an array by itself")
	require.Equal(t, []int64{0, 1, 2, 3}, present(&list[0].Fields[0]))
	require.Contains(t, refused(t, unlisted(t, t.TempDir()), crops), "the dataset has to be an array or a group")
}

func TestTooManyObjectsAreNotRequestedOneByOne(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "zarr.json"), `{"zarr_format": 3, "node_type": "array", "shape": [65537, 1, 1], "data_type": "uint8",
"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 1, 1]}}, "chunk_key_encoding": {"name": "default"}, "fill_value": 0,
"codecs": [{"name": "bytes"}], "dimension_names": ["t", "y", "x"]}`)
	z := crops
	z.Crop = z.Crop[:1]
	under := unlisted(t, dir).(wrapped)
	var asked atomic.Int64
	inner := under.Storage
	under.stat = func(ctx context.Context, path string) (storage.Object, error) {
		asked.Add(1)
		return inner.Stat(ctx, path)
	}
	require.Contains(t, refused(t, under, z), "has 65537 objects, and the server does not list them: at most 65536 are asked for")
	require.Less(t, asked.Load(), int64(10))
}

// hierarchy writes hierarchies of both versions.
func hierarchy(t *testing.T, put func(name, content string)) {
	dir := t.TempDir()
	writeV3(t, filepath.Join(dir, "new/data"), small, func(place []int64) bool { return place[2] == 1 })
	writeV2(t, filepath.Join(dir, "old.zarr/data"), "/", "0/0/0", "1/1/1")
	write(t, filepath.Join(dir, "old.zarr/.zgroup"), `{"zarr_format": 2}`)
	write(t, filepath.Join(dir, "old.zarr/.zmetadata"), strings.ReplaceAll(consolidatedV2("data"), `"dimension_separator": "."`, `"dimension_separator": "/"`))
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		put(strings.TrimPrefix(path, dir+"/"), string(b))
		return err
	}))
}

func transport(t *testing.T) *web.Transport {
	tr, err := web.NewTransport(web.Settings{})
	require.NoError(t, err)
	t.Cleanup(tr.Close)
	return tr
}

func engine(t *testing.T, source remote.Source) storage.Storage {
	s, err := remote.New(source, remote.DefaultConfig())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// TestGridsInBucket uses a real S3 server.
func TestGridsInBucket(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", servers.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", servers.SecretKey)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	root := t.TempDir()
	bucket := filepath.Join(root, "bucket")
	require.NoError(t, os.Mkdir(bucket, 0o755))
	hierarchy(t, func(name, content string) { servers.WriteObject(t, bucket, "train/"+name, []byte(content)) })
	endpoint := servers.Versitygw(t, root)
	at := func(name string) storage.Storage {
		got, err := target.Parse(name)
		require.NoError(t, err)
		source, _, err := s3.Open(t.Context(), *got.Bucket, s3.Options{Endpoint: endpoint, Transport: transport(t)})
		require.NoError(t, err)
		return engine(t, source)
	}
	list, err := find(t, at("s3://bucket/train/"), named("data"))
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, "new", list[0].Object.Path)
	require.Equal(t, []int64{1, 3, 5, 7, 9, 11}, present(&list[0].Fields[0]))
	require.Equal(t, "old.zarr", list[1].Object.Path)
	require.Equal(t, []int64{0, 7}, present(&list[1].Fields[0]))

	under := at("s3://bucket/train/old.zarr/")
	list, err = find(t, under, crops)
	require.NoError(t, err)
	require.Equal(t, "base.zarr", list[0].Object.Path)
	require.Equal(t, []int64{0, 7}, present(&list[0].Fields[0]))
	o, _ := list[0].Fields[0].Object(7)
	b := make([]byte, o.SizeBytes)
	require.NoError(t, storage.ReadAt(t.Context(), under, o, b, 0), "as it was listed")
	require.EqualValues(t, 1, b[14])

	was := list[0].Object.Version
	servers.WriteObject(t, bucket, "train/old.zarr/data/1/1/1", append(b, 0))
	list, err = find(t, under, crops)
	require.NoError(t, err)
	require.NotEqual(t, was, list[0].Object.Version)
	require.ErrorIs(t, storage.ReadAt(t.Context(), under, o, b, 0), storage.ErrChanged)
}

// TestGridsAtWebServer: nginx does not list.
func TestGridsAtWebServer(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	written := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	hierarchy(t, func(name, content string) {
		path := filepath.Join(dir, name)
		write(t, path, content)
		require.NoError(t, os.Chtimes(path, written, written))
	})
	url := servers.Nginx(t, dir, "")
	at := func(name string) storage.Storage {
		got, err := target.Parse(url + "/" + name + "/zarr")
		require.NoError(t, err)
		got.Web.Names = nil
		source, err := web.Open(t.Context(), *got.Web, web.Options{Transport: transport(t)})
		require.NoError(t, err)
		return engine(t, source)
	}
	under := at("old.zarr")
	list, err := find(t, under, crops)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 7}, present(&list[0].Fields[0]))
	o, _ := list[0].Fields[0].Object(7)
	b := make([]byte, o.SizeBytes)
	require.NoError(t, storage.ReadAt(t.Context(), under, o, b, 0), "as it was listed")
	require.EqualValues(t, 1, b[14])

	list, err = find(t, at("new/data"), crops)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 3, 5, 7, 9, 11}, present(&list[0].Fields[0]))
	require.Contains(t, refused(t, at("new"), crops), "the dataset has to be an array or a group")
	list, err = find(t, at("new"), named("data"))
	require.NoError(t, err)
	require.Equal(t, []int64{1, 3, 5, 7, 9, 11}, present(&list[0].Fields[0]))
}
