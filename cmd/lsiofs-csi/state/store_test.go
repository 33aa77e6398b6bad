package state

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNewStoreFindsExistingRecords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s, err := Open(dir, nil)
	require.NoError(t, err)
	key, err := s.Key()
	require.NoError(t, err)
	require.Len(t, key, keyBytes)
	v := Volume{ID: "v", Target: "/pods/1/mount", Server: "k", Writable: true, Pod: "p"}
	r := Server{Key: "k", Dataset: "/data", Args: []string{"--seed=1"}, Credentials: true, Process: Process{PID: 7, Ticks: 8, Boot: "b"}}
	require.NoError(t, s.PutVolume(v))
	require.NoError(t, s.PutServer(r))
	// What a killed writer has left.
	left := filepath.Join(s.ServerDir("k"), "server.json"+unfinished)
	require.NoError(t, os.WriteFile(left, []byte("{"), 0o600))

	again, err := Open(dir, nil)
	require.NoError(t, err)
	same, err := again.Key()
	require.NoError(t, err)
	require.Equal(t, key, same)
	got, found, err := again.Volume(v.Target)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, v, got)
	server, found, err := again.Server("k")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, r, server)
	require.NoFileExists(t, left)
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := e.Info()
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077, path)
		return nil
	}))
	require.NoError(t, again.RemoveVolume(v.Target))
	require.NoError(t, again.RemoveVolume(v.Target))
	require.NoError(t, again.RemoveServer("k"))
	all, err := again.Volumes()
	require.NoError(t, err)
	require.Empty(t, all)
	keys, err := again.Servers()
	require.NoError(t, err)
	require.Empty(t, keys)
}

func TestErrorNamesDamagedRecord(t *testing.T) {
	s, err := Open(t.TempDir(), nil)
	require.NoError(t, err)
	require.NoError(t, s.PutVolume(Volume{Target: "/t"}))
	require.NoError(t, os.WriteFile(s.volumeFile("/t"), []byte("{"), 0o600))
	_, _, err = s.Volume("/t")
	require.ErrorContains(t, err, s.volumeFile("/t"))
	_, err = s.Volumes()
	require.Error(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.Dir(), "key"), []byte("short"), 0o600))
	_, err = s.Key()
	require.ErrorContains(t, err, "remove it")
}
