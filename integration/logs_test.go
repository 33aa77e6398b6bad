package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// logLines returns the lines of a JSON log that have a message.
func logLines(t *testing.T, log, msg string) (lines []map[string]any) {
	t.Helper()
	for line := range strings.Lines(log) {
		var m map[string]any
		if json.Unmarshal([]byte(line), &m) == nil && m["msg"] == msg {
			lines = append(lines, m)
		}
	}
	return lines
}

func TestTheLogHasALineAFaultAndALineOfStatusWhenAsked(t *testing.T) {
	d := big(t)
	m := mountDataset(t, d, inOrder(), "--memory", "1MiB", "--log-format", "json", "--log-level", "error")
	require.NoError(t, os.Truncate(filepath.Join(d.dir, "a.bin"), 5000))
	f, err := os.Open(m.path("worker-0.bin"))
	require.NoError(t, err)
	defer f.Close()
	for range 100 {
		_, err = f.ReadAt(make([]byte, 100), 500<<10)
		require.ErrorIs(t, err, syscall.EIO)
	}
	m.requireLog("a read failed")
	faults := logLines(t, m.log.String(), "a read failed")
	require.Len(t, faults, 1)
	require.Equal(t, "a.bin", faults[0]["object"])
	require.Equal(t, "EIO", faults[0]["errno"])
	require.EqualValues(t, 1, faults[0]["count"])
	require.Regexp(t, `^\[\d+, \d+\)$`, faults[0]["range"])

	require.NoError(t, m.cmd.Process.Signal(syscall.SIGUSR1))
	m.until(func() bool { return len(logLines(t, m.log.String(), "status")) == 1 })
	status := logLines(t, m.log.String(), "status")[0]
	require.EqualValues(t, 4096, status["records"])
	require.EqualValues(t, 100, status["errors"])
	require.Equal(t, m.dir, status["mount_point"])

	require.NoError(t, f.Close())
	require.NoError(t, m.cmd.Process.Signal(syscall.SIGTERM))
	require.True(t, m.ended(clientLimit))
	faults = logLines(t, m.log.String(), "a read failed")
	require.Len(t, faults, 2, "and a line at the end that counts them")
	require.EqualValues(t, 100, faults[1]["count"])

	r := tool(t, "mount", d.dir, m.dir, "--log-format", "xml")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.stderr, `"xml" is not a log format: use text or json`)
}
