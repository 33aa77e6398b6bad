package slurm

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

const (
	shards, records = 12, 50
	ranks           = 6 // of train.sbatch
)

// The page of examples/slurm is followed: an array of jobs indexes a dataset, and six ranks on
// three nodes train on it. That job is cancelled, submitted again for four ranks on two nodes,
// requeued half way, and ends by itself; then comes another epoch. According to the ranks' logs
// every record was trained on once, and no node has a mount or a process left.
func TestSlurmPageResumesResizedAndRequeuedJobsWithEachRecordOnce(t *testing.T) {
	serve.Tier(t, serve.CI)
	c := start(t)
	page := c.user()

	require.Len(t, page["Index, on any number of nodes"], 1)
	c.follow(page["Index, on any number of nodes"][0])
	indexed, err := filepath.Glob(c.home() + "/slurm-*_*.out")
	require.NoError(t, err)
	require.Len(t, indexed, 8)
	for _, path := range indexed {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Contains(t, string(b), "indexed ", path)
	}

	train := page["Train"]
	require.Len(t, train, 4)
	saves := func(attempt int) string { return fmt.Sprintf("%s/shared/first/%d", c.dir, attempt) }
	job := c.submitted(train[0])
	c.eventually("six ranks have trained", func() bool { return c.trained(saves(0)) == ranks })
	require.Equal(t, [nodes]int{1, 1, 1}, c.mounts(), "one mount a node")
	c.onController("scancel", job)
	c.ended(job)
	c.nothingLeft()
	cancelled := c.logged(job)
	require.Len(t, cancelled, 1, "one attempt")
	first := cancelled[0].trained(t)
	require.NotEmpty(t, first)
	require.Less(t, len(first), shards*records, "it was cancelled in its middle")

	job = c.submitted(train[1])
	c.eventually("four ranks have trained", func() bool { return c.trained(saves(1)) == 4 })
	c.onController("scontrol", "requeue", job)
	c.eventually("it has begun once more", func() bool { _, err := os.Stat(saves(2)); return err == nil })
	c.ended(job)
	c.nothingLeft()
	require.Contains(t, c.outputOf(job), "attempt 2: 4 ranks on 2 nodes, after 1")
	attempts := c.logged(job)
	requireEachOnce(t, slices.Concat(first, attempts[1].trained(t), attempts[2].trained(t)))

	job = c.submitted(train[2]) // another epoch, which it waits for
	c.nothingLeft()
	requireEachOnce(t, c.logged(job)[0].trained(t))
	shown := c.follow(train[3])
	require.Contains(t, shown, "checkpoint-0.json")

	c.lacksFUSE(train[0])
}

// lacksFUSE: on a node without /dev/fuse the job fails with an error that names it, and no rank
// waits for it.
func (c *cluster) lacksFUSE(train string) {
	h := c.nodes[2]
	h.Run("sh", "-ec", "mkdir /tmp/dev; mount -t tmpfs tmpfs /tmp/dev; cp -a /dev/null /dev/zero /dev/random /dev/urandom /tmp/dev; mount --move /tmp/dev /dev; rmdir /tmp/dev")
	job := c.submitted("export RUN=third\n" + train)
	c.ended(job)
	require.Contains(c.t, c.onController("scontrol", "show", "job", job), "JobState=FAILED")
	require.Contains(c.t, c.outputOf(job), "/dev/fuse")
	c.nothingLeft()
}

// user sets up what followers of the page have, and returns the page's blocks of commands by
// heading.
func (c *cluster) user() map[string][]string {
	t := c.t
	bin := filepath.Join(c.dir, "bin")
	require.NoError(t, os.Mkdir(bin, 0o755))
	output(t, "go", "build", "-o", bin, "../../cmd/lsiofs")
	output(t, "cp", "-r", "../../examples", c.dir)
	data := filepath.Join(c.dir, "data")
	require.NoError(t, os.Mkdir(data, 0o755))
	for i := range shards {
		var b strings.Builder
		for k := range records {
			fmt.Fprintf(&b, "{\"label\": \"%d-%d\"}\n", i, k)
		}
		require.NoError(t, os.WriteFile(filepath.Join(data, fmt.Sprintf("%02d.jsonl", i)), []byte(b.String()), 0o644))
	}
	b, err := os.ReadFile(filepath.Join(c.home(), "README.md"))
	require.NoError(t, err)
	blocks := map[string][]string{}
	heading := ""
	for _, m := range regexp.MustCompile("(?ms)^#+ (.*?)$|^ *```sh\n(.*?)^ *```$").FindAllStringSubmatch(string(b), -1) {
		if m[1] != "" {
			heading = m[1]
			continue
		}
		blocks[heading] = append(blocks[heading], m[2])
	}
	set := blocks["lsiofs on Slurm"]
	require.Len(t, set, 1)
	set[0] = strings.NewReplacer("/data/train", data, "/shared/train", c.dir+"/shared", "cd examples/slurm", "cd "+c.home()).Replace(set[0])
	c.set = set[0]
	c.env = []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "PYTHONPATH=" + c.dir + "/examples/python/src", "HOME=" + c.dir, "STEP_SECONDS=0.2",
		"TRAIN=/usr/bin/python3 " + c.home() + "/train.py", // which has the libraries on this machine
	}
	return blocks
}

// home returns the directory where users submit jobs.
func (c *cluster) home() string { return c.dir + "/examples/slurm" }

// follow runs a block of the page, preceded by its setup commands.
func (c *cluster) follow(block string) string {
	c.t.Helper()
	return c.onController("bash", "-euo", "pipefail", "-c", c.set+block)
}

// submitted returns the job that a block submits.
func (c *cluster) submitted(block string) string {
	c.t.Helper()
	out := c.follow(block)
	m := regexp.MustCompile(`Submitted batch job (\d+)`).FindStringSubmatch(out)
	require.NotNil(c.t, m, out)
	return m[1]
}

// output returns the output of a program on this machine.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	b, err := exec.Command(program, args...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", program, args, b)
	return string(b)
}

// ended waits until a job has ended.
func (c *cluster) ended(job string) {
	c.t.Helper()
	c.eventually("job "+job+" has ended; "+c.outputOf(job), func() bool {
		out, err := c.try("squeue", "-h", "-j", job)
		if err != nil {
			return strings.Contains(err.Error(), "Invalid job id") // it is not known any more
		}
		return strings.TrimSpace(out) == ""
	})
}

func (c *cluster) outputOf(job string) string {
	b, _ := os.ReadFile(c.home() + "/slurm-" + job + ".out")
	return string(b)
}

// consumed returns how many records each rank of an attempt has saved as used.
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

// trained returns how many ranks of an attempt have used records.
func (c *cluster) trained(saves string) (n int) {
	for _, used := range c.consumed(saves) {
		if used > 0 {
			n++
		}
	}
	return n
}

// lsiofsMount matches a line of mountinfo. A node's namespace begins as a copy of the machine's,
// which may have mounts of other tests, and other file systems in directories with similar names
// (podman's storage).
var lsiofsMount = regexp.MustCompile(` /tmp/lsiofs-\S+ .* - fuse\.lsiofs `)

// mounts returns how many mounts of lsiofs each node has.
func (c *cluster) mounts() (n [nodes]int) {
	for i, h := range c.nodes {
		b, err := os.ReadFile("/proc/" + h.PID + "/mountinfo")
		require.NoError(c.t, err)
		n[i] = len(lsiofsMount.FindAll(b, -1))
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
