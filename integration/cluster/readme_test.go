package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	shards, records = 8, 40
	ranksBatch      = 4 // of each DataLoader worker, in ranks.yaml
)

// data makes the dataset of the page, with records for both of its trainers.
func (c *cluster) data() {
	for i := range shards {
		var b strings.Builder
		for k := range records {
			fmt.Fprintf(&b, "{\"label\": \"%d-%d\", \"x\": [%d, %d], \"y\": %d}\n", i, k, k%7, k%3, i*records+k)
		}
		require.NoError(c.t, os.WriteFile(filepath.Join(c.dir, "data", fmt.Sprintf("%02d.jsonl", i)), []byte(b.String()), 0o644))
	}
	for _, d := range []string{"data", "state"} {
		require.NoError(c.t, os.Chmod(filepath.Join(c.dir, d), 0o777))
	}
}

// followsThePage follows examples/kubernetes/README.md, heading by heading, and meanwhile disturbs
// pods as a cluster does.
func (c *cluster) followsThePage() {
	c.data()
	page := c.page("examples/kubernetes/README.md")
	all := func(heading string, blocks int) {
		c.t.Helper()
		require.Len(c.t, page[heading], blocks, heading)
		for _, block := range page[heading] {
			c.follow(block)
		}
	}
	c.kubectl("label", "namespace", "default", "pod-security.kubernetes.io/enforce=restricted")
	all("Images", 2)
	c.follow(page["Ranks that train one model"][0][:strings.Index(page["Ranks that train one model"][0], "\n")+1]) // only the line that builds its image, while both nodes live
	all("Storage and driver", 1)
	c.eventually("the driver is ready on both nodes", func() bool {
		out, _ := c.try("get", "daemonset", "-n", "lsiofs", "lsiofs-csi", "-o", "jsonpath={.status.numberReady}")
		return out == "2"
	})
	all("Index", 1)

	// Training is slowed down.
	c.edit("examples/kubernetes/train.yaml", "          # JOB_COMPLETION_INDEX", "          env: [{name: STEP_RECORDS, value: \"2\"}, {name: STEP_SECONDS, value: \"1\"}]\n          # JOB_COMPLETION_INDEX")
	said := c.collect("train")
	c.follow(page["A job that loses pods"][0])
	require.Contains(c.t, c.kubectl("logs", "job/begin"), "(8 had a stored index)", "of the parts, which four pods have indexed")
	c.losesPods(said)
	require.Contains(c.t, c.follow(page["A job that loses pods"][1]), "trained from")
	c.edit("examples/kubernetes/train.yaml", `{name: STEP_SECONDS, value: "1"}`, `{name: STEP_SECONDS, value: "0"}`)
	steps := strings.SplitAfterN(page["… and continues with other pods"][0], "\n", 2)
	c.follow(steps[0]) // the old job is deleted
	first := allOf(c.t, workersOf(c.t, said.end()))
	require.NotEmpty(c.t, first)
	require.Less(c.t, len(first), shards*records, "it was stopped before its end")
	said = c.collect("train")
	c.follow(steps[1])
	second := allOf(c.t, workersOf(c.t, said.end()))
	requireEachOnce(c.t, append(first, second...))

	steps = strings.SplitAfterN(page["… and continues with other pods"][1], "\n", 2)
	c.follow(steps[0])
	said = c.collect("train")
	c.follow(steps[1])
	requireEachOnce(c.t, allOf(c.t, workersOf(c.t, said.end())))
	c.kubectl("delete", "job", "train", "begin", "index", "--cascade=foreground")
	c.eventually("the servers have ended", func() bool { return c.servers() == 0 })
}

