package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const shards, records = 8, 40

// What users do with the driver, one after the other on one cluster.
func TestTheDriverOnACluster(t *testing.T) {
	c := start(t)
	c.image()
	for i := range shards {
		var b strings.Builder
		for k := range records {
			fmt.Fprintf(&b, "{\"label\": \"%d-%d\"}\n", i, k)
		}
		require.NoError(t, os.WriteFile(filepath.Join(c.dir, "data", fmt.Sprintf("%02d.jsonl", i)), []byte(b.String()), 0o644))
	}
	for _, d := range []string{"data", "state"} {
		require.NoError(t, os.Chmod(filepath.Join(c.dir, d), 0o777))
	}
	c.apply(c.driver() + "---\n" + c.namespace())
	c.eventually("the driver is ready", func() bool {
		out, _ := c.try("get", "daemonset", "-n", "lsiofs", "lsiofs-csi", "-o", "jsonpath={.status.numberReady}")
		return out == "1"
	})
	for _, part := range []struct {
		name string
		do   func(*cluster)
	}{
		{"a job that loses pods and goes on with other ones trains on each record once", (*cluster).trainsOnce},
		{"pods that ask for the same share a server", (*cluster).shares},
		{"figures", (*cluster).figures},
		{"what is wrong is said in the pod's event", (*cluster).refuses},
		{"a driver that is started again serves on", (*cluster).restarts},
		{"nothing is left", (*cluster).leavesNothing},
	} {
		if !t.Run(part.name, func(t *testing.T) { x := *c; x.t = t; part.do(&x) }) {
			c.describe()
			return
		}
	}
}

// describe logs what there is, when a test has failed.
func (c *cluster) describe() {
	for _, args := range [][]string{{"get", "pods", "-A"}, {"get", "events", "-A"}, {"logs", "-n", "lsiofs", "daemonset/lsiofs-csi", "--tail=40"}} {
		out, err := c.try(args...)
		c.t.Logf("%v: %v\n%s", args, err, out)
	}
}

// begin says where the pods of a run begin, as a job.
func (c *cluster) begin(run, after string) {
	c.apply(job("begin-"+run, 1, podSpec("Never", "", []string{"RUN=" + run, "AFTER=" + after}, "/pod", "begin", "/state")))
	c.completes("begin-" + run)
}

func (c *cluster) completes(job string) {
	c.t.Helper()
	c.eventually("job "+job+" is complete", func() bool {
		out, _ := c.try("get", "job", "-n", "train", job, "-o", `jsonpath={.status.conditions[?(@.type=="Complete")].status}`)
		return out == "True"
	})
}

// trainer is the pod of a run with so many pods.
func (c *cluster) trainer(run string, pods int, step string) string {
	volume := inline("dataset="+c.dir+"/data", "workers="+strconv.Itoa(pods), "resume="+c.dir+"/state/"+run+"/start.json", "memory=64MiB")
	return podSpec("Never", volume, []string{"STEP_RECORDS=4", "STEP_TIME=" + step}, "/pod", "train", "/stream", "/state/"+run)
}

func (c *cluster) trainsOnce() {
	t := c.t
	c.begin("first", "")
	c.apply(job("first", 4, c.trainer("first", 4, "2s")))
	c.eventually("four pods have trained", func() bool { return c.trained("first") == 4 })
	require.Equal(t, 1, c.servers(), "one server for four pods")
	// One is killed, another one is deleted: each comes again for its index.
	c.node.Run("sh", "-c", `for p in $(pgrep -f "^/pod train /stream"); do if grep -qz "^JOB_COMPLETION_INDEX=0$" /proc/$p/environ; then kill -9 $p; fi; done`)
	c.kubectl("delete", "pod", "-n", "train", "-l", "job-name=first,batch.kubernetes.io/job-completion-index=3")
	c.eventually("six pods have run", func() bool {
		out, _ := c.try("get", "job", "-n", "train", "first", "-o", "jsonpath={.status.failed} {.status.active}")
		failed, active, _ := strings.Cut(out, " ")
		n, _ := strconv.Atoi(failed)
		return n >= 2 && active == "4"
	})
	c.kubectl("delete", "job", "-n", "train", "first", "--cascade=foreground")
	before := c.learnt("first")
	require.NotEmpty(t, before)
	require.Less(t, len(before), shards*records, "it is stopped before its end")
	c.begin("second", "first")
	c.apply(job("second", 3, c.trainer("second", 3, "0s")))
	c.completes("second")
	all := c.learnt("second")
	for label, n := range before {
		all[label] += n
	}
	require.Len(t, all, shards*records)
	for label, n := range all {
		require.Equal(t, 1, n, label)
	}
	c.kubectl("delete", "job", "-n", "train", "second", "begin-first", "begin-second", "--cascade=foreground")
	c.eventually("the servers have ended", func() bool { return c.servers() == 0 })
}

