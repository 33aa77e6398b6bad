package remote_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/faultserver"
	"github.com/lsiofs/lsiofs/pipeline/storage/storagetest"
)

func engine(t testing.TB, source remote.Source, change func(*remote.Config)) *remote.Storage {
	config := remote.DefaultConfig()
	if change != nil {
		change(&config)
	}
	s, err := remote.New(source, config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func serve(files map[string][]byte) *faultserver.Server {
	server := faultserver.New()
	for path, data := range files {
		server.PutBytes(path, data)
	}
	return server
}

func TestStorage(t *testing.T) {
	storagetest.Run(t, func(t *testing.T, files map[string][]byte) storage.Storage {
		return engine(t, faultserver.ConnectLoopback(t, serve(files)), nil)
	})
}

func TestStorageWithHedging(t *testing.T) {
	storagetest.Run(t, func(t *testing.T, files map[string][]byte) storage.Storage {
		server := serve(files)
		server.On(faultserver.Method("GET"), faultserver.Delay(1e8)).Share(0.02, 1)
		return engine(t, faultserver.Connect(t, server), func(c *remote.Config) { c.Hedge = true })
	})
}

// Objects whose server has no ETags are distinguished by their dates.
func TestStorageWithDateValidators(t *testing.T) {
	storagetest.Run(t, func(t *testing.T, files map[string][]byte) storage.Storage {
		server := serve(files)
		for path := range files {
			server.Dated(path)
		}
		return engine(t, faultserver.Connect(t, server), nil)
	})
}
