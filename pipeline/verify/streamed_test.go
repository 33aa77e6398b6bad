package verify

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/faultserver"
)

// atServer is a copy of a dataset on a server.
type atServer struct {
	server  *faultserver.Server
	engine  *remote.Storage
	catalog *catalog.Catalog
}

func copyToServer(t *testing.T, d dataset, format string, recordBytes int64) atServer {
	t.Helper()
	server := faultserver.New()
	for _, path := range d.files {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		server.PutBytes(filepath.Base(path), b)
	}
	// However busy the machine is, no request is repeated.
	return openAt(t, server, 10*time.Minute, format, recordBytes)
}

// openAt indexes a dataset on a server, with an engine that repeats a request after that much
// silence.
func openAt(t *testing.T, server *faultserver.Server, silence time.Duration, format string, recordBytes int64) atServer {
	t.Helper()
	a := atServer{server: server}
	config := remote.DefaultConfig()
	config.FirstByteTimeout, config.SlowTime, config.SlowBytes = silence, silence, 1
	var err error
	a.engine, err = remote.New(faultserver.Connect(t, a.server), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.engine.Close()) })
	target, err := discover.At("http://unkind.test/data", discover.Choice{})
	require.NoError(t, err)
	f := spec.Format{Name: format, Remainder: spec.RemainderCorrupt}
	if format == "fixed" {
		f.RecordBytes = recordBytes
	}
	a.catalog, err = catalog.Open(t.Context(), catalog.Config{
		Dataset: target.Root(), Target: &target, Format: f, OnCorrupt: spec.CorruptSkip, IndexDir: t.TempDir(), Profile: storage.DefaultProfile(storage.KindObject),
		OpenStorage: func(string, string) (storage.Storage, error) { return a.engine, nil },
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.catalog.Close()) })
	return a
}

func (a *atServer) verify(ctx context.Context) (r Report, requests int, err error) {
	before := len(a.server.Log())
	r, err = Shards(ctx, Config{Catalog: a.catalog, Storage: a.engine, Profile: storage.DefaultProfile(storage.KindObject), MemoryBytes: 64 << 20})
	return r, len(a.server.Log()) - before, err
}

// Shards on a server are read completely with one request each, in every format, and their findings
// are those of their copies on a disk.
func TestRemoteShardsAreVerifiedLikeLocalCopies(t *testing.T) {
	for _, c := range []struct{ format, codec string }{
		{"tar", ""}, {"tar", "gz"}, {"jsonl", ""}, {"jsonl", "zst"}, {"jsonl", "lz4"}, {"tfrecord", ""}, {"npy", ""}, {"fixed", ""}, {"lc0", "tar"},
	} {
		t.Run(c.format+"."+c.codec, func(t *testing.T) {
			size := 4096
			if c.format == "lc0" {
				size = 8356
			}
			d := makeDataset(t, c.format, c.codec, 3, 300, size)
			if c.format == "tfrecord" { // the index pass only reads its lengths
				change(t, d.files[1], func(b []byte) { b[len(b)/2] ^= 1 })
			}
			a := copyToServer(t, d, c.format, int64(size))
			want := d.verify(t)
			got, requests, err := a.verify(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.Equal(t, c.format == "tfrecord", got.Total > 0)
			require.Equal(t, 3, requests)

			a = openAt(t, a.server, time.Second, c.format, int64(size))
			a.server.On(faultserver.Method("GET"), faultserver.Reset(100_000)).Times(2)
			a.server.On(faultserver.Method("GET"), faultserver.Stall(50_000)).After(2).Times(1)
			a.server.On(faultserver.Method("GET"), faultserver.Status(503, "SlowDown")).After(3).Times(1)
			got, _, err = a.verify(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, got, "faults that pass change nothing")

			a.server.Change(filepath.Base(d.files[0]))
			a.server.Delete(filepath.Base(d.files[2]))
			got, _, err = a.verify(t.Context())
			require.NoError(t, err)
			require.Len(t, got.Unread, 2)
			require.Equal(t, filepath.Base(d.files[2]), got.Unread[1].Shard)
			require.Contains(t, got.Unread[1].Reason, "run verify again")

			for _, answer := range []faultserver.Fault{faultserver.Status(403, "AccessDenied"), faultserver.Status(403, "ExpiredToken"), faultserver.Status(401, ""), faultserver.Status(404, "NoSuchKey")} {
				a = openAt(t, a.server, time.Second, c.format, int64(size))
				refuses := a.server.On(faultserver.Method("GET"), answer)
				got, _, err = a.verify(t.Context())
				refuses.Off()
				require.NoError(t, err)
				require.Empty(t, got.Findings)
				require.NotEmpty(t, got.Unread)
				require.Contains(t, got.Unread[0].Reason, "the answer is 40")
			}
		})
	}
}

// A pass over a server that does not respond ends with its context.
func TestRemoteVerifyStopsWithItsContext(t *testing.T) {
	d := makeDataset(t, "tar", "", 3, 100, 4096)
	a := copyToServer(t, d, "tar", 4096)
	ctx, cancel := context.WithCancel(t.Context())
	a.server.On(faultserver.Method("GET"), func(r *faultserver.Reply) { cancel(); faultserver.Hang()(r) })
	_, _, err := a.verify(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

// However many concurrent shards suit a storage, buffers and decoders stay within the memory limit.
func TestVerifyStaysWithinItsMemory(t *testing.T) {
	d := makeDataset(t, "tar", "", 40, 1, 4096)
	remote := storage.DefaultProfile(storage.KindObject)
	for _, memory := range []int64{0, 64 << 20, 1 << 30, 8 << 30} {
		r := newRun(Config{Catalog: d.catalog, Storage: d.storage, Profile: remote, MemoryBytes: memory})
		require.Nil(t, r.streams)
		held := int64(min(r.workers, len(r.queue))*r.depth) * remote.ReadBytes
		require.LessOrEqual(t, held, max(memory, 32<<20)/2, "%d bytes", memory)
		require.GreaterOrEqual(t, r.depth, 2)
		require.GreaterOrEqual(t, r.workers, 1)
	}
}
