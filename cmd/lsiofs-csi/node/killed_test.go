package node_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/limit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/mounts"
	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/node"
	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/scratch"
	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/state"
	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/volume"
)

// Variables of the process that kills itself.
const (
	variableStep    = "LSIOFS_CSI_TEST_STEP" // after which step
	variableDir     = "LSIOFS_CSI_TEST_DIR"
	variableProgram = "LSIOFS_CSI_TEST_PROGRAM"
)

var program string // lsiofs

func TestMain(m *testing.M) {
	if os.Getenv(variableStep) != "" {
		if err := beKilled(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(func() int {
		dir, remove, err := scratch.Programs("../../..")
		if err == nil {
			defer remove()
			program = filepath.Join(dir, "lsiofs")
			err = scratch.Build(program, "../../..", "./cmd/lsiofs", "CGO_ENABLED=0")
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// calls are kubelet's calls: two pods that share a server come and go.
var calls = []struct{ what, pod string }{{"publish", "a"}, {"publish", "b"}, {"unpublish", "a"}, {"unpublish", "b"}}

// openNode opens a node in a directory. step is called after each step.
func openNode(dir, program string, step func(string)) (*node.Node, error) {
	store, err := state.Open(filepath.Join(dir, "state"), step)
	if err != nil {
		return nil, err
	}
	return node.Open(node.Config{
		Name: "node-1", Kubelet: filepath.Join(dir, "kubelet"), Store: store, Program: program, Cache: filepath.Join(dir, "cache"),
		Limit: limit.Memory{}, Environment: os.Environ(), Log: slog.New(slog.DiscardHandler), ServerLog: os.Stderr, Patience: time.Minute,
		Policy: volume.Policy{}, Step: step,
	})
}

func target(dir, pod string) string { return filepath.Join(dir, "kubelet", pod, "mount") }

func call(n *node.Node, dir, what, pod string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if what == "unpublish" {
		_, err := n.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: pod, TargetPath: target(dir, pod)})
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target(dir, pod)), 0o755); err != nil {
		return err
	}
	_, err := n.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: pod, TargetPath: target(dir, pod), VolumeContext: map[string]string{"dataset": filepath.Join(dir, "data")},
		VolumeCapability: &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}},
	})
	return err
}

// beKilled makes all calls, printing each before it begins, and kills itself after a step.
func beKilled() error {
	at, err := strconv.Atoi(os.Getenv(variableStep))
	if err != nil {
		return err
	}
	dir, done := os.Getenv(variableDir), 0
	step := func(what string) {
		if done++; done == at {
			fmt.Printf("killed after: %s\n", what)
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {} // until the signal arrives
		}
	}
	n, err := openNode(dir, os.Getenv(variableProgram), step)
	if err != nil {
		return err
	}
	for _, c := range calls {
		fmt.Printf("call %s %s\n", c.what, c.pod)
		if err := call(n, dir, c.what, c.pod); err != nil {
			return err
		}
	}
	return n.Close()
}

// stride is the distance between tested steps: 1, or more with -short.
func stride() int {
	if testing.Short() {
		return 6
	}
	return 1
}

// killedAt runs a driver that is killed after a step. begun is the number of calls that it had
// begun.
func killedAt(t *testing.T, step int) (dir, after string, begun int, killed bool) {
	t.Helper()
	dir = newDir(t)
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), variableStep+"="+strconv.Itoa(step), variableDir+"="+dir, variableProgram+"="+program)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, os.Stderr
	err := c.Run()
	begun = strings.Count(out.String(), "call ")
	if err == nil {
		return dir, "", begun, false
	}
	_, after, killed = strings.Cut(out.String(), "killed after: ")
	require.True(t, killed, "%v: %s", err, &out)
	return dir, strings.TrimSpace(after), begun, true
}

func newDir(t *testing.T) string {
	t.Helper()
	dir, remove := scratch.Dir(t)
	t.Cleanup(func() {
		table, err := mounts.Read()
		require.NoError(t, err)
		for _, point := range table.Below(dir) {
			require.NoError(t, mounts.Detach(point))
		}
		killAll(t, dir)
		remove()
	})
	require.NoError(t, os.Mkdir(filepath.Join(dir, "kubelet"), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "data"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data", "0.jsonl"), []byte("{\"x\": 1}\n"), 0o644))
	return dir
}

