package slurm

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	nodes        = 3
	coresOfNode  = 2
	patience     = 1 * time.Minute // for what takes seconds
	controllerIP = "10.77.0.1"
)

// cluster is a running Slurm.
type cluster struct {
	t          *testing.T
	dir        string // shared by all
	controller *host
	nodes      [nodes]*host
	env        []string // of jobs
}

// start starts one, which ends with the test.
func start(t *testing.T) *cluster {
	for _, program := range []string{"slurmctld", "slurmd", "munged", "ip", "nsenter", "unshare"} {
		if _, err := exec.LookPath(program); err != nil {
			missing(t, program+" is not installed")
		}
	}
	if os.Geteuid() != 0 {
		missing(t, "only root may make nodes")
	}
	// Not in /tmp, which each node has for itself.
	dir, err := os.MkdirTemp("/var/tmp", "lsiofs-slurm-")
	require.NoError(t, err)
	t.Cleanup(func() {
		outputs, _ := filepath.Glob(dir + "/slurm-*.out")
		for _, path := range outputs {
			if b, _ := os.ReadFile(path); t.Failed() {
				t.Logf("%s:\n%s", filepath.Base(path), b[max(0, len(b)-3000):])
			}
		}
		require.NoError(t, os.RemoveAll(dir))
	})
	require.NoError(t, os.Chmod(dir, 0o755))
	c := &cluster{t: t, dir: dir}
	c.munge()
	c.configure()
	c.controller = c.host("ctl", "ip link add br0 type bridge; ip link set br0 up; ip addr add "+controllerIP+"/24 dev br0", "slurmctld -D")
	for i := range c.nodes {
		name := fmt.Sprintf("n%d", i+1)
		c.nodes[i] = c.host(name, "mount -t tmpfs tmpfs /tmp", "slurmd -D -N "+name)
		// A cable from the node to the bridge.
		run(t, "ip", "link", "add", "name", name, "netns", c.controller.pid, "type", "veth", "peer", "name", "eth0", "netns", c.nodes[i].pid)
		c.onController("ip", "link", "set", name, "master", "br0", "up")
		run(t, "nsenter", "-t", c.nodes[i].pid, "--net", "sh", "-ec", "ip link set eth0 up; ip addr add "+nodeIP(i)+"/24 dev eth0")
	}
	c.goes(c.controller)
	for _, h := range c.nodes {
		c.goes(h)
	}
	c.eventually("all nodes are idle", func() bool {
		out, err := c.try("sinfo", "-h", "-N", "-o", "%T")
		return err == nil && strings.Count(out, "idle") == nodes
	})
	return c
}

func nodeIP(i int) string { return fmt.Sprintf("10.77.0.%d", 11+i) }

// missing skips, but not in CI.
func missing(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("%s (integration/check installs it)", why)
	}
	t.Skip(why)
}

// munge starts the service that tells users from one another.
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
	c.begin(cmd, "munged")
	c.eventually("munged answers", func() bool { _, err := os.Stat(in("socket")); return err == nil })
}

