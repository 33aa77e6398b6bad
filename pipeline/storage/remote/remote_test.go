package remote_test

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// BenchmarkRead reads ranges through the engine, 16 at a time; loop makes the same requests with
// net/http alone. The difference is the cost of the engine.
func BenchmarkRead(b *testing.B) {
	for _, size := range []int64{64 * kib, 256 * kib, mib} {
		server := faultserver.New()
		server.PutBytes("a.tar", make([]byte, 16*mib))
		b.Run(fmt.Sprintf("loop/size=%dKiB", size/kib), func(b *testing.B) {
			source := faultserver.ConnectLoopback(b, server)
			read16(b, size, func(p []byte, off int64) error {
				a, err := source.Open(b.Context(), "a.tar", "", off, size)
				if err != nil {
					return err
				}
				defer func() { _ = a.Body.Close() }()
				if a.Status != http.StatusPartialContent {
					return fmt.Errorf("the answer is %d", a.Status)
				}
				_, err = io.ReadFull(a.Body, p)
				return err
			})
		})
		for _, hedge := range []bool{false, true} {
			b.Run(fmt.Sprintf("engine/hedge=%v/size=%dKiB", hedge, size/kib), func(b *testing.B) {
				s := engine(b, faultserver.ConnectLoopback(b, server), func(c *remote.Config) { c.Hedge = hedge })
				o, err := s.Stat(b.Context(), "a.tar")
				require.NoError(b, err)
				read16(b, size, func(p []byte, off int64) error { return storage.ReadAt(b.Context(), s, o, p, off) })
			})
		}
	}
}

func read16(b *testing.B, size int64, read func(p []byte, off int64) error) {
	b.SetBytes(size)
	b.ReportAllocs()
	b.SetParallelism(8) // times 2 cores
	var turn atomic.Int64
	b.RunParallel(func(each *testing.PB) {
		p := make([]byte, size)
		for each.Next() {
			if err := read(p, turn.Add(1)*4096%(16*mib-size)); err != nil {
				b.Error(err)
			}
		}
	})
}
