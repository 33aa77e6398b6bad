package s3

import (
	"testing"
	"time"

	"os"
	"path/filepath"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/servers"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/storagetest"
)

// engine returns a storage of a folder of a bucket.
func engine(t *testing.T, endpoint string) *remote.Storage {
	config := remote.DefaultConfig()
	config.Hedge = true
	source, _, err := Open(t.Context(), bucket(t, "s3://bucket/train/"), Options{Endpoint: endpoint, Transport: transport(t)})
	require.NoError(t, err)
	s, err := remote.New(source, config) // s closes source
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// Runs the suite of all storages over objects with ETags, and over files that were put into the
// server's directory, which have only dates.
func TestStorageOnRealServer(t *testing.T) {
	for name, write := range map[string]func(t *testing.T, dir, key string, content []byte){
		"ETags": func(t *testing.T, dir, key string, content []byte) { servers.WriteObject(t, dir, key, content) },
		"dates": func(t *testing.T, dir, key string, content []byte) {
			put(t, dir, key, string(content))
			written := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
			require.NoError(t, os.Chtimes(filepath.Join(dir, key), written, written))
		},
	} {
		t.Run(name, func(t *testing.T) {
			storagetest.Run(t, func(t *testing.T, files map[string][]byte) storage.Storage {
				endpoint, dir := gateway(t)
				for path, content := range files {
					write(t, dir, "train/"+path, content)
				}
				return engine(t, endpoint)
			})
		})
	}
}

// In listings as well as when it is described. A file with an ETag is not waited for, because the
// ETag is a hash.
func TestUnstableFileWithoutETagIsWaitedFor(t *testing.T) {
	endpoint, dir := gateway(t)
	put(t, dir, "train/dated.tar", "0123456789")
	servers.WriteObject(t, dir, "train/hashed.tar", []byte("0123456789"))
	unsettled := map[string]bool{}
	require.NoError(t, remote.Walk(t.Context(), openAt(t, "s3://bucket/train/", Options{Endpoint: endpoint}), func(l remote.Listed) error {
		unsettled[l.Path] = l.Unsettled > 0
		return nil
	}))
	require.False(t, unsettled["hashed.tar"])
	require.Contains(t, unsettled, "dated.tar")

	s := engine(t, endpoint)
	o, err := s.StatStable(t.Context(), "dated.tar")
	require.NoError(t, err)
	now := time.Now()
	info, err := os.Stat(filepath.Join(dir, "train/dated.tar"))
	require.NoError(t, err)
	require.False(t, now.Before(info.ModTime().Truncate(time.Second).Add(2*time.Second)), "by this clock: versitygw's is late by a second, or more where it is held up")
	require.NoError(t, storage.ReadAt(t.Context(), s, o, make([]byte, 10), 0))
}
