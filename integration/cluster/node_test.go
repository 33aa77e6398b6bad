package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/hosts"
)

// node is a machine with kubelet and containerd.
type node struct {
	*hosts.Host
	dir     string // its configuration, and containerd's socket
	ip      string
	network string // of its pods
}

// rootOf is the script that prepares a node's file system: an overlay in memory over the machine's,
// with the cluster's directory and the two directories that the examples name.
const rootOf = `
dir=%s name=%s bin=%s
scratch=$dir/$name/scratch
mount -t tmpfs -o size=6g tmpfs $scratch
mkdir $scratch/up $scratch/work $scratch/root
mount -t overlay -o lowerdir=/,upperdir=$scratch/up,workdir=$scratch/work overlay $scratch/root
cd $scratch/root
mkdir -p .$dir .$bin data state old
mount --rbind $dir .$dir
mount --bind $bin .$bin
mount --bind $dir/data data
mount --bind $dir/state state
for d in proc sys dev; do mount --rbind /$d $d; done
mount -t tmpfs tmpfs run
pivot_root . old
cd /
umount -l /old
mount --make-rshared /
for d in var/lib/containerd var/lib/kubelet var/log/pods; do mkdir -p /$d; mount -t tmpfs tmpfs /$d; done
mount --make-rshared /var/lib/kubelet
echo 1 > /proc/sys/net/ipv4/ip_forward
mkdir -p $dir/$name`

// machine makes node i, which is connected to the first one by a cable.
func (c *cluster) machine(i int) *node {
	name := fmt.Sprintf("n%d", i)
	n := &node{dir: filepath.Join(c.dir, name), ip: fmt.Sprintf("10.88.0.%d", i), network: fmt.Sprintf("10.89.%d.0/24", i)}
	for _, d := range []string{"scratch", "cni"} {
		require.NoError(c.t, os.MkdirAll(filepath.Join(n.dir, d), 0o755))
	}
	prepare := fmt.Sprintf(rootOf, c.dir, name, c.bin) + fmt.Sprintf("\necho '%s %s' >> /etc/hosts", n.ip, name)
	first := len(c.nodes) == 0
	if first {
		prepare += "\nip link add br0 type bridge; ip link set br0 up; ip addr add " + n.ip + "/24 dev br0; ip route add default dev br0"
	}
	n.Host = hosts.Start(c.t, c.dir, name, prepare)
	if !first {
		one := c.nodes[0]
		hosts.Cable(c.t, n.Host, "eth0", one.Host, name)
		n.Address("eth0", n.ip+"/24")
		one.Run("ip", "link", "set", name, "master", "br0")
		n.Run("ip", "route", "add", "default", "via", one.ip)
		one.Run("ip", "route", "add", n.network, "via", n.ip)
	}
	c.nodes = append(c.nodes, n)
	c.runtime(n)
	return n
}

// socket returns the path of containerd's socket, which is the same on the machine and on the node.
func (n *node) socket() string { return n.dir + "/containerd.sock" }

func (c *cluster) runtime(n *node) {
	config := c.write(n.Name+"/containerd.toml", `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "`+n.socket()+`"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/test:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "`+n.dir+`/cni"
`)
	c.write(n.Name+"/cni/10-bridge.conflist", `{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false,
"ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": "`+n.network+`"}]], "routes": [{"dst": "0.0.0.0/0"}]}}, {"type": "loopback"}]}`)
	n.Begin("containerd-"+n.Name, nil, "containerd", "--config", config)
	c.eventually("containerd answers", func() bool {
		_, err := n.Try(nil, "ctr", "--address", n.socket(), "version")
		return err == nil
	})
}

// controlGroups returns the control groups that the kubelets of two nodes have to themselves,
// because namespaces don't provide them.
func controlGroups(name string) []string {
	tops, _ := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		tops = []string{"/sys/fs/cgroup/cgroup.procs"}
	}
	for i, path := range tops {
		tops[i] = filepath.Join(filepath.Dir(path), "lsiofs-"+name)
	}
	return tops
}

func (c *cluster) kubelet(n *node) {
	for _, dir := range controlGroups(n.Name) {
		require.NoError(c.t, os.MkdirAll(dir, 0o755))
		c.t.Cleanup(func() { _ = exec.Command("find", dir, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";").Run() })
	}
	config := c.write(n.Name+"/kubelet.yaml", `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
cgroupRoot: /lsiofs-`+n.Name+`
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
clusterDNS: [`+c.nodes[0].ip+`]
clusterDomain: cluster.local
resolvConf: ""
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}, x509: {clientCAFile: ""}}
authorization: {mode: AlwaysAllow}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: "10Mi", nodefs.available: "0%", imagefs.available: "0%", nodefs.inodesFree: "0%"}
containerRuntimeEndpoint: unix://`+n.socket()+`
syncFrequency: 2s
nodeStatusUpdateFrequency: 2s
`)
	n.Begin("kubelet-"+n.Name, nil, c.bin+"/kubelet", "--config="+config, "--kubeconfig="+c.kubeconfig(), "--hostname-override="+n.Name, "--node-ip="+n.ip)
}

// die ends a node at once, with everything that runs there.
func (c *cluster) die(n *node) {
	out, err := exec.Command("kill", "-9", n.PID).CombinedOutput()
	require.NoError(c.t, err, "%s", out)
}
