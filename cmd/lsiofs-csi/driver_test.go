package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/mounts"
	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/scratch"
)

// buildFlags are the flags with which the driver is built.
var buildFlags []string

// programs is the directory of lsiofs and lsiofs-csi, built once for all tests.
var programs string

func TestMain(m *testing.M) {
	if dir := os.Getenv(containerDir); dir != "" {
		fmt.Fprintln(os.Stderr, beContainer(dir))
		os.Exit(1)
	}
	if dir := os.Getenv(lockedDir); dir != "" {
		fmt.Fprintln(os.Stderr, holdLock(dir))
		os.Exit(1)
	}
	os.Exit(func() int {
		dir, remove, err := scratch.Programs("../..")
		if err == nil {
			defer remove()
			programs = dir
			err = errors.Join(
				scratch.Build(filepath.Join(dir, "lsiofs"), "../..", "./cmd/lsiofs", "CGO_ENABLED=0"),
				scratch.Build(filepath.Join(dir, "lsiofs-csi"), ".", ".", "CGO_ENABLED="+strconv.Itoa(len(buildFlags)), buildFlags...))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// missing skips a test, or fails it in CI.
func missing(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal("CI=true, and nothing may be missing: " + why)
	}
	t.Skip(why)
}

// driver is a running driver, and the directories of a node.
type driver struct {
	t     *testing.T
	dir   string // with the directories kubelet, state, cache, registration
	flags []string
	env   []string
	alone bool // in namespaces of its own, as in a container
	cmd   *exec.Cmd
	log   *log
	node  csi.NodeClient
	conn  *grpc.ClientConn
}

// log is what a program has written to stderr.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newNode makes a node's directories. If a test leaves anything in them, it is removed, and the
// test fails.
func newNode(t *testing.T, flags ...string) *driver {
	t.Helper()
	if os.Getuid() != 0 {
		missing(t, "a CSI driver is root")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		missing(t, err.Error())
	}
	dir, remove := scratch.Dir(t)
	d := &driver{t: t, dir: dir, flags: flags, log: &log{}, env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "AWS_EC2_METADATA_DISABLED=true"}}
	for _, sub := range []string{"kubelet", "state", "cache", "registration"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(d.log)
		}
		d.kill()
		table, err := mounts.Read()
		require.NoError(t, err)
		for _, point := range table.Below(dir) {
			require.NoError(t, mounts.Detach(point))
		}
		for _, pid := range d.servers() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		remove()
	})
	return d
}

func (d *driver) path(elements ...string) string {
	return filepath.Join(append([]string{d.dir}, elements...)...)
}

func startDriver(t *testing.T, flags ...string) *driver {
	t.Helper()
	d := newNode(t, flags...)
	d.start()
	return d
}

// patience bounds waits, on a busy machine.
const patience = time.Minute

// start starts the driver and waits until it answers.
func (d *driver) start() {
	d.t.Helper()
	d.cmd = exec.Command(filepath.Join(programs, "lsiofs-csi"), append(append([]string{},
		"--endpoint=unix://"+d.path("csi.sock"), "--registration="+d.path("registration"), "--kubelet="+d.path("kubelet"),
		"--state="+d.path("state"), "--cache="+d.path("cache"), "--node=node-1", "--log-level=debug", "--health=unix://"+d.path("health.sock"),
		"--metrics=unix://"+d.path("metrics.sock")), d.flags...)...)
	d.cmd.Env = d.env
	if d.alone {
		d.contain()
	}
	stderr, err := d.cmd.StderrPipe() // without a goroutine of Cmd's: servers hold the other end longer than the driver
	require.NoError(d.t, err)
	require.NoError(d.t, d.cmd.Start())
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := stderr.Read(buf)
			_, _ = d.log.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	d.until(func() bool { // gRPC would wait a second before it retries
		c, err := net.Dial("unix", d.path("csi.sock"))
		return err == nil && c.Close() == nil
	})
	d.conn, err = grpc.NewClient("unix://"+d.path("csi.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(d.t, err)
	d.node = csi.NewNodeClient(d.conn)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err = csi.NewIdentityClient(d.conn).Probe(ctx, &csi.ProbeRequest{}, grpc.WaitForReady(true))
	require.NoError(d.t, err, d.log)
}

// until waits for a condition that the driver brings about. If the driver ends, the test fails at
// once. (This is like serve.Until of lsiofs's own tests, which are in another module.)
func (d *driver) until(holds func() bool) {
	d.t.Helper()
	for limit := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		var end unix.Siginfo // set if the driver has ended; it stays waitable
		require.NoError(d.t, unix.Waitid(unix.P_PID, d.cmd.Process.Pid, &end, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil))
		require.Zero(d.t, end.Signo, "the driver has ended: %s", d.log)
		require.True(d.t, time.Now().Before(limit), "not so within %v: %s", patience, d.log)
	}
}

// kill ends the driver as a crash would.
func (d *driver) kill() {
	if d.cmd == nil || d.cmd.ProcessState != nil {
		return
	}
	_ = d.conn.Close()
	_ = d.cmd.Process.Kill()
	_, _ = d.cmd.Process.Wait()
	d.cmd = nil
}

// servers returns the `lsiofs mount` processes of this node.
func (d *driver) servers() (pids []int) {
	d.t.Helper()
	entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(d.t, err)
	for _, path := range entries {
		b, err := os.ReadFile(path)
		if err == nil && bytes.Contains(b, []byte("\x00mount\x00")) && bytes.Contains(b, []byte(d.path("state")+"/")) {
			var pid int
			_, err := fmt.Sscanf(path, "/proc/%d/", &pid)
			require.NoError(d.t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// pod is a pod's volume.
type pod struct {
	name       string
	attributes map[string]string
	secrets    map[string]string
	readonly   bool
}

// target returns where kubelet wants a pod's volume.
func (d *driver) target(p pod) string { return d.path("kubelet", "pods", p.name, "mount") }

func (d *driver) publish(p pod) error {
	d.t.Helper()
	require.NoError(d.t, os.MkdirAll(filepath.Dir(d.target(p)), 0o755))
	attributes := map[string]string{"csi.storage.k8s.io/pod.name": p.name, "csi.storage.k8s.io/ephemeral": "true"}
	for k, v := range p.attributes {
		attributes[k] = v
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := d.node.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: "csi-" + p.name, TargetPath: d.target(p), VolumeContext: attributes, Secrets: p.secrets, Readonly: p.readonly, VolumeCapability: mountable(),
	})
	return err
}

func mountable() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

func (d *driver) unpublish(p pod) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := d.node.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: "csi-" + p.name, TargetPath: d.target(p)})
	require.NoError(d.t, err)
}

// read reads a file of a pod's volume.
func (d *driver) read(p pod, name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(d.target(p), name))
}

