package pipeline

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
)

// Datasets are read by the profile that lsiofs tune has stored for their endpoint.
func TestRemoteDatasetIsReadByProfileOfItsEndpoint(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	w := serveShards(t, synthetic.Shape{Format: "tar", RecordBytes: 4096}, 20)
	s := testSpec(t, w.dir)
	s.Dataset, s.IndexDir = w.url, t.TempDir()
	d := open(t, s)
	require.Equal(t, storage.DefaultProfile(storage.KindWeb), d.Status().Storage)

	p := storage.DefaultProfile(storage.KindWeb)
	p.Depth, p.Tuned = 77, time.Unix(1e9, 0).UTC()
	dir, err := filesystem.ProfileDir()
	require.NoError(t, err)
	_, err = filesystem.SaveProfile(dir, filesystem.StoredProfile{Place: filesystem.Endpoint(storage.KindWeb, d.Catalog().Root()), Profile: p})
	require.NoError(t, err)
	require.Equal(t, p, open(t, s).Status().Storage)
}
