package cluster

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// TestDriverOnCluster does what users do, one thing after the other on one cluster.
func TestDriverOnCluster(t *testing.T) {
	serve.Tier(t, serve.Night)
	c := start(t)
	for _, part := range []struct {
		name string
		do   func(*cluster)
	}{
		{"the page of Kubernetes: a job that loses pods and a node, and goes on with others, trains on each record once", (*cluster).followsThePage},
		{"the page of Kubernetes: ranks that lose one, and are others, train on each record once", (*cluster).trainsRanks},
		{"the page of Kubernetes: a sidecar mounts for its pod", (*cluster).mountsInAPod},
		{"the driver's page: a pod", (*cluster).followsTheDriversPage},
		{"pods that ask for the same share a server", (*cluster).shares},
		{"figures", (*cluster).figures},
		{"what is wrong is said in the pod's event", (*cluster).refuses},
		{"pods read a bucket with the keys of their secret", (*cluster).readsABucket},
		{"a driver that is started again serves on", (*cluster).restarts},
		{"nothing is left", (*cluster).leavesNothing},
	} {
		if !t.Run(part.name, func(t *testing.T) { x := *c; x.t = t; part.do(&x) }) {
			c.describe()
			return
		}
	}
}

// describe logs the state of the cluster if a test has failed.
func (c *cluster) describe() {
	for _, args := range [][]string{{"get", "pods", "-A"}, {"get", "events", "-A"}, {"logs", "-n", "lsiofs", "daemonset/lsiofs-csi", "--tail=40"}, {"logs", "--selector=batch.kubernetes.io/job-name", "--prefix", "--tail=8"}} {
		out, err := c.try(args...)
		c.t.Logf("%v: %v\n%s", args, err, out)
	}
}

// servers returns how many servers run on the first node.
func (c *cluster) servers() int {
	out, err := c.nodes[0].Try(nil, "pgrep", "-fc", "^[^ ]*/lsiofs mount ")
	if n, bad := strconv.Atoi(strings.TrimSpace(out)); bad == nil {
		return n
	}
	_ = err // pgrep fails if there is none
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
	attributes = append([]string{"dataset=/data", "memory=64MiB"}, attributes...)
	return pod(name, podSpec(inline(attributes...), "/pod", "read", "/stream", "3"))
}

// followsTheDriversPage runs the pod of the page, by name and by claim.
func (c *cluster) followsTheDriversPage() {
	page := c.page("examples/kubernetes/driver/README.md")
	require.Len(c.t, page["A pod"], 2)
	out := c.follow(page["A pod"][0])
	require.Equal(c.t, 4, strings.Count(out, "/worker-")/3, out)
	c.kubectl("delete", "pod", "train-on-volume")
	c.follow(page["A pod"][1]) // a secret
	c.follow("kubectl apply -f examples/kubernetes/driver/claim.yaml")
	c.kubectl("wait", "--for=jsonpath={.status.phase}=Bound", "pvc/train-stream")
	c.kubectl("delete", "pvc", "train-stream")
	c.kubectl("delete", "pv", "train-stream")
}

func (c *cluster) shares() {
	c.apply(c.namespace())
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

// figures logs the measurements in examples/kubernetes/driver/README.md, without checking them: ten
// pods with the same request, the first without a server, the others with one running.
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
		c.t.Logf("%s: %s", name, strings.TrimSpace(c.nodes[0].Run("sh", "-c", "grep -h VmRSS $(pgrep -x "+name+" | sed 's,.*,/proc/&/status,')")))
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
		return pod(name, podSpec(volume, "/pod", "read", "/stream"))
	}
	c.apply(secret + read("missing", inline("dataset=/data/none")) + read("unknown", inline("dataset=/data", "daemon=true", "colour=blue")) +
		read("elsewhere", inline("dataset=/etc")) + read("odd", withSecret("odd")) + read("nosecret", withSecret("nowhere")))
	for name, words := range map[string][]string{
		"missing": {"data/none", "does not exist"}, "unknown": {"colour", "daemon", "dataset"}, "elsewhere": {"/etc", "--allow-path"},
		"odd": {"PASSWORD", "AWS_ACCESS_KEY_ID"}, "nosecret": {"nowhere"},
	} {
		events := c.says(name, words...)
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
	// The old pod's container has a dead mount; when restarted, it reads again.
	c.nodes[0].Run("sh", "-c", "kill -9 $(pgrep -of 'pod read /stream 3')")
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
	c.follow(c.page("examples/kubernetes/driver/README.md")["Away with it"][0])
	require.Empty(c.t, c.nodes[0].Run("sh", "-c", "grep fuse.lsiofs /proc/self/mountinfo || true"))
	require.Empty(c.t, c.nodes[0].Run("sh", "-c", "find /var/lib/kubelet/pods -name mount -path '*kubernetes.io~csi*' || true"))
	c.eventually("the socket is gone", func() bool {
		return c.nodes[0].Run("sh", "-c", "find /var/lib/kubelet/plugins_registry -type s") == ""
	})
	left := c.nodes[0].Run("sh", "-c", "cd /var/lib/kubelet/plugins/lsiofs.csi && find . -type f ! -name key ! -name lock")
	require.Empty(c.t, left, "of what the driver remembers")
}
