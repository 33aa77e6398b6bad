package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
	"github.com/lsiofs/lsiofs/integration/servers"
)

// training is a run of examples/remote/train.py with its own mount point.
type training struct {
	t      *testing.T
	cmd    *exec.Cmd
	before []int // servers that existed before its mount's
	point  string
	log    string
	out    *serve.Log
	ended  <-chan struct{}
}

// startTraining starts the program in a process group, with its own mount point and its own
// directory for indexes.
func startTraining(t *testing.T, dataset, save string, workers int, more ...string) *training {
	t.Helper()
	r := &training{t: t, before: serverProcesses(), point: t.TempDir(), log: filepath.Join(t.TempDir(), "log"), out: serve.NewLog()}
	args := append([]string{"../examples/remote/train.py", dataset, "--save", save, "--loader-workers", fmt.Sprint(workers), "--mountpoint", r.point, "--log", r.log}, more...)
	r.cmd = exec.Command(python(t, "torch"), args...)
	// Python creates sockets there, whose names have to be short, and leaves them when it is
	// killed.
	tmp := serve.ShortDir(t)
	r.cmd.Env = append(environment(tmp), "XDG_CACHE_HOME="+t.TempDir())
	r.cmd.Stdout, r.cmd.Stderr = r.out, r.out
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	r.ended, err = serve.Launch(r.cmd)
	require.NoError(t, err)
	t.Cleanup(func() {
		select {
		case <-r.ended:
		default:
			r.kill()
		}
	})
	return r
}

// kill kills the program, its loader's workers and its mount's server at once.
func (r *training) kill() {
	r.t.Helper()
	pids := slices.DeleteFunc(serverProcesses(), func(pid int) bool { return slices.Contains(r.before, pid) })
	for _, pid := range append(pids, -r.cmd.Process.Pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
	}
	<-r.ended
	until(r.t, nil, func() bool { return len(serverProcesses()) <= len(r.before) }, "the killed processes end")
	if isMount(r.point) {
		detach(r.point)
	}
}

// batches returns the lines of the log: an epoch, the position in it, and names of samples.
func (r *training) batches() (lines [][]string) {
	r.t.Helper()
	b, err := os.ReadFile(r.log)
	if err != nil {
		require.ErrorIs(r.t, err, os.ErrNotExist)
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasSuffix(line, "\n") {
			lines = append(lines, strings.Fields(line))
		}
	}
	return lines
}

// trains waits until it has logged that many batches.
func (r *training) trains(batches int) {
	r.t.Helper()
	until(r.t, r.ended, func() bool { return len(r.batches()) >= batches }, "%d batches: %s", batches, r.out)
}

// began returns where it resumed, from its first line of output.
func (r *training) began() (epoch, sample int) {
	r.t.Helper()
	words := regexp.MustCompile(`^epoch (\d+), sample (\d+): begins`).FindStringSubmatch(r.out.String())
	require.NotNil(r.t, words, "%s", r.out)
	epoch, err := strconv.Atoi(words[1])
	require.NoError(r.t, err)
	sample, err = strconv.Atoi(words[2])
	require.NoError(r.t, err)
	return epoch, sample
}

// A program trains from a bucket that answers late and cuts connections. It is killed in the middle
// of an epoch, with its mount; resumes at another mount point, with other indexes and workers; is
// killed again, and finishes on a copy of the bucket. What it has trained on, up to the save from
// which the next run resumed, is the epoch, each record once, in order.
func TestExampleRemoteTrainsOnEveryRecordOnceThoughItIsKilledAndGoesOnElsewhere(t *testing.T) {
	serve.Tier(t, serve.CI)
	interpreter := python(t, "torch")
	needFUSE(t)
	d := dataset{name: "images", dir: t.TempDir(), ext: ".tar"}
	output(t, interpreter, "../examples/remote/train.py", "make", d.dir)
	_, bucket, _ := places(t, d)
	p := servers.NewToxiproxy(t, serve.Seed(t))
	t.Setenv("AWS_ENDPOINT_URL", "http://"+p.Before("s3", strings.TrimPrefix(os.Getenv("AWS_ENDPOINT_URL"), "http://")))
	p.Add("s3", "latency", 1, map[string]int{"latency": 20, "jitter": 10})
	p.Add("s3", "reset_peer", 0.3, map[string]int{"timeout": 50})

	save := filepath.Join(t.TempDir(), "run.pt")
	const samples, epochs = 6 * 64, 2
	// It is killed after 13 of 48 steps: the others take longer than a test waits for a processor.
	const pause = "0.5"
	first := startTraining(t, bucket.dir, save, 2, "--pause", pause)
	first.trains(13)
	first.kill()
	second := startTraining(t, bucket.dir, save, 3, "--pause", pause)
	second.trains(13)
	second.kill()
	third := startTraining(t, d.dir, save, 1, "--epochs", fmt.Sprint(epochs))
	<-third.ended
	require.Zero(t, third.cmd.ProcessState.ExitCode(), "%s", third.out)

	var trained [epochs][]string
	for i, r := range []*training{first, second, third} {
		endEpoch, endSample := epochs, 0
		if i < 2 {
			endEpoch, endSample = []*training{second, third}[i].began()
			epoch, sample := r.began()
			require.Greater(t, endEpoch*samples+endSample, epoch*samples+sample, "run %d has saved", i)
			require.Zero(t, endEpoch, "run %d was killed in mid-epoch", i)
		}
		for _, words := range r.batches() {
			epoch, err := strconv.Atoi(words[0])
			require.NoError(t, err)
			sample, err := strconv.Atoi(words[1])
			require.NoError(t, err)
			if epoch*samples+sample < endEpoch*samples+endSample {
				trained[epoch] = append(trained[epoch], words[2:]...)
			}
		}
	}
	for epoch, names := range trained {
		stream := toolOK(t, "cat", d.dir, "--seed", "1", "--batch", "8", "--epoch", fmt.Sprint(epoch))
		list, _ := members(t, stream)
		want := slices.Compact(slices.Collect(func(yield func(string) bool) {
			for _, name := range list {
				if !yield(name[:6]) {
					return
				}
			}
		}))
		require.Len(t, want, samples)
		require.Equal(t, want, names, "epoch %d", epoch)
	}
}
