package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestManifestsAreValid(t *testing.T) {
	paths, err := filepath.Glob("*.yaml")
	require.NoError(t, err)
	require.Len(t, paths, 6)
	for _, path := range paths {
		var out strings.Builder
		require.NoError(t, show(path, &out), path)
		require.Contains(t, out.String(), `"kind":`, path)
	}
}

func TestMistakesAreRefused(t *testing.T) {
	for _, c := range []struct{ mistake, file, old, new, why string }{
		{"a field that does not exist", "sidecar.yaml", ", mountPropagation: Bidirectional", ", propagation: Bidirectional", "unknown field"},
		{"a field twice", "sidecar.yaml", "  restartPolicy: Never\n", "  restartPolicy: Never\n  restartPolicy: Always\n", "already set"},
		{"a version that does not exist", "train.yaml", "batch/v1", "batch/v2", "no kind"},
		{"a number that is none", "train.yaml", "completions: 4", "completions: four", "cannot unmarshal"},
		{"a quantity that is none", "sidecar.yaml", "limits: {memory: 1280Mi}", "limits: {memory: 1280MiB}", "quantities must match"},
		{"a volume that does not exist", "begin.yaml", "        - name: state\n", "        - name: stat\n", "there is no volume state"},
		{"a volume that nobody mounts", "begin.yaml", "            - {name: data, mountPath: /data, readOnly: true}\n", "", "volume data is mounted nowhere"},
		{"a path twice", "begin.yaml", "mountPath: /state", "mountPath: /data", "there twice"},
		{"a mount that nobody sees", "sidecar.yaml", ", mountPropagation: HostToContainer", "", "another has to see them"},
		{"a mount that stays inside", "sidecar.yaml", ", mountPropagation: Bidirectional", "", "another has to see them"},
		{"no privilege", "sidecar.yaml", "privileged: true", "privileged: false", "Bidirectional takes privileged"},
		{"no sidecar", "sidecar.yaml", "      restartPolicy: Always\n", "", "is no sidecar"},
		{"a trainer that does not wait", "sidecar.yaml", "startupProbe:", "livenessProbe:", "no startupProbe"},
		{"a limit below the budget", "sidecar.yaml", "--memory, 1GiB", "--memory, 2GiB", "needs 2304Mi"},
		{"fewer pods at a time", "train.yaml", "completions: 4", "completions: 3", "completions and parallelism differ"},
		{"more files than pods", "train.yaml", `workers: "4"`, `workers: "5"`, "workers is 5, completions 4"},
		{"more ranks than pods", "ranks.yaml", `WORLD_SIZE, value: "2"`, `WORLD_SIZE, value: "3"`, "WORLD_SIZE is 3, completions 2"},
		{"more parts than pods", "index.yaml", `PARTS, value: "4"`, `PARTS, value: "3"`, "PARTS is 3, completions 4"},
		{"a volume that anybody gets", "storage.yaml", "  claimRef: {namespace: default, name: train-data}\n", "", "anybody's claim"},
		{"a volume that is not kept", "storage.yaml", "  persistentVolumeReclaimPolicy: Retain\n", "", "Retain"},
		{"a job that restarts for ever", "train.yaml", "      restartPolicy: Never\n", "", "a job takes"},
		{"a name that is none", "begin.yaml", "name: begin\nspec", "name: Begin\nspec", "RFC 1123"},
	} {
		t.Run(c.mistake, func(t *testing.T) {
			b, err := os.ReadFile(c.file)
			require.NoError(t, err)
			require.Contains(t, string(b), c.old)
			path := filepath.Join(t.TempDir(), c.file)
			require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(b), c.old, c.new, 1)), 0o600))
			require.ErrorContains(t, show(path, &strings.Builder{}), c.why)
		})
	}
}