// saved calls visit for each pod of a run that has saved.
func (c *cluster) saved(run string, visit func(index, used int)) {
	paths, err := filepath.Glob(filepath.Join(c.dir, "state", run, "checkpoint-*.json"))
	require.NoError(c.t, err)
	for _, path := range paths {
		index, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "checkpoint-"), ".json"))
		require.NoError(c.t, err)
		b, err := os.ReadFile(path)
		require.NoError(c.t, err)
		var k struct{ Done []struct{ Consumed []int } }
		require.NoError(c.t, json.Unmarshal(b, &k))
		visit(index, k.Done[len(k.Done)-1].Consumed[index])
	}
}

// trained is how many pods of a run have saved that they used records.
func (c *cluster) trained(run string) (n int) {
	c.saved(run, func(_, used int) {
		if used > 0 {
			n++
		}
	})
	return n
}

// learnt is how often each label has come in a run, by its last saves.
func (c *cluster) learnt(run string) map[string]int {
	all := map[string]int{}
	c.saved(run, func(index, used int) {
		b, err := os.ReadFile(filepath.Join(c.dir, "state", run, fmt.Sprintf("model-%d-%d.json", index, used)))
		require.NoError(c.t, err)
		var model map[string]int
		require.NoError(c.t, json.Unmarshal(b, &model))
		for label, n := range model {
			all[label] += n
		}
	})
	return all
}

// servers is how many servers the node has.
func (c *cluster) servers() int {
	out, err := c.node.Try(nil, "pgrep", "-fc", "^[^ ]*/lsiofs mount ")
	if n, bad := strconv.Atoi(strings.TrimSpace(out)); bad == nil {
		return n
	}
	_ = err // pgrep fails where there is none
	return 0
}

func (c *cluster) running(names ...string) {
	c.t.Helper()
	for _, name := range names {
		c.eventually("pod "+name+" has read a record", func() bool {
			out, _ := c.try("logs", "-n", "train", name)
			return strings.Contains(out, "label")
		})
	}
}

func (c *cluster) reader(name string, attributes ...string) string {
	attributes = append([]string{"dataset=" + c.dir + "/data", "memory=64MiB"}, attributes...)
	return pod(name, podSpec("Always", inline(attributes...), nil, "/pod", "read", "/stream", "3"))
}

func (c *cluster) shares() {
	c.apply(c.reader("a", "seed=1") + c.reader("b", "seed=1") + c.reader("other", "seed=2"))
	c.running("a", "b", "other")
	require.Equal(c.t, 2, c.servers())
	require.Equal(c.t, c.kubectl("logs", "-n", "train", "a"), c.kubectl("logs", "-n", "train", "b"))
	require.NotEqual(c.t, c.kubectl("logs", "-n", "train", "a"), c.kubectl("logs", "-n", "train", "other"))
	c.kubectl("delete", "pod", "-n", "train", "a", "other")
	c.eventually("the server that nobody asks for has ended", func() bool { return c.servers() == 1 })
	c.running("b")
	c.kubectl("delete", "pod", "-n", "train", "b")
	c.eventually("no server is left", func() bool { return c.servers() == 0 })
}

// figures logs what examples/kubernetes/driver/README.md says, and holds nothing against it: ten pods
// that ask for the same, first where nothing is there, then beside a server.
func (c *cluster) figures() {
	first := time.Now()
	c.apply(c.reader("p0", "seed=7"))
	c.running("p0")
	c.t.Logf("from kubectl apply to a record in the log, with a new server: %.1f s", time.Since(first).Seconds())
	names, manifests := []string{"p0"}, ""
	for i := 1; i < 10; i++ {
		names = append(names, fmt.Sprintf("p%d", i))
		manifests += c.reader(names[i], "seed=7")
	}
	more := time.Now()
	c.apply(manifests)
	c.running(names...)
	c.t.Logf("nine more pods: %.1f s", time.Since(more).Seconds())
	require.Equal(c.t, 1, c.servers())
	for _, name := range []string{"lsiofs-csi", "lsiofs"} {
		c.t.Logf("%s: %s", name, strings.TrimSpace(c.node.Run("sh", "-c", "grep -h VmRSS $(pgrep -x "+name+" | sed 's,.*,/proc/&/status,')")))
	}
	c.kubectl(append([]string{"delete", "pod", "-n", "train"}, names...)...)
	c.eventually("no server is left", func() bool { return c.servers() == 0 })
}

