package integration

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/killing"
)

// TestCheckpointIsDurableBeforeItIsRenamed kills a command before each call with which it writes
// a checkpoint: the file is always the old one or the new one, complete. The order of the calls
// guarantees that even if the machine fails.
func TestCheckpointIsDurableBeforeItIsRenamed(t *testing.T) {
	text := func(consumed string) string {
		return `{"version": 1, "dataset": "d", "order": {"seed": 42, "shuffle": "none", "size": 1, "lanes": 1, "groups": 1, "batch": 1, "chunk_bytes": 1, "chunk_records": 1},` +
			` "epoch": 0, "done": [{"batch": 1, "consumed": [` + consumed + `]}]}`
	}
	source := filepath.Join(t.TempDir(), "source.json")
	require.NoError(t, os.WriteFile(source, []byte(text("7")), 0o600))
	want := toolOK(t, "checkpoint", "merge", source)
	old := text("5")

	save := func(at int) (calls []killing.Call, dir, file string, err error) {
		dir = t.TempDir()
		file = filepath.Join(dir, "ckpt.json")
		require.NoError(t, os.WriteFile(file, []byte(old), 0o600))
		cmd := exec.Command(lsiofs, "checkpoint", "merge", source, "-o", file)
		cmd.Env = os.Environ()
		var output bytes.Buffer
		cmd.Stdout, cmd.Stderr = &output, &output
		calls, err = killing.Run(cmd, at, dir)
		t.Logf("killed at %d: %v %s", at, calls, &output)
		return calls, dir, file, err
	}
	calls, dir, file, err := save(-1)
	require.NoError(t, err)
	require.Len(t, calls, 5)
	temp := calls[0].Path
	require.NotEqual(t, file, temp)
	require.Equal(t, []killing.Call{
		{Name: "openat", Path: temp}, {Name: "write", Path: temp}, {Name: "fsync", Path: temp},
		{Name: "renameat", Path: file}, {Name: "fsync", Path: dir},
	}, calls)

	for at := range calls {
		_, _, file, err := save(at)
		require.ErrorIs(t, err, killing.ErrKilled)
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		if at <= 3 { // before the rename
			require.Equal(t, old, string(got))
		} else {
			require.Equal(t, string(want), string(got))
		}
	}
}
