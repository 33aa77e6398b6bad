package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/mounts"
)

func TestOnlyPodsWithSameRequestShareServer(t *testing.T) {
	d, data := startDriver(t), dataset(t)
	settings := map[string]string{"dataset": data, "workers": "2", "seed": "7"}
	a, b := pod{name: "a", attributes: settings}, pod{name: "b", attributes: settings}
	other := pod{name: "c", attributes: map[string]string{"dataset": data, "workers": "2", "seed": "8"}}
	want := stream(t, data, "--seed", "7", "--worker", "1/2")
	for _, p := range []pod{a, b, a} { // kubelet may call again
		require.NoError(t, d.publish(p))
		d.requireReads(p, "worker-1.jsonl", want)
	}
	require.Len(t, d.servers(), 1)
	require.NoError(t, d.publish(other))
	require.Len(t, d.servers(), 2)
	d.requireReads(other, "worker-1.jsonl", stream(t, data, "--seed", "8", "--worker", "1/2"))

	d.unpublish(a)
	d.requireReads(b, "worker-1.jsonl", want)
	_, err := os.Lstat(d.target(a))
	require.ErrorIs(t, err, os.ErrNotExist)
	d.unpublish(b)
	require.Len(t, d.servers(), 1)
	d.unpublish(b) // again
	d.unpublish(other)
	d.requireNothingLeft()
}

func TestPodsWriteOnlyCheckpointAndOnlyIfEnabled(t *testing.T) {
	d, data := startDriver(t), dataset(t)
	reads := pod{name: "reads", attributes: map[string]string{"dataset": data}}
	writes := pod{name: "writes", attributes: map[string]string{"dataset": data, "checkpoint": "write"}}
	readonly := pod{name: "readonly", attributes: writes.attributes, readonly: true}
	for _, p := range []pod{reads, writes, readonly} {
		require.NoError(t, d.publish(p))
	}
	require.Len(t, d.servers(), 1, "whether it writes is the pod's, and not the server's")
	restore := func(p pod, file string) error {
		c := exec.Command("sh", "-c", `echo '{"epoch": 3}' > "$1"`, "sh", filepath.Join(d.target(p), file))
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		return c.Run()
	}
	require.Error(t, restore(reads, "checkpoint"))
	require.ErrorIs(t, os.WriteFile(filepath.Join(d.target(reads), "checkpoint"), []byte(`{"epoch": 3}`), 0o644), syscall.EROFS, "root neither")
	require.Error(t, restore(readonly, "checkpoint"))
	require.Error(t, restore(writes, "worker-0.jsonl"))
	require.Error(t, restore(writes, "new"))
	require.NoError(t, restore(writes, "checkpoint"))
	text, err := d.read(reads, "checkpoint")
	require.NoError(t, err)
	require.Contains(t, string(text), `"epoch": 3`)
	for _, p := range []pod{reads, writes, readonly} {
		d.unpublish(p)
	}
	d.requireNothingLeft()
}

func TestNodeDirectoriesMayBeLinks(t *testing.T) {
	d, data := newNode(t), dataset(t)
	for _, dir := range []string{"kubelet", "state"} {
		require.NoError(t, os.Rename(d.path(dir), d.path("real-"+dir)))
		require.NoError(t, os.Symlink("real-"+dir, d.path(dir)))
	}
	d.start()
	a := pod{name: "a", attributes: map[string]string{"dataset": data}}
	for range 3 {
		require.NoError(t, d.publish(a))
	}
	table, err := mounts.Read()
	require.NoError(t, err)
	require.Len(t, table.Below(d.dir), 2)
	d.kill()
	d.start()
	require.NoError(t, d.publish(a))
	d.requireReads(a, "worker-0.jsonl", stream(t, data))
	d.unpublish(a)
	table, err = mounts.Read()
	require.NoError(t, err)
	require.Empty(t, table.Below(d.dir))
}

// Each pod reads what it asked for, and the last one leaves nothing.
func TestManyPodsStartAndStopConcurrently(t *testing.T) {
	d, data := startDriver(t), dataset(t)
	const pods, rounds = 8, 6
	want := [2][]byte{stream(t, data, "--seed", "0"), stream(t, data, "--seed", "1")}
	errs := make([]error, pods)
	var all sync.WaitGroup
	for i := range pods {
		all.Go(func() {
			errs[i] = func() error {
				for round := range rounds {
					seed := (i + round) % 2
					p := pod{name: fmt.Sprintf("p%d", i), attributes: map[string]string{"dataset": data, "seed": fmt.Sprint(seed)}}
					if err := d.publish(p); err != nil {
						return err
					}
					got, err := d.read(p, "epoch-0/worker-0-of-1.jsonl")
					if err != nil || !bytes.Equal(got, want[seed]) {
						return fmt.Errorf("round %d: %d bytes, %w", round, len(got), err)
					}
					d.unpublish(p)
				}
				return nil
			}()
		})
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
	d.requireNothingLeft()
}
