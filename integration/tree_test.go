package integration

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func splitOffsets(b []byte) []uint64 {
	var offsets []uint64
	for ; len(b) >= 8; b = b[8:] {
		offsets = append(offsets, binary.LittleEndian.Uint64(b))
	}
	return offsets
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	slices.Sort(out)
	return out
}

func TestTheTreeListsWhatItPromises(t *testing.T) {
	s := usual()
	s.Workers, s.Epoch = 2, 3
	m := mountDataset(t, plain(t, "tar", 3), s)

	require.Subset(t, names(t, m.dir), []string{
		"README", "checkpoint", "dataset.json", "epoch-3", "epoch-4", "metrics", "status", "status.json",
		"worker-0.ids", "worker-0.offsets", "worker-0.tar", "worker-1.ids", "worker-1.offsets", "worker-1.tar",
	})
	require.Subset(t, names(t, m.path("epoch-3")), []string{
		"worker-0-of-2.ids", "worker-0-of-2.offsets", "worker-0-of-2.tar",
		"worker-1-of-2.ids", "worker-1-of-2.offsets", "worker-1-of-2.tar",
	})
	require.Contains(t, string(m.read("README")), m.dir)
	require.NotEmpty(t, m.read("metrics"))

	var about map[string]any
	require.NoError(t, json.Unmarshal(m.read("dataset.json"), &about))
	require.Contains(t, about, "fingerprint")
	var status map[string]any
	require.NoError(t, json.Unmarshal(m.read("status.json"), &status))
	require.Contains(t, status["pipeline"], "storage")
	require.Regexp(t, `\nstorage      \w+, (default for|tuned) .*: reads of up to `, string(m.read("status")))
}

func TestPathsThatCannotExistAreNotFound(t *testing.T) {
	s := usual()
	s.Workers = 4
	m := mountDataset(t, plain(t, "jsonl", 3), s)
	for _, path := range []string{
		"worker-4.jsonl", "worker-0.tar", "worker-00.jsonl", "worker--1.jsonl", "epoch-", "epoch-x", "epoch-01", "epoch--1",
		"epoch-18446744073709551616", "epoch-0/worker-5-of-4.jsonl", "epoch-0/worker-4-of-4.jsonl", "epoch-0/worker-0-of-0.jsonl",
		"epoch-0/worker-01-of-4.jsonl", "epoch-0/worker-0-of-65537.jsonl", "epoch-0/from-999999", "epoch-0/from-01", "epoch-0/from-",
		"epoch-0/worker-0-of-4", "epoch-0/worker-0-of-4.tar", "nothing",
	} {
		_, err := os.Stat(m.path("%s", path))
		require.ErrorIs(t, err, os.ErrNotExist, "%s", path)
	}
	for _, path := range []string{"epoch-18446744073709551615/worker-65535-of-65536.jsonl", "epoch-0/from-0/worker-0-of-1.ids"} {
		_, err := os.Stat(m.path("%s", path))
		require.NoError(t, err, "%s", path)
	}
}

func TestTreeIsReadOnlyExceptCheckpoint(t *testing.T) {
	m := mountDataset(t, plain(t, "jsonl", 2), usual())
	for name, err := range map[string]error{
		"writing a stream":            os.WriteFile(m.path("worker-0.jsonl"), []byte("x"), 0o644),
		"making a file in an epoch":   os.WriteFile(m.path("epoch-0/x"), []byte("x"), 0o644),
		"removing a stream":           os.Remove(m.path("worker-0.jsonl")),
		"making a directory":          os.Mkdir(m.path("d"), 0o755),
		"renaming a stream":           os.Rename(m.path("worker-0.jsonl"), m.path("w")),
		"linking":                     os.Link(m.path("worker-0.jsonl"), m.path("l")),
		"truncating a stream":         os.Truncate(m.path("worker-0.jsonl"), 1),
		"putting a stream in its way": os.Rename(m.path("worker-0.jsonl"), m.path("checkpoint")),
	} {
		require.Error(t, err, name)
		require.NotErrorIs(t, err, syscall.EIO, name)
		require.NotErrorIs(t, err, syscall.ENOSYS, name)
	}
	require.NotEmpty(t, m.read("worker-0.jsonl"))
}
