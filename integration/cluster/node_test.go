package cluster

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/hosts"
)

const (
	nodeIP   = "10.88.0.1"
	patience = 3 * time.Minute // for what takes seconds
)

// cluster is a running Kubernetes of one node.
type cluster struct {
	t    *testing.T
	dir  string // of this machine, and of the node
	bin  string
	node *hosts.Host
	user []string // what kubectl needs
}

// rootOf prepares the node's file system: an overlay in memory over the machine's, with dir in it.
const rootOf = `
dir=%s
scratch=$dir/scratch
mount -t tmpfs -o size=6g tmpfs $scratch
mkdir $scratch/up $scratch/work $scratch/root
mount -t overlay -o lowerdir=/,upperdir=$scratch/up,workdir=$scratch/work overlay $scratch/root
cd $scratch/root
mkdir -p .$dir .%s old
mount --rbind $dir .$dir
mount --bind %s .%s
for d in proc sys dev; do mount --rbind /$d $d; done
mount -t tmpfs tmpfs run
pivot_root . old
cd /
umount -l /old
mount --make-rshared /
for d in var/lib/containerd var/lib/kubelet var/log/pods; do mkdir -p /$d; mount -t tmpfs tmpfs /$d; done
mount --make-rshared /var/lib/kubelet
echo "%s node" >> /etc/hosts
ip link add br0 type bridge
ip addr add %s/24 dev br0
ip link set br0 up
ip route add default dev br0`

// start starts one, which ends with the test.
func start(t *testing.T) *cluster {
	hosts.Programs(t, "containerd", "runc", "iptables", "conntrack", "pivot_root")
	out, err := exec.Command("./build", "--where").Output()
	if err != nil {
		hosts.Missing(t, "Kubernetes is not built (integration/cluster/check does that)")
	}
	dir, err := os.MkdirTemp("/var/tmp", "lsiofs-cluster-")
	require.NoError(t, err)
	c := &cluster{t: t, dir: dir, bin: strings.TrimSpace(string(out))}
	t.Cleanup(func() {
		c.removeGroups()
		require.NoError(t, os.RemoveAll(dir))
	})
	for _, d := range []string{"scratch", "pki", "etcd", "state", "data"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, d), 0o777))
	}
	c.node = hosts.Start(t, dir, "node", fmt.Sprintf(rootOf, dir, c.bin, c.bin, c.bin, nodeIP, nodeIP))
	c.user = []string{c.bin + "/kubectl", "--server=https://" + nodeIP + ":6443", "--insecure-skip-tls-verify", "--token=tok"}
	c.runtime()
	c.controlPlane()
	c.kubelet()
	c.eventually("the node is ready", func() bool {
		out, err := c.try("get", "nodes", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`)
		return err == nil && out == "True"
	})
	return c
}

func (c *cluster) write(name, text string) string {
	path := filepath.Join(c.dir, name)
	require.NoError(c.t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func (c *cluster) runtime() {
	config := c.write("containerd.toml", `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/test:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "`+c.dir+`/cni"
`)
	require.NoError(c.t, os.Mkdir(c.dir+"/cni", 0o755))
	c.write("cni/10-bridge.conflist", `{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false,
"ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": "10.89.0.0/24"}]]}}, {"type": "loopback"}]}`)
	c.node.Begin("containerd", nil, "containerd", "--config", config)
	c.eventually("containerd answers", func() bool {
		_, err := c.node.Try(nil, "ctr", "--address", "/run/containerd/containerd.sock", "version")
		return err == nil
	})
}

func (c *cluster) controlPlane() {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(c.t, err)
	accounts := c.write("pki/accounts.key", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	tokens := c.write("pki/tokens.csv", "tok,admin,admin,system:masters\n")
	config := c.write("kubeconfig", `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://`+nodeIP+`:6443", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: tok}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`)
	c.node.Begin("etcd", nil, c.bin+"/etcd", "--data-dir", c.dir+"/etcd", "--unsafe-no-fsync", "--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379", "--listen-peer-urls=http://127.0.0.1:2380")
	c.node.Begin("apiserver", nil, c.bin+"/kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--bind-address="+nodeIP, "--advertise-address="+nodeIP, "--cert-dir="+c.dir+"/pki",
		"--service-cluster-ip-range=10.96.0.0/16", "--token-auth-file="+tokens, "--authorization-mode=RBAC", "--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+accounts, "--service-account-signing-key-file="+accounts)
	c.eventually("the API server is ready", func() bool {
		_, err := c.try("get", "--raw", "/readyz")
		return err == nil
	})
	c.node.Begin("controllers", nil, c.bin+"/kube-controller-manager", "--kubeconfig="+config, "--leader-elect=false", "--controllers=*,-nodeipam,-service-lb-controller,-node-route-controller,-cloud-node-lifecycle-controller",
		"--service-account-private-key-file="+accounts, "--root-ca-file="+c.dir+"/pki/apiserver.crt", "--use-service-account-credentials=false")
	c.node.Begin("scheduler", nil, c.bin+"/kube-scheduler", "--kubeconfig="+config, "--leader-elect=false")
}

func (c *cluster) kubelet() {
	config := c.write("kubelet.yaml", `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
clusterDNS: [10.96.0.10]
resolvConf: ""
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}, x509: {clientCAFile: ""}}
authorization: {mode: AlwaysAllow}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: "10Mi", nodefs.available: "0%", imagefs.available: "0%", nodefs.inodesFree: "0%"}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
syncFrequency: 2s
`)
	c.node.Begin("kubelet", nil, c.bin+"/kubelet", "--config="+config, "--kubeconfig="+c.dir+"/kubeconfig", "--hostname-override=node", "--node-ip="+nodeIP)
}

// try runs kubectl.
func (c *cluster) try(args ...string) (string, error) {
	return c.node.Try(nil, append(append([]string{}, c.user...), args...)...)
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

// removeGroups removes kubelet's control groups, which no namespace has for itself.
func (c *cluster) removeGroups() {
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/kubepods")
	for _, top := range append(groups, "/sys/fs/cgroup/kubepods") {
		_ = exec.Command("find", top, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";").Run()
	}
}
