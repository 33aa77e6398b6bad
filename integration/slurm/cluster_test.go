package slurm

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/hosts"
)

const (
	nodes        = 3
	coresOfNode  = 2
	patience     = 5 * time.Minute // for what takes seconds
	controllerIP = "10.77.0.1"
)

// cluster is a running Slurm.
type cluster struct {
	t          *testing.T
	dir        string // shared by all machines
	controller *hosts.Host
	nodes      [nodes]*hosts.Host
	env        []string // of users who submit jobs
	set        string   // the setup commands of the page
}

// start starts a cluster, which ends with the test.
func start(t *testing.T) *cluster {
	hosts.Programs(t, "slurmctld", "slurmd", "munged")
	// Not in /tmp, because each node has its own.
	dir := hosts.Dir(t, "lsiofs-slurm-")
	t.Cleanup(func() {
		outputs, _ := filepath.Glob(dir + "/examples/slurm/slurm-*.out")
		for _, path := range outputs {
			if b, _ := os.ReadFile(path); t.Failed() {
				t.Logf("%s:\n%s", filepath.Base(path), b[max(0, len(b)-3000):])
			}
		}
	})
	require.NoError(t, os.Chmod(dir, 0o755))
	c := &cluster{t: t, dir: dir}
	c.munge()
	c.configure()
	conf := []string{"SLURM_CONF=" + c.conf()}
	c.controller = hosts.Start(t, dir, "ctl", "ip link add br0 type bridge; ip link set br0 up; ip addr add "+controllerIP+"/24 dev br0")
	for i := range c.nodes {
		name := fmt.Sprintf("n%d", i+1)
		c.nodes[i] = hosts.Start(t, dir, name, "mount -t tmpfs tmpfs /tmp")
		hosts.Cable(t, c.nodes[i], "eth0", c.controller, name)
		c.nodes[i].Address("eth0", nodeIP(i)+"/24")
		c.controller.Run("ip", "link", "set", name, "master", "br0")
	}
	c.controller.Begin("slurmctld", conf, "slurmctld", "-D")
	for _, h := range c.nodes {
		h.Begin("slurmd-"+h.Name, conf, "slurmd", "-D", "-N", h.Name)
	}
	c.eventually("all nodes are idle", func() bool {
		out, err := c.try("sinfo", "-h", "-N", "-o", "%T")
		return err == nil && strings.Count(out, "idle") == nodes
	})
	return c
}

func nodeIP(i int) string { return fmt.Sprintf("10.77.0.%d", 11+i) }

// munge starts the service that authenticates users.
func (c *cluster) munge() {
	t, dir := c.t, filepath.Join(c.dir, "munge")
	u, err := user.Lookup("munge")
	require.NoError(t, err)
	uid, err := strconv.Atoi(u.Uid)
	require.NoError(t, err)
	gid, err := strconv.Atoi(u.Gid)
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(dir, 0o755))
	key := make([]byte, 128)
	_, err = rand.Read(key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(dir+"/key", key, 0o400))
	for _, path := range []string{dir, dir + "/key"} {
		require.NoError(t, os.Chown(path, uid, gid))
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	cmd := exec.Command("munged", "--foreground", "--key-file", in("key"), "--socket", in("socket"), "--pid-file", in("pid"), "--log-file", in("log"), "--seed-file", in("seed"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	hosts.Begin(t, c.dir, "munged", cmd)
	c.eventually("munged answers", func() bool { _, err := os.Stat(in("socket")); return err == nil })
}

func (c *cluster) configure() {
	lines := []string{
		"ClusterName=lsiofs", "SlurmctldHost=ctl(" + controllerIP + ")", "SlurmUser=root", "SlurmdUser=root",
		"AuthType=auth/munge", "AuthInfo=socket=" + c.dir + "/munge/socket,cred_expire=5", "CredType=cred/munge",
		"StateSaveLocation=" + c.dir + "/state", "SlurmdSpoolDir=" + c.dir + "/spool-%n", "SlurmctldPidFile=" + c.dir + "/ctl.pid", "SlurmdPidFile=" + c.dir + "/%n.pid",
		"SlurmctldPort=6817", "SlurmdPort=6818", "ReturnToService=2", "SlurmdParameters=config_overrides",
		"ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "MpiDefault=none", "AccountingStorageType=accounting_storage/none", "JobAcctGatherType=jobacct_gather/none",
		"SelectType=select/cons_tres", "SelectTypeParameters=CR_Core", "SchedulerParameters=sched_interval=1,bf_interval=1", "KillWait=10", "SwitchType=switch/none", "JobRequeue=1",
	}
	for i := range nodes {
		lines = append(lines, fmt.Sprintf("NodeName=n%d NodeAddr=%s CPUs=%d RealMemory=4096 State=UNKNOWN", i+1, nodeIP(i), coresOfNode))
	}
	lines = append(lines, "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
	require.NoError(c.t, os.WriteFile(c.conf(), []byte(strings.Join(lines, "\n")+"\n"), 0o644))
	require.NoError(c.t, os.WriteFile(c.dir+"/cgroup.conf", []byte("CgroupPlugin=cgroup/v1\nConstrainCores=no\nConstrainRAMSpace=no\n"), 0o644))
	require.NoError(c.t, os.Mkdir(c.dir+"/state", 0o700))
}

func (c *cluster) conf() string { return filepath.Join(c.dir, "slurm.conf") }

// try runs a command where users work.
func (c *cluster) try(args ...string) (string, error) {
	return c.controller.Try(append(c.env, "SLURM_CONF="+c.conf()), append([]string{"env", "-C", c.dir}, args...)...)
}

func (c *cluster) onController(args ...string) string {
	c.t.Helper()
	out, err := c.try(args...)
	require.NoError(c.t, err)
	return out
}

func (c *cluster) eventually(what string, is func() bool) {
	c.t.Helper()
	hosts.Eventually(c.t, patience, what, is)
}