// losesPods kills one of the four pods, evicts another, deletes a third, and kills the node of the
// fourth; each comes back and continues.
func (c *cluster) losesPods(said *logs) {
	one, two := c.nodes[0], c.nodes[1]
	c.eventually("four pods have trained", func() bool { return len(c.saved(said, 1)) == 4 })
	require.Equal(c.t, 1, c.servers(), "one server for the pods of a node")
	onOne := strings.Fields(c.kubectl("get", "pods", "--selector", "job-name=train", "--field-selector", "spec.nodeName="+one.Name, "-o", "jsonpath={.items[*].metadata.name}"))
	onTwo := strings.Fields(c.kubectl("get", "pods", "--selector", "job-name=train", "--field-selector", "spec.nodeName="+two.Name, "-o", "jsonpath={.items[*].metadata.name}"))
	require.Len(c.t, onOne, 2)
	require.Len(c.t, onTwo, 2)
	one.Run("sh", "-c", fmt.Sprintf(`for p in $(pgrep -f "^python3 /app/train.py"); do if grep -qz "^JOB_COMPLETION_INDEX=%d$" /proc/$p/environ; then kill -9 $p; fi; done`, indexOf(c.t, onOne[0])))
	eviction := c.write("eviction.json", `{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "`+onOne[1]+`", "namespace": "default"}}`)
	c.kubectl("create", "--raw", "/api/v1/namespaces/default/pods/"+onOne[1]+"/eviction", "-f", eviction)
	c.kubectl("delete", "pod", onTwo[0], "--wait=false")
	lost := c.saved(said, 1)[indexOf(c.t, onTwo[1])]
	c.die(two)
	c.follow(strings.Replace("kubectl taint nodes NODE node.kubernetes.io/out-of-service=nodeshutdown:NoExecute", "NODE", two.Name, 1))
	c.eventually("all have trained again, and the one of the dead node on the other", func() bool {
		more := map[int]bool{}
		for pod, text := range said.now() {
			if pod != onOne[0] && pod != onOne[1] && pod != onTwo[0] && pod != onTwo[1] && strings.Contains(text, "saved ") {
				more[indexOf(c.t, pod)] = true
			}
		}
		return len(more) == 4
	})
	require.GreaterOrEqual(c.t, c.saved(said, 1)[indexOf(c.t, onTwo[1])], lost)
	c.kubectl("delete", "node", two.Name)
}

// saved returns, by index, how many records the pods have logged as saved, for those that saved at
// least that many.
func (c *cluster) saved(said *logs, least int) map[int]int {
	counts := map[int]int{}
	for i, w := range workersOf(c.t, said.now()) {
		if w.counts >= least {
			counts[i] = w.counts
		}
	}
	return counts
}

// trainsRanks follows the page's part about ranks: one is killed and all start again; then there
// are three.
func (c *cluster) trainsRanks() {
	blocks := c.page("examples/kubernetes/README.md")["Ranks that train one model"]
	require.Len(c.t, blocks, 2)
	c.edit("examples/kubernetes/ranks.yaml", `--log, "-"]`, `--log, "-", --pause, "0.5"]`)
	said := c.collect("ranks")
	_, apply, _ := strings.Cut(blocks[0], "\n") // without the line that builds the image
	c.follow(apply)
	stepped := func(least int) func() bool {
		return func() bool { return len(ranksOf(c.t, said.now()).steps) >= least }
	}
	c.eventually("they have taken 8 steps", stepped(8))
	c.nodes[0].Run("sh", "-c", `for p in $(pgrep -f "^python3 /app/train.py"); do if grep -qz "^RANK=1$" /proc/$p/environ; then kill -9 $p; fi; done`)
	c.eventually("both have begun again", func() bool { return len(ranksOf(c.t, said.now()).begins) >= 4 })
	c.eventually("and taken more steps", stepped(15))
	again := strings.SplitAfterN(blocks[1], "\n", 2)
	c.follow(again[0])
	two := ranksOf(c.t, said.end())
	said = c.collect("ranks")
	c.edit("examples/kubernetes/ranks.yaml", `, --pause, "0.5"]`, `]`)
	c.follow(again[1])
	three := ranksOf(c.t, said.end())
	at := three.begins[0]
	require.Positive(c.t, at)
	require.Equal(c.t, at, three.begins[2], "three ranks begin where two have saved")
	end := at
	for len(three.steps[end]) > 0 {
		end += 3 * ranksBatch
	}
	require.Greater(c.t, end, shards*records-2*3*ranksBatch, "what is left out is less than a step of all loaders")
	targets := append(two.trained(c.t, 2, 0, at, ranksBatch), three.trained(c.t, 3, at, end, ranksBatch)...)
	seen := map[string]bool{}
	for _, y := range targets {
		require.False(c.t, seen[y], "record %s twice", y)
		seen[y] = true
	}
	c.t.Logf("two ranks: %d records; three: %d", at, end-at)
	c.kubectl("delete", "job", "ranks", "--cascade=foreground")
	c.eventually("the servers have ended", func() bool { return c.servers() == 0 })
}

// mountsInAPod follows the page's part without the driver.
func (c *cluster) mountsInAPod() {
	blocks := c.page("examples/kubernetes/README.md")["Without a driver"]
	require.Len(c.t, blocks, 1)
	c.kubectl("label", "namespace", "default", "--overwrite", "pod-security.kubernetes.io/enforce=privileged")
	begun := time.Now()
	out := c.follow(blocks[0])
	c.t.Logf("%.1f s", time.Since(begun).Seconds())
	require.Equal(c.t, 4, strings.Count(out, "/worker-")/3, out) // its records, ids and offsets
	c.kubectl("delete", "pod", "train-alone")
	c.kubectl("label", "namespace", "default", "--overwrite", "pod-security.kubernetes.io/enforce=restricted")
}