func (c *cluster) refuses() {
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: odd, namespace: train}\nstringData: {PASSWORD: topsecret}\n---\n"
	withSecret := func(name string) string {
		return strings.Replace(inline("dataset=s3://bucket/x"), "readOnly: true", "readOnly: true, nodePublishSecretRef: {name: "+name+"}", 1)
	}
	read := func(name, volume string) string {
		return pod(name, podSpec("Always", volume, nil, "/pod", "read", "/stream"))
	}
	c.apply(secret + read("missing", inline("dataset="+c.dir+"/data/none")) + read("unknown", inline("dataset="+c.dir+"/data", "daemon=true", "colour=blue")) +
		read("elsewhere", inline("dataset=/etc")) + read("odd", withSecret("odd")) + read("nosecret", withSecret("nowhere")))
	for name, words := range map[string][]string{
		"missing": {"data/none", "does not exist"}, "unknown": {"colour", "daemon", "dataset"}, "elsewhere": {"/etc", "--allow-path"},
		"odd": {"PASSWORD", "AWS_ACCESS_KEY_ID"}, "nosecret": {"nowhere"},
	} {
		var events string
		c.eventually("the event of pod "+name+" says why", func() bool {
			events, _ = c.try("get", "events", "-n", "train", "--field-selector=reason=FailedMount,involvedObject.name="+name, "-o", "jsonpath={.items[*].message}")
			for _, w := range words {
				if !strings.Contains(events, w) {
					return false
				}
			}
			return true
		})
		require.NotContains(c.t, events, "topsecret")
	}
	c.kubectl("delete", "pod", "-n", "train", "missing", "unknown", "elsewhere", "odd", "nosecret")
	require.Zero(c.t, c.servers())
}

func (c *cluster) restarts() {
	c.apply(c.reader("old", "seed=3"))
	c.running("old")
	first := c.kubectl("logs", "-n", "train", "old")
	was := c.kubectl("get", "pods", "-n", "lsiofs", "-o", "jsonpath={.items[0].metadata.name}")
	c.kubectl("delete", "pod", "-n", "lsiofs", was)
	c.eventually("another driver is ready", func() bool {
		out, _ := c.try("get", "pods", "-n", "lsiofs", "-o", `jsonpath={.items[*].metadata.name} {.items[*].status.conditions[?(@.type=="Ready")].status}`)
		return !strings.Contains(out, was) && strings.HasSuffix(out, " True")
	})
	c.apply(c.reader("new", "seed=3"))
	c.running("new")
	require.Equal(c.t, first, c.kubectl("logs", "-n", "train", "new"))
	require.Equal(c.t, 1, c.servers())
	// The old pod's container has a dead mount; one that is started again reads on.
	c.node.Run("sh", "-c", "kill -9 $(pgrep -of 'pod read /stream 3')")
	c.eventually("the old pod runs again", func() bool {
		out, _ := c.try("get", "pod", "-n", "train", "old", "-o", "jsonpath={.status.containerStatuses[0].restartCount} {.status.phase}")
		return out != "0 Running" && strings.HasSuffix(out, " Running")
	})
	c.running("old")
	c.kubectl("delete", "pod", "-n", "train", "old", "new")
}

func (c *cluster) leavesNothing() {
	c.kubectl("delete", "namespace", "train")
	c.eventually("no server is left", func() bool { return c.servers() == 0 })
	c.kubectl("delete", "namespace", "lsiofs")
	require.Empty(c.t, c.node.Run("sh", "-c", "grep fuse.lsiofs /proc/self/mountinfo || true"))
	require.Empty(c.t, c.node.Run("sh", "-c", "find /var/lib/kubelet/pods -name mount -path '*kubernetes.io~csi*' || true"))
	c.eventually("the socket is gone", func() bool {
		return c.node.Run("sh", "-c", "find /var/lib/kubelet/plugins_registry -type s") == ""
	})
	left := c.node.Run("sh", "-c", "cd /var/lib/kubelet/plugins/lsiofs.csi && find . -type f ! -name key ! -name lock")
	require.Empty(c.t, left, "of what the driver remembers")
}
