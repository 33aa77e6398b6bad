package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// loopHarness precedes the page's program, and defines what a user provides: decode, model and
// train. The model is the list of what it was trained on, by all ranks, as if they averaged their
// gradients. Each step and each call of os.replace counts as an event. At the event KILL_AT the
// rank kills its process group: all ranks, and their loaders' workers.
const loopHarness = `
import json, os, signal, sys
import torch

events, kill_at = 0, int(os.environ["KILL_AT"])
epochs, workers = int(os.environ["EPOCHS"]), int(os.environ["WORKERS"])
mounting = {"grow": True, "run": "run", "settle": "100ms", "min_new": "1shards"}

def event():
    global events
    events += 1
    if events == kill_at:
        os.killpg(0, signal.SIGKILL)

def replace(*names, original=os.replace):
    event()
    original(*names)
    event()
os.replace = replace

def decode(sample):
    return sample["y"]

class Model:
    def __init__(self): self.seen = {}
    def state_dict(self): return self.seen
    def load_state_dict(self, seen): self.seen = seen
model = Model()

def train(batch):
    together = [batch.tolist()]
    if dataset.ranks > 1:
        together = [None] * dataset.ranks
        torch.distributed.all_gather_object(together, batch.tolist())
    model.seen.setdefault(epoch, []).extend(sum(together, []))
    arriving = f"shards/{epoch + 2}.jsonl"  # the shard that the next epoch needs
    if dataset.rank == 0 and os.path.exists(arriving):
        os.rename(arriving, f"data/{epoch + 2}.jsonl")
    event()
`

// loopEnd follows it: at the end, rank 0 writes what the model was trained on.
const loopEnd = `
if dataset.rank == 0:
    with open("trained.json", "w") as f: json.dump(model.seen, f)
`

// TestPythonPageLoopResumesAfterKillsWithEveryRecordOnce runs the blocks of "Train
// with torch", concatenated, over a growing dataset. It kills all of it at random events and
// resumes with other numbers of ranks and workers.
func TestPythonPageLoopResumesAfterKillsWithEveryRecordOnce(t *testing.T) {
	serve.Tier(t, serve.CI)
	needFUSE(t)
	interpreter := python(t, "torch")
	page, err := os.ReadFile("../cmd/lsiofs/manual/python.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## Train with torch\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	loop := strings.Join(blocks(section, "python"), "\n")
	for _, change := range [][2]string{
		{`"/data/train", batch=64`, `"data", batch=4, **mounting`}, {"batch_size=64", "batch_size=4"}, {"step * 64", "step * 4"},
		{"step % 100", "step % 12"}, {"num_workers=4", "num_workers=workers"}, {"data.position.epoch, 10)", "data.position.epoch, epochs)"},
	} {
		require.Equal(t, 1, strings.Count(loop, change[0]), "%s in\n%s", change[0], loop)
		loop = strings.Replace(loop, change[0], change[1], 1)
	}

	// A shard has 12 batches, and every 12th step saves: so all numbers of files divide what is
	// left, and --tail drop drops nothing.
	const perShard = 48
	kills, epochs := 4, 3
	if serve.Runs(serve.Night) {
		kills, epochs = 20, 9
	}
	dir := t.TempDir()
	for _, name := range []string{"data", "shards"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	for shard := range epochs + 1 {
		var b bytes.Buffer
		for n := shard * perShard; n < (shard+1)*perShard; n++ {
			fmt.Fprintf(&b, `{"y": %d}`+"\n", n)
		}
		at := "shards"
		if shard < 2 {
			at = "data"
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, at, fmt.Sprintf("%d.jsonl", shard)), b.Bytes(), 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "loop.py"), []byte(loopHarness+loop+loopEnd), 0o644))

	// Killed loaders leave things in TMPDIR. It is short, because they create sockets there.
	tmp, err := os.MkdirTemp("/tmp", "lsiofs-loop-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(tmp) })
	r := rand.New(rand.NewPCG(serve.Seed(t), 27))
	for killed := 0; ; {
		ranks, workers, at := 1+r.IntN(3), 1+r.IntN(2), 0
		if killed < kills {
			at = 1 + r.IntN(24)
		}
		t.Logf("%d ranks of %d workers, killed at event %d", ranks, workers, at)
		ended := runRanks(t, dir, tmp, interpreter, ranks, fmt.Sprintf("KILL_AT=%d", at), fmt.Sprintf("EPOCHS=%d", epochs), fmt.Sprintf("WORKERS=%d", workers))
		if ended {
			break
		}
		killed++
	}

	var trained map[string][]int
	b, err := os.ReadFile(filepath.Join(dir, "trained.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &trained))
	require.Len(t, trained, epochs)
	for epoch := range epochs {
		want := make([]int, (2+epoch)*perShard)
		for n := range want {
			want[n] = n
		}
		require.ElementsMatch(t, want, trained[fmt.Sprint(epoch)], "epoch %d", epoch)
	}
}

// runRanks runs loop.py in dir with that many ranks, in a separate process group. It reports
// whether they finished; false means that they were killed.
func runRanks(t *testing.T, dir, tmp, interpreter string, ranks int, env ...string) (ended bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), mountLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", `
rank=0 pids=
while [ $rank -lt "$2" ]; do RANK=$rank "$1" loop.py & pids="$pids $!"; rank=$((rank + 1)); done
for pid in $pids; do wait "$pid" || exit; done`, "sh", interpreter, fmt.Sprint(ranks))
	cmd.Dir = dir
	cmd.Env = environment(tmp)
	if ranks > 1 {
		cmd.Env = append(cmd.Env, "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+freePort(t))
	}
	cmd.Env = append(append(cmd.Env, fmt.Sprintf("WORLD_SIZE=%d", ranks)), env...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = clientLimit // for servers, which hold the output and end by themselves
	err := cmd.Run()
	require.NoError(t, ctx.Err(), "%s", said.String())
	if err == nil {
		return true
	}
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", said.String())
	status, isStatus := exit.Sys().(syscall.WaitStatus)
	require.True(t, isStatus && status.Signaled() && status.Signal() == syscall.SIGKILL, "%v: %s", err, said.String())
	return false
}