func (d *driver) requireReads(p pod, name string, want []byte) {
	d.t.Helper()
	got, err := d.read(p, name)
	require.NoError(d.t, err)
	require.Equal(d.t, string(want), string(got))
}

// requireDead waits until a pod's volume is that of a server that has ended, not an empty
// directory.
func (d *driver) requireDead(p pod) {
	d.t.Helper()
	require.Eventually(d.t, func() bool {
		_, err := d.read(p, "worker-0.jsonl")
		require.Error(d.t, err)
		return errors.Is(err, syscall.ENOTCONN)
	}, patience, time.Millisecond)
}

// requireNothingLeft checks that unpublished volumes have left nothing.
func (d *driver) requireNothingLeft() {
	d.t.Helper()
	table, err := mounts.Read()
	require.NoError(d.t, err)
	require.Empty(d.t, table.Below(d.dir))
	require.Empty(d.t, d.servers())
	var left []string
	for _, dir := range []string{"state", "kubelet"} {
		require.NoError(d.t, filepath.WalkDir(d.path(dir), func(path string, e os.DirEntry, err error) error {
			if rel, _ := filepath.Rel(d.path("state"), path); !regexp.MustCompile(`^(\.|key|lock|volumes|servers)$`).MatchString(rel) && !strings.HasPrefix(rel, "../kubelet") {
				left = append(left, path)
			}
			if filepath.Base(path) == "mount" {
				left = append(left, path)
			}
			return err
		}))
	}
	require.Empty(d.t, left)
	for _, key := range regexp.MustCompile(`server=([0-9a-f]{32})`).FindAllStringSubmatch(d.log.String(), -1) {
		for _, pattern := range []string{"/sys/fs/cgroup/memory/*/*/", "/sys/fs/cgroup/memory/*/", "/sys/fs/cgroup/*/"} {
			groups, err := filepath.Glob(pattern + "lsiofs-" + key[1])
			require.NoError(d.t, err)
			require.Empty(d.t, groups)
		}
	}
}

// dataset writes a few shards of lines.
func dataset(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for shard := range 3 {
		var b strings.Builder
		for line := range 100 {
			fmt.Fprintf(&b, "{\"label\": \"%d-%d\"}\n", shard, line)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.jsonl", shard)), []byte(b.String()), 0o644))
	}
	return dir
}

// stream returns the contents of a worker's file, from lsiofs cat.
func stream(t *testing.T, dir string, flags ...string) []byte {
	t.Helper()
	out, err := exec.Command(filepath.Join(programs, "lsiofs"), append([]string{"cat", dir, "--index-dir", t.TempDir()}, flags...)...).Output()
	if e, is := errors.AsType[*exec.ExitError](err); is {
		t.Fatalf("%s", e.Stderr)
	}
	require.NoError(t, err)
	require.NotEmpty(t, out)
	return out
}