// processes returns the servers of a directory.
func processes(t *testing.T, dir string) (pids []int) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, p := range paths {
		if b, err := os.ReadFile(p); err == nil && bytes.Contains(b, []byte(dir+"/state/")) {
			pid, err := strconv.Atoi(strings.Split(p, "/")[2])
			require.NoError(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

func killAll(t *testing.T, dir string) {
	t.Helper()
	require.Eventually(t, func() bool {
		left := processes(t, dir)
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		return len(left) == 0
	}, time.Minute, time.Millisecond)
}

func requireNothingLeft(t *testing.T, dir string) {
	t.Helper()
	table, err := mounts.Read()
	require.NoError(t, err)
	require.Empty(t, table.Below(dir))
	require.Eventually(t, func() bool { return len(processes(t, dir)) == 0 }, time.Minute, time.Millisecond)
	var left []string
	require.NoError(t, filepath.WalkDir(filepath.Join(dir, "state"), func(path string, e fs.DirEntry, err error) error {
		if !e.IsDir() && e.Name() != "key" || e.Name() == "mnt" {
			left = append(left, path)
		}
		return err
	}))
	require.Empty(t, left)
	servers, err := os.ReadDir(filepath.Join(dir, "state", "servers"))
	require.NoError(t, err)
	require.Empty(t, servers)
	for _, pod := range []string{"a", "b"} {
		_, err := os.Lstat(target(dir, pod))
		require.ErrorIs(t, err, os.ErrNotExist)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil || os.Getuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("CI=true, and nothing may be missing: root and /dev/fuse")
		}
		t.Skip("it takes root and /dev/fuse")
	}
}

// Kubelet repeats the call that was interrupted.
func TestNextDriverRecoversFromKillAtAnyStep(t *testing.T) {
	needRoot(t)
	for step := 1; ; step += stride() {
		dir, after, begun, killed := killedAt(t, step)
		if !killed {
			require.Greater(t, step, 25, "there are steps")
			requireNothingLeft(t, dir)
			break
		}
		t.Run(fmt.Sprintf("%d after %s", step, after), func(t *testing.T) {
			n, err := openNode(dir, program, nil)
			require.NoError(t, err)
			for _, c := range calls[max(begun-1, 0):] {
				require.NoError(t, call(n, dir, c.what, c.pod), "%s %s", c.what, c.pod)
				for _, pod := range []string{"a", "b"} {
					if published(c.what, c.pod, pod) {
						text, err := os.ReadFile(filepath.Join(target(dir, pod), "worker-0.jsonl"))
						require.NoError(t, err, "pod %s after %s %s", pod, c.what, c.pod)
						require.Equal(t, "{\"x\": 1}\n", string(text))
					}
				}
			}
			require.NoError(t, n.Close())
			requireNothingLeft(t, dir)
		})
	}
}

// published reports whether a pod has its volume after a call.
func published(what, of, pod string) bool {
	return what == "publish" && (pod == of || pod == "a") || what == "unpublish" && of == "a" && pod == "b"
}

// Servers end with the driver. No call is repeated, because the pods are removed by force
// meanwhile.
func TestNothingRemainsOfRemovedPodsAfterContainerEndsAtAnyStep(t *testing.T) {
	needRoot(t)
	for step := 1; ; step += stride() {
		dir, after, _, killed := killedAt(t, step)
		if !killed {
			break
		}
		t.Run(fmt.Sprintf("%d after %s", step, after), func(t *testing.T) {
			killAll(t, dir)
			for _, pod := range []string{"a", "b"} {
				require.NoError(t, mounts.Detach(target(dir, pod)))
			}
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "kubelet")))
			require.NoError(t, os.Mkdir(filepath.Join(dir, "kubelet"), 0o755))
			n, err := openNode(dir, program, nil)
			require.NoError(t, err)
			n.Heal(t.Context())
			require.NoError(t, n.Close())
			requireNothingLeft(t, dir)
		})
	}
}
