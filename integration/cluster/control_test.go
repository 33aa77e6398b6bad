package cluster

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/hosts"
)

const patience = 3 * time.Minute // for what takes seconds

// cluster is a running Kubernetes.
type cluster struct {
	t     *testing.T
	dir   string // the same on this machine and on all nodes
	bin   string
	nodes []*node
	repo  string   // a copy of the repository as users have it
	tools []string // environment variables with which users find kubectl, helm and podman
}

// start starts a cluster of two nodes, which ends with the test.
func start(t *testing.T) *cluster {
	hosts.Programs(t, "containerd", "runc", "iptables", "conntrack", "pivot_root")
	out, err := exec.Command("./build", "--where").Output()
	if err != nil {
		hosts.Missing(t, "Kubernetes is not built (integration/cluster/check does that)")
	}
	dir := hosts.Dir(t, "lsiofs-cluster-")
	c := &cluster{t: t, dir: dir, bin: strings.TrimSpace(string(out))}
	for _, d := range []string{"pki", "etcd", "state", "data", "home"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, d), 0o777))
	}
	one := c.machine(1)
	c.controlPlane(one)
	two := c.machine(2)
	c.users()
	c.kubelet(one)
	c.kubelet(two)
	c.eventually("both nodes are ready", func() bool {
		out, err := c.try("get", "nodes", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`)
		return err == nil && out == "True True"
	})
	return c
}

func (c *cluster) write(name, text string) string {
	path := filepath.Join(c.dir, name)
	require.NoError(c.t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func (c *cluster) kubeconfig() string { return c.dir + "/kubeconfig" }

func (c *cluster) controlPlane(n *node) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(c.t, err)
	accounts := c.write("pki/accounts.key", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	tokens := c.write("pki/tokens.csv", "tok,admin,admin,system:masters\n")
	c.write("kubeconfig", `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://`+n.ip+`:6443", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: tok}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`)
	config := c.kubeconfig()
	n.Begin("etcd", nil, c.bin+"/etcd", "--data-dir", c.dir+"/etcd", "--unsafe-no-fsync", "--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379", "--listen-peer-urls=http://127.0.0.1:2380")
	n.Begin("apiserver", nil, c.bin+"/kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--bind-address="+n.ip, "--advertise-address="+n.ip, "--cert-dir="+c.dir+"/pki",
		"--service-cluster-ip-range=10.96.0.0/16", "--token-auth-file="+tokens, "--kubelet-preferred-address-types=InternalIP", "--authorization-mode=RBAC", "--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+accounts, "--service-account-signing-key-file="+accounts)
	c.eventually("the API server is ready", func() bool {
		_, err := c.try("get", "--raw", "/readyz")
		return err == nil
	})
	// A silent node is considered dead sooner than by default.
	n.Begin("controllers", nil, c.bin+"/kube-controller-manager", "--kubeconfig="+config, "--leader-elect=false", "--controllers=*,-nodeipam,-service-lb-controller,-node-route-controller,-cloud-node-lifecycle-controller",
		"--service-account-private-key-file="+accounts, "--root-ca-file="+c.dir+"/pki/apiserver.crt", "--use-service-account-credentials=false", "--node-monitor-grace-period=12s", "--node-monitor-period=2s")
	n.Begin("scheduler", nil, c.bin+"/kube-scheduler", "--kubeconfig="+config, "--leader-elect=false")
	n.Begin("dns", nil, c.bin+"/dns", "-conf", c.write("Corefile", ".:53 {\n\terrors\n\tkubernetes cluster.local {\n\t\tkubeconfig "+config+"\n\t}\n}\n"))
}

// try runs kubectl.
func (c *cluster) try(args ...string) (string, error) {
	return c.nodes[0].Try(nil, append([]string{c.bin + "/kubectl", "--kubeconfig=" + c.kubeconfig()}, args...)...)
}

func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	out, err := c.try(args...)
	require.NoError(c.t, err)
	return out
}

// apply applies manifests.
func (c *cluster) apply(manifests string) {
	c.t.Helper()
	path := c.write("manifest.yaml", manifests)
	c.kubectl("apply", "--server-side", "--validate=strict", "-f", path)
}

func (c *cluster) eventually(what string, is func() bool) {
	c.t.Helper()
	hosts.Eventually(c.t, patience, what, is)
}
