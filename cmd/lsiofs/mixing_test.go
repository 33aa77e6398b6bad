package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Without the warning, a folder of images with captions would silently become lines of captions.
func TestMountWarnsIfItReadsOnlyTextsNextToImages(t *testing.T) {
	needMount(t)
	data, mnt := t.TempDir(), t.TempDir()
	for i := range 3 {
		require.NoError(t, os.WriteFile(filepath.Join(data, fmt.Sprintf("%d.jpg", i)), []byte("picture"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(data, fmt.Sprintf("%d.txt", i)), []byte("caption\n"), 0o600))
	}
	t.Cleanup(func() { endDaemon(t, mnt) })
	for dataset, warned := range map[string]bool{data: true, filepath.Join(data, "*.txt"): false} {
		out, err := program(t, "mount", dataset, mnt, "--daemon", "--index-dir", t.TempDir()).CombinedOutput()
		require.NoError(t, err, "%s", out)
		if warned {
			require.Contains(t, string(out), "warning: 3 shards of format lines found, and 3 files skipped: if each file is a sample")
		} else {
			require.NotContains(t, string(out), "skipped: if")
		}
		ok(t, "umount", mnt)
	}
}
