package readtest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/faultserver"
)

// Served is a dataset on a web server.
type Served struct {
	*Dataset
	Server  *faultserver.Server
	Storage *remote.Storage
}

// Serve puts a dataset on a web server. From then on its index refers to the server's objects.
func Serve(t testing.TB, d *Dataset) Served {
	t.Helper()
	s := Served{Dataset: d, Server: faultserver.New()}
	for _, shard := range d.Index.ShardTable {
		b, err := os.ReadFile(filepath.Join(d.Dir, shard.Object.Path))
		require.NoError(t, err)
		s.Server.PutBytes(shard.Object.Path, b)
	}
	var err error
	s.Storage, err = remote.New(faultserver.Connect(t, s.Server), remote.DefaultConfig())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Storage.Close()) })
	listed := map[string]storage.Object{}
	require.NoError(t, s.Storage.List(context.Background(), func(string, bool) bool { return true }, func(o storage.Object) error {
		listed[o.Path] = o
		return nil
	}))
	for i := range d.Index.ShardTable {
		o := &d.Index.ShardTable[i].Object
		require.Contains(t, listed, o.Path)
		*o = listed[o.Path]
	}
	return s
}

// Asked returns how many requests for bytes the server has received so far, and for how many bytes.
func (s *Served) Asked() (requests int, bytes int64) {
	for _, r := range s.Server.Log() {
		if r.Method != "GET" {
			continue
		}
		requests++
		if r.Begin < 0 {
			bytes += s.size(r.Path)
			continue
		}
		bytes += r.End - r.Begin
	}
	return requests, bytes
}

func (s *Served) size(path string) int64 {
	for _, shard := range s.Index.ShardTable {
		if shard.Object.Path == path {
			return shard.Object.SizeBytes
		}
	}
	return 0
}