func (c *cluster) configure() {
	lines := []string{
		"ClusterName=lsiofs", "SlurmctldHost=ctl(" + controllerIP + ")", "SlurmUser=root", "SlurmdUser=root",
		"AuthType=auth/munge", "AuthInfo=socket=" + c.dir + "/munge/socket,cred_expire=5", "CredType=cred/munge",
		"StateSaveLocation=" + c.dir + "/state", "SlurmdSpoolDir=" + c.dir + "/spool-%n", "SlurmctldPidFile=" + c.dir + "/ctl.pid", "SlurmdPidFile=" + c.dir + "/%n.pid",
		"SlurmctldPort=6817", "SlurmdPort=6818", "ReturnToService=2", "SlurmdParameters=config_overrides",
		"ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "MpiDefault=none", "AccountingStorageType=accounting_storage/none", "JobAcctGatherType=jobacct_gather/none",
		"SelectType=select/cons_tres", "SelectTypeParameters=CR_Core", "SchedulerParameters=sched_interval=1,bf_interval=1", "KillWait=10", "SwitchType=switch/none",
		"RebootProgram=/bin/false", "JobRequeue=1",
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

// host is a machine: namespaces of its own.
type host struct {
	name string
	pid  string // of its first process, outside of it
	in   *os.File
}

// host starts a machine, on which daemon runs once it is told to go.
func (c *cluster) host(name, prepare, daemon string) *host {
	in, w, err := os.Pipe()
	require.NoError(c.t, err)
	ready, told, err := os.Pipe()
	require.NoError(c.t, err)
	// Mounts of other tests were copied with the namespace, and would stay when those unmount them.
	prepare = "awk '$3 ~ /^fuse/ {print $2}' /proc/self/mounts | xargs -r umount -l; " + prepare
	script := "hostname " + name + "; ip link set lo up; " + prepare + "; echo ready >&3; exec 3>&-; read -r go; exec " + daemon
	cmd := exec.Command("unshare", "--net", "--uts", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", script)
	cmd.Stdin, cmd.ExtraFiles = in, []*os.File{told}
	cmd.Env = append(os.Environ(), "SLURM_CONF="+c.conf())
	c.begin(cmd, name)
	require.NoError(c.t, in.Close())
	require.NoError(c.t, told.Close())
	line := make([]byte, 6)
	_, err = io.ReadFull(ready, line)
	require.NoError(c.t, err, "%s has not come up: %s", name, c.log(name))
	require.NoError(c.t, ready.Close())
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid))
	require.NoError(c.t, err)
	return &host{name, strings.TrimSpace(string(children)), w}
}

// goes lets the daemon of a host begin.
func (c *cluster) goes(h *host) {
	_, err := io.WriteString(h.in, "go\n")
	require.NoError(c.t, err)
	require.NoError(c.t, h.in.Close())
}

// forks starts processes from one thread that stays: the kernel kills children that want to die with
// their parent when the thread ends that made them.
var forks = sync.OnceValue(func() chan func() {
	jobs := make(chan func())
	go func() {
		runtime.LockOSThread()
		for job := range jobs {
			job()
		}
	}()
	return jobs
})

// begin starts a process that ends with the test, however that ends.
func (c *cluster) begin(cmd *exec.Cmd, log string) {
	f, err := os.Create(filepath.Join(c.dir, log+".log"))
	require.NoError(c.t, err)
	cmd.Stdout, cmd.Stderr = f, f
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	forks() <- func() { started <- cmd.Start() }
	require.NoError(c.t, <-started)
	c.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		ended := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		ended.Stop()
		_ = f.Close()
		if c.t.Failed() {
			c.t.Logf("%s:\n%s", log, c.log(log))
		}
	})
}

// log is the end of a process's log.
func (c *cluster) log(name string) string {
	b, _ := os.ReadFile(filepath.Join(c.dir, name+".log"))
	return string(b[max(0, len(b)-3000):])
}

func run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	require.NoError(t, err, "%v: %s", args, out)
	return string(out)
}

// try runs a command where users are.
func (c *cluster) try(args ...string) (string, error) {
	cmd := exec.Command("nsenter", append([]string{"-t", c.controller.pid, "--net", "--uts", "--pid", "--mount", "--wd=" + c.dir, "--"}, args...)...)
	cmd.Env = append(append(os.Environ(), "SLURM_CONF="+c.conf()), c.env...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%v: %w: %s", args, err, said.String())
	}
	return out.String(), err
}

func (c *cluster) onController(args ...string) string {
	c.t.Helper()
	out, err := c.try(args...)
	require.NoError(c.t, err)
	return out
}

// eventually waits for what takes a moment.
func (c *cluster) eventually(what string, is func() bool) {
	c.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if is() {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("not so within %v: %s", patience, what)
		}
	}
}
