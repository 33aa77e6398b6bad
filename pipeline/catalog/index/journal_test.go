package index

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func storeIn(dir string, log io.Writer) *Store {
	return &Store{dir: dir, name: "x", log: slog.New(slog.NewTextHandler(log, nil))}
}

func TestAFullDiskEndsInMemory(t *testing.T) {
	var log bytes.Buffer
	j := newJournal(storeIn(t.TempDir(), &log), "jsonl")
	defer j.close(false)
	s := plainShard{decoded: 10}
	b := s.pack(t, false)
	add := func(i int) {
		require.NoError(t, j.append(i, Shard{Object: storage.Object{Path: fmt.Sprint(i)}, Blob: b}))
		require.NoError(t, j.flush())
	}
	add(0)
	readOnly, err := os.Open(j.parts[0].f.Name())
	require.NoError(t, err)
	require.NoError(t, j.parts[0].f.Close())
	j.parts[0].f = readOnly // writes fail from here on
	add(1)
	add(2)
	require.True(t, j.inMemory())
	found := map[int]Blob{}
	maps, err := j.blobs(func(i int, _ uint32, b Blob) { found[i] = b })
	require.NoError(t, err)
	require.Equal(t, map[int]Blob{0: b, 1: b, 2: b}, found)
	for _, m := range maps {
		require.NoError(t, m.Close())
	}
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"))
}

func TestDiskLossDuringIndexBuildIsDetected(t *testing.T) {
	s := plainShard{decoded: 10}
	b := s.pack(t, false)
	for _, lost := range []int64{0, 1, int64(len(b)) - 1} {
		j := newJournal(storeIn(t.TempDir(), io.Discard), "jsonl")
		require.NoError(t, j.append(0, Shard{Object: storage.Object{Path: "a"}, Blob: b}))
		require.NoError(t, j.flush())
		at := j.where[0].at + lost
		_, err := j.parts[0].f.WriteAt([]byte{b[lost] ^ 1}, at)
		require.NoError(t, err)
		maps, err := j.blobs(func(int, uint32, Blob) {})
		require.ErrorContains(t, err, "lost what was written to it", "byte %d", lost)
		require.ErrorContains(t, err, "--index-dir")
		for _, m := range maps {
			require.NoError(t, m.Close())
		}
		j.close(false)
	}
}
