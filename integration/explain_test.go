package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/backing"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// TestPromtoolAcceptsMetrics also collects them as described in the README.
func TestPromtoolAcceptsMetrics(t *testing.T) {
	serve.Tier(t, serve.CI)
	promtool := need(t, "promtool")
	m := mountDataset(t, plain(t, "tar", 3), usual())
	m.read("worker-0.tar")

	dir := t.TempDir()
	script := `cp "$1/metrics" "$2/lsiofs.prom.$$" && mv "$2/lsiofs.prom.$$" "$2/lsiofs.prom"`
	out, err := exec.Command("sh", "-c", script, "sh", m.dir, dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "lsiofs.prom")}, files)
	text, err := os.ReadFile(files[0])
	require.NoError(t, err)
	for _, stage := range []string{"index", "order", "storage", "decompress", "gather", "copy", "fuse"} {
		require.Contains(t, string(text), `lsiofs_stage_busy_seconds_total{stage="`+stage+`"} `)
		require.Contains(t, string(text), `lsiofs_stage_wait_seconds_total{stage="`+stage+`"} `)
	}

	ctx, cancel := context.WithTimeout(t.Context(), clientLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, promtool, "check", "metrics")
	cmd.Stdin = bytes.NewReader(text)
	out, err = cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Empty(t, string(out))
}

func TestTopShowsMountAndEndsWithIt(t *testing.T) {
	m := mountDataset(t, plain(t, "tar", 3), usual())
	m.read("worker-0.tar")
	ctx, cancel := context.WithTimeout(t.Context(), clientLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, lsiofs, "top", m.dir, "--once").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "worker-0.tar")
	require.Regexp(t, `(?m)^epoch \d+, [\d.]+ % read`, string(out))
	sentence, _, _ := strings.Cut(string(m.read("status")), "\n")
	require.NotEmpty(t, sentence, "status begins with what readers wait for")

	top := exec.CommandContext(ctx, lsiofs, "top", m.dir)
	var stderr bytes.Buffer
	top.Stderr = &stderr
	lines, err := top.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, top.Start())
	_, err = lines.Read(make([]byte, 1)) // it has started
	require.NoError(t, err)
	m.end()
	require.Error(t, top.Wait())
	require.Equal(t, 4, top.ProcessState.ExitCode())
	require.Equal(t, "lsiofs: "+m.dir+" was unmounted, or its server ended\n", stderr.String())
}

// topSays waits until top's verdict has this kind and contains these words.
func (m *mount) topSays(kind, words string) {
	m.t.Helper()
	var last result
	m.until(func() bool {
		last = tool(m.t, "top", m.dir, "--once", "--json")
		var frame struct{ Verdict struct{ Kind, Text string } }
		return last.code == 0 && json.Unmarshal(last.stdout, &frame) == nil && frame.Verdict.Kind == kind && strings.Contains(frame.Verdict.Text, words)
	}, "%s is what top says at last: %v", kind, &last)
}

func TestTopNamesTheSlowDisk(t *testing.T) {
	d, b := backingDataset(t, big(t), backing.Options{})
	m := mountDataset(t, d, bigSettings(), "--memory", "1MiB", "--direct", "on")
	var slow []backing.Fault
	for i := range 16 {
		slow = append(slow, backing.Fault{Path: string(rune('a'+i)) + ".bin", To: 1 << 20, Do: backing.Slow})
	}
	b.Fail(slow...)
	start(t, `head -c 4096 "$1"; while :; do cat "$1" >/dev/null; done`, m.path("worker-0.bin"))
	m.topSays("storage", "readers wait for ")
}

func TestTopNamesTheSlowReader(t *testing.T) {
	m := mountDataset(t, big(t), bigSettings())
	start(t, `exec 3<"$1"; head -c 4096 <&3; while :; do head -c 4096 <&3 >/dev/null; sleep 0.2; done`, m.path("epoch-0/worker-0-of-1.bin"))
	m.topSays("readers", "the loader is not the bottleneck")
}
