package slurm

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A dataset is indexed by an array of jobs, and trained on by six ranks on three nodes; that job is
// cancelled, submitted again for four ranks on two nodes, requeued in its middle, and ends by itself:
// every record was trained on once, and no node has a mount or a process left.
func TestAJobThatIsCancelledResizedAndRequeuedTrainsOnEachRecordOnce(t *testing.T) {
	c := start(t)
	examples, err := filepath.Abs("../../examples")
	require.NoError(t, err)
	bin := filepath.Join(c.dir, "bin")
	require.NoError(t, os.Mkdir(bin, 0o755))
	output(t, "go", "build", "-o", bin, "../../cmd/lsiofs")

	const shards, records = 12, 50
	data := filepath.Join(c.dir, "data")
	require.NoError(t, os.Mkdir(data, 0o755))
	for i := range shards {
		var b strings.Builder
		for k := range records {
			fmt.Fprintf(&b, "{\"label\": \"%d-%d\"}\n", i, k)
		}
		require.NoError(t, os.WriteFile(filepath.Join(data, fmt.Sprintf("%02d.jsonl", i)), []byte(b.String()), 0o644))
	}
	c.env = []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "PYTHONPATH=" + examples + "/python/src", "HOME=" + c.dir,
		"DATASET=" + data, "STATE=" + c.dir + "/shared", "RUN=first", "STEP_SECONDS=0.2",
		"TRAIN=/usr/bin/python3 " + examples + "/slurm/train.py",
	}

	array := c.submit(examples + "/slurm/index.sbatch")
	c.ended(array)
	indexed, err := filepath.Glob(c.dir + "/slurm-" + array + "_*.out")
	require.NoError(t, err)
	require.Len(t, indexed, 8)
	for _, path := range indexed {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Contains(t, string(b), "indexed ", path)
	}

	saves := func(attempt int) string { return fmt.Sprintf("%s/shared/first/%d", c.dir, attempt) }
	job := c.submit("--nodes=3", "--ntasks-per-node=2", examples+"/slurm/train.sbatch")
	c.eventually("six ranks have trained", func() bool { return c.trained(saves(0)) == 6 })
	require.Equal(t, [nodes]int{1, 1, 1}, c.mounts(), "one mount a node")
	c.onController("scancel", job)
	c.ended(job)
	c.nothingLeft()
	first := c.used(saves(0))
	require.Less(t, first, shards*records, "it was cancelled in its middle")

	job = c.submit("--nodes=2", "--ntasks-per-node=2", examples+"/slurm/train.sbatch")
	c.eventually("four ranks have trained", func() bool { return c.trained(saves(1)) == 4 })
	c.onController("scontrol", "requeue", job)
	c.eventually("it has begun once more", func() bool { _, err := os.Stat(saves(2)); return err == nil })
	c.ended(job)
	c.nothingLeft()

	require.Contains(t, c.outputOf(job), "attempt 2: 4 ranks on 2 nodes, after 1")
	require.Equal(t, shards*records, first+c.used(saves(1))+c.used(saves(2)))
	model := map[string]int{}
	merged := filepath.Join(c.dir, "merged")
	require.NoError(t, os.MkdirAll(merged+"/before", 0o755))
	saved, err := filepath.Glob(saves(2) + "/checkpoint-*.json")
	require.NoError(t, err)
	output(t, "cp", append(saved, merged+"/before")...)
	output(t, "/usr/bin/python3", examples+"/slurm/train.py", "merge", merged, saves(2))
	b, err := os.ReadFile(merged + "/model.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &model))
	require.Len(t, model, shards*records)
	for label, n := range model {
		require.Equal(t, 1, n, label)
	}
}

// output is that of a program of this machine.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	b, err := exec.Command(program, args...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", program, args, b)
	return string(b)
}

// submit submits a batch job, and gives its number.
func (c *cluster) submit(args ...string) string {
	c.t.Helper()
	out := c.onController(append([]string{"sbatch", "--parsable", "--export=ALL"}, args...)...)
	return strings.TrimSpace(out)
}

// ended waits until a job is through.
func (c *cluster) ended(job string) {
	c.t.Helper()
	c.eventually("job "+job+" has ended; "+c.outputOf(job), func() bool {
		out, err := c.try("squeue", "-h", "-j", job)
		if err != nil {
			return strings.Contains(err.Error(), "Invalid job id") // it is forgotten
		}
		return strings.TrimSpace(out) == ""
	})
}

func (c *cluster) outputOf(job string) string {
	b, _ := os.ReadFile(c.dir + "/slurm-" + job + ".out")
	return string(b)
}

// consumed is what the ranks of an attempt have saved that they have used.
func (c *cluster) consumed(saves string) (list []int) {
	paths, err := filepath.Glob(saves + "/checkpoint-*.json")
	require.NoError(c.t, err)
	for _, path := range paths {
		rank, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "checkpoint-"), ".json"))
		require.NoError(c.t, err)
		var k struct{ Done []struct{ Consumed []int } }
		b, err := os.ReadFile(path)
		require.NoError(c.t, err)
		require.NoError(c.t, json.Unmarshal(b, &k), "%s: %s", path, b)
		list = append(list, k.Done[len(k.Done)-1].Consumed[rank])
	}
	return list
}

// trained is how many ranks of an attempt have used records.
func (c *cluster) trained(saves string) (n int) {
	for _, used := range c.consumed(saves) {
		if used > 0 {
			n++
		}
	}
	return n
}

// used is how many records an attempt has used.
func (c *cluster) used(saves string) (sum int) {
	for _, used := range c.consumed(saves) {
		sum += used
	}
	return sum
}

// mounts is how many mounts of lsiofs each node has.
func (c *cluster) mounts() (n [nodes]int) {
	for i, h := range c.nodes {
		b, err := os.ReadFile("/proc/" + h.PID + "/mountinfo")
		require.NoError(c.t, err)
		n[i] = strings.Count(string(b), " /tmp/lsiofs-")
	}
	return n
}

// nothingLeft waits until no node has a mount, its directory, or a process of a job.
func (c *cluster) nothingLeft() {
	c.t.Helper()
	var left []string
	defer func() {
		if c.t.Failed() {
			c.t.Logf("left: %v", left)
		}
	}()
	c.eventually("no node has anything left", func() bool {
		left = nil
		for i, h := range c.nodes {
			for line := range strings.Lines(h.Run("ps", "-eo", "comm=")) {
				name := strings.TrimSpace(line)
				if slices.Contains([]string{"lsiofs", "python3", "slurmstepd", "srun", "bash"}, name) {
					left = append(left, h.Name+": process "+name)
				}
			}
			files, err := os.ReadDir("/proc/" + h.PID + "/root/tmp")
			require.NoError(c.t, err)
			for _, f := range files {
				left = append(left, h.Name+": /tmp/"+f.Name())
			}
			if n := c.mounts()[i]; n > 0 {
				left = append(left, h.Name+": mounts")
			}
		}
		return len(left) == 0
	})
}
