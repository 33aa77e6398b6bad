package cluster

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// image makes an image of static programs, for the driver and for pods, as `docker save` writes one.
func (c *cluster) image() {
	t := c.t
	build := func(dir, pkg, name string) {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-buildvcs=false", "-o", filepath.Join(c.dir, name), pkg)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	build("../..", "./cmd/lsiofs", "lsiofs")
	build("../../cmd/lsiofs-csi", ".", "lsiofs-csi")
	build(".", "./pod", "pod")
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, d := range []string{"tmp", "var", "var/cache", "etc"} {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: d + "/", Typeflag: tar.TypeDir, Mode: 0o1777}))
	}
	add(t, w, "etc/passwd", 0o644, []byte("root:x:0:0::/:/pod\nuser:x:1000:1000::/:/pod\n"))
	for _, name := range []string{"lsiofs", "lsiofs-csi", "pod"} {
		b, err := os.ReadFile(filepath.Join(c.dir, name))
		require.NoError(t, err)
		add(t, w, name, 0o755, b)
	}
	require.NoError(t, w.Close())
	sum := sha256.Sum256(layer.Bytes())
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Cmd": []string{"/pod", "pause"}, "Env": []string{"PATH=/"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	require.NoError(t, err)
	manifest, err := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{"localhost/test:1", "localhost/lsiofs-csi:1"}, "Layers": []string{"layer.tar"}}})
	require.NoError(t, err)
	path := filepath.Join(c.dir, "image.tar")
	f, err := os.Create(path)
	require.NoError(t, err)
	w = tar.NewWriter(f)
	add(t, w, "config.json", 0o644, config)
	add(t, w, "layer.tar", 0o644, layer.Bytes())
	add(t, w, "manifest.json", 0o644, manifest)
	require.NoError(t, w.Close())
	require.NoError(t, f.Close())
	c.node.Run("ctr", "--address", "/run/containerd/containerd.sock", "--namespace", "k8s.io", "images", "import", path)
}

func add(t *testing.T, w *tar.Writer, name string, mode int64, data []byte) {
	require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(data))}))
	_, err := w.Write(data)
	require.NoError(t, err)
}
