package integration

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestManualCommandsForArrivingGamesRun runs the commands of growing.md about games, which
// the other pages' dataset does not contain: the same lines, with the number of games available
// here.
func TestManualCommandsForArrivingGamesRun(t *testing.T) {
	needFUSE(t)
	bash := need(t, "bash")
	page, err := os.ReadFile(filepath.Join(manualDir, "growing.md"))
	require.NoError(t, err)
	lines := slices.DeleteFunc(commandLines(string(page)), func(line string) bool { return !strings.Contains(line, "/data/games") })
	require.Len(t, lines, 3, "a line more or less: %q", lines)
	bin, work, mnt := t.TempDir(), t.TempDir(), t.TempDir()
	require.NoError(t, os.Symlink(lsiofs, filepath.Join(bin, "lsiofs")))
	games, _ := trainingGames(t, 6, 24)
	script := "set -e\ntrap 'code=$?; lsiofs umount --lazy /mnt/games || true; exit $code' EXIT\n"
	for _, line := range lines {
		mount := strings.HasPrefix(line, "lsiofs mount ")
		switch {
		case strings.Contains(line, "--resume ckpt.json"):
			script += "cp /mnt/games/checkpoint ckpt.json\n" +
				`run=$(sed -n 's/.*"run_directory": *"\([^"]*\)".*/\1/p' /mnt/games/status.json)` + "\n" +
				"lsiofs snapshots \"$run\" | grep -q '^ *0 '\n" + // as the text describes it
				"lsiofs snapshots \"$run\" --unused /data/games\n" +
				"cat /mnt/games/worker-0.bin > before\nlsiofs umount /mnt/games\n" +
				"lsiofs mount --grow /data/games /mnt/games --run \"$run\" --resume ckpt.json --daemon\ncat /mnt/games/worker-0.bin > rest\nlsiofs umount /mnt/games\n"
		case mount:
		default:
			require.Contains(t, line, "| train")
		}
		if mount {
			line += " --daemon"
		}
		script += line + "\n"
	}
	script += "cmp rest /mnt/games/worker-0.bin\n" +
		"test \"$(cat came)\" = 83560\nlsiofs umount /mnt/games\nlsiofs mount /data/games /mnt/games --snapshot \"$run\"/snapshots/*.gz --daemon\ncmp before /mnt/games/worker-0.bin\n"
	script = strings.NewReplacer("/data/games", games.dir, "/mnt/games", mnt, "/new/run", filepath.Join(work, "new"),
		"40000units", "24units", "| train", "| head -c 83560 | wc -c > came", "8f29….gz", `"$run"/snapshots/*.gz`).Replace(script)
	r := command(t, nil, nil, bash, "-c", `cd "$0" && PATH="$1:$PATH" && eval "$2"`, work, bin, script)
	require.Zero(t, r.code, "%s\n%s\n%s", script, r.stdout, r.stderr)
	requireServersEnd(t)
}

// TestTrainingLoopOfManualWaitsForEpochs runs the loop of growing.md as it is there, except
// for its path and its pause.
func TestTrainingLoopOfManualWaitsForEpochs(t *testing.T) {
	needFUSE(t)
	t.Parallel() // a shard is taken a second after it has arrived
	interpreter := need(t, "python3")
	page, err := os.ReadFile(filepath.Join(manualDir, "growing.md"))
	require.NoError(t, err)
	loops := blocks(string(page), "python")
	require.Len(t, loops, 1)
	g := newGrowing(t)
	g.arrive()
	m := mountAt(t, g.data, t.TempDir(), g.flags(usual(), t.TempDir())...)
	came := filepath.Join(t.TempDir(), "came")
	loop := strings.NewReplacer("/mnt/games", m.dir, ".bin", ".tar", "sleep(5)", "sleep(0.05)").Replace(loops[0])
	loop = fmt.Sprintf(`import hashlib
def train_on(games):
    with open(%q, "a") as came:
        print(hashlib.sha256(games.read()).hexdigest(), file=came)
`, came) + loop
	training := exec.Command(interpreter, "-c", loop)
	exited := launch(t, training)
	for epoch := range 3 {
		until(t, exited, func() bool {
			b, _ := os.ReadFile(came)
			return strings.Count(string(b), "\n") > epoch
		}, "epoch %d", epoch)
		require.NoFileExists(t, filepath.Join(g.runDir, fmt.Sprintf("epoch-%d", epoch+1)), "it has no new shard")
		g.arrive()
	}
	require.NoError(t, training.Process.Kill())
	<-exited
	trained, err := os.ReadFile(came)
	require.NoError(t, err)
	for epoch, sum := range strings.Fields(string(trained))[:3] {
		require.Equal(t, fmt.Sprintf("%x", sha256.Sum256(m.read("epoch-%d/worker-0-of-1.tar", epoch))), sum, "epoch %d", epoch)
	}
}
