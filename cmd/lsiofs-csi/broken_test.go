package main

import (
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func requireStatus(t *testing.T, err error, code codes.Code, words ...string) {
	t.Helper()
	require.Equal(t, code, status.Code(err), "%v", err)
	for _, w := range words {
		require.Contains(t, status.Convert(err).Message(), w)
	}
}

func TestInvalidVolumeIsExplainedAndLeavesNothing(t *testing.T) {
	d, data := startDriver(t), dataset(t)
	for name, c := range map[string]struct {
		attributes map[string]string
		code       codes.Code
		words      []string
	}{
		"a dataset that is missing":  {map[string]string{"dataset": "/nowhere/data"}, codes.FailedPrecondition, []string{"/nowhere/data"}},
		"a value that mount refuses": {map[string]string{"dataset": data, "workers": "0"}, codes.InvalidArgument, []string{"workers"}},
		"a value of no number":       {map[string]string{"dataset": data, "workers": "many"}, codes.InvalidArgument, []string{"workers", "many"}},
		"names that there are not":   {map[string]string{"dataset": data, "worker": "2", "daemon": "true"}, codes.InvalidArgument, []string{`"daemon" (the driver runs its servers as it sees fit), "worker"`, "there are addressing, anonymous, array, "}},
		"kubelet's own directory":    {map[string]string{"dataset": d.path("kubelet", "pods")}, codes.InvalidArgument, []string{"no pod may read"}},
	} {
		t.Run(name, func(t *testing.T) {
			requireStatus(t, d.publish(pod{name: "p", attributes: c.attributes}), c.code, c.words...)
			d.requireNothingLeft()
		})
	}
}

func TestLinksOutsideAllowedDirectoriesAreRefused(t *testing.T) {
	data, allowed := dataset(t), t.TempDir()
	d := startDriver(t, "--allow-path", allowed)
	require.NoError(t, os.Symlink(data, filepath.Join(allowed, "link")))
	requireStatus(t, d.publish(pod{name: "p", attributes: map[string]string{"dataset": data}}), codes.InvalidArgument, "--allow-path")
	requireStatus(t, d.publish(pod{name: "p", attributes: map[string]string{"dataset": filepath.Join(allowed, "link")}}), codes.InvalidArgument, "leads to another place")
	d.requireNothingLeft()
}

// When a server dies, volumes that are not published again are healed, too.
func TestNextPublishHealsAllVolumesAfterServerDies(t *testing.T) {
	d, data := startDriver(t), dataset(t)
	a, b := pod{name: "a", attributes: map[string]string{"dataset": data}}, pod{name: "b", attributes: map[string]string{"dataset": data}}
	other := pod{name: "other", attributes: map[string]string{"dataset": data, "seed": "5"}}
	for _, p := range []pod{a, b, other} {
		require.NoError(t, d.publish(p))
	}
	open, err := os.Open(filepath.Join(d.target(a), "worker-0.jsonl"))
	require.NoError(t, err)
	defer open.Close()
	var killed int
	for _, pid := range d.servers() {
		args, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		require.NoError(t, err)
		if !containsArg(args, "--seed=5") {
			killed = pid
		}
	}
	require.NoError(t, syscall.Kill(killed, syscall.SIGKILL))
	require.Eventually(t, func() bool { return len(d.servers()) == 1 }, patience, 1e6)
	d.requireDead(b)
	_, err = io.ReadAll(open)
	require.ErrorIs(t, err, syscall.ENOTCONN)
	want := stream(t, data)
	d.requireReads(other, "worker-0.jsonl", stream(t, data, "--seed", "5"))
	require.NoError(t, d.publish(a))
	d.requireReads(a, "worker-0.jsonl", want)
	d.requireReads(b, "worker-0.jsonl", want)
	require.Len(t, d.servers(), 2)
	for _, p := range []pod{a, b, other} {
		d.unpublish(p)
	}
	d.requireNothingLeft()
}

func TestServerIsReplacedAfterManualUnmount(t *testing.T) {
	d, data := startDriver(t), dataset(t)
	a := pod{name: "a", attributes: map[string]string{"dataset": data}}
	require.NoError(t, d.publish(a))
	points, err := filepath.Glob(d.path("state", "servers", "*", "mnt"))
	require.NoError(t, err)
	require.Len(t, points, 1)
	require.NoError(t, syscall.Unmount(points[0], syscall.MNT_DETACH))
	require.NoError(t, d.publish(a))
	d.requireReads(a, "worker-0.jsonl", stream(t, data))
	d.unpublish(a)
	d.requireNothingLeft()
}

// The next call waits for the same server.
func TestExpiredCallReportsServerProgress(t *testing.T) {
	d, data := startDriver(t, "--patience=1ns"), dataset(t)
	a, gone := pod{name: "a", attributes: map[string]string{"dataset": data}}, pod{name: "gone", attributes: map[string]string{"dataset": data, "seed": "9"}}
	requireStatus(t, d.publish(a), codes.DeadlineExceeded, "not ready yet")
	requireStatus(t, d.publish(gone), codes.DeadlineExceeded, "not ready yet")
	d.unpublish(gone)
	d.until(func() bool { return d.publish(a) == nil })
	d.requireReads(a, "worker-0.jsonl", stream(t, data))
	d.unpublish(a)
	d.requireNothingLeft()
}

func TestDriverFindsItsServersAndMountsAfterKill(t *testing.T) {
	d, data := startDriver(t), dataset(t)
	a, b := pod{name: "a", attributes: map[string]string{"dataset": data}}, pod{name: "b", attributes: map[string]string{"dataset": data}}
	require.NoError(t, d.publish(a))
	servers := d.servers()
	d.kill()
	want := stream(t, data)
	d.requireReads(a, "worker-0.jsonl", want)
	d.start()
	require.NoError(t, d.publish(b))
	require.NoError(t, d.publish(a))
	require.Equal(t, servers, d.servers())
	d.requireReads(b, "worker-0.jsonl", want)
	d.unpublish(a)
	d.unpublish(b)
	d.requireNothingLeft()
}

// All its processes have ended with the container, and no call comes.
func TestDriverRestartsItsServersInNextContainer(t *testing.T) {
	d, data := startDriver(t), dataset(t)
	a, gone := pod{name: "a", attributes: map[string]string{"dataset": data}}, pod{name: "gone", attributes: map[string]string{"dataset": data, "seed": "9"}}
	require.NoError(t, d.publish(a))
	require.NoError(t, d.publish(gone))
	d.kill()
	for _, pid := range d.servers() {
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	require.Eventually(t, func() bool { return len(d.servers()) == 0 }, patience, 1e6)
	d.requireDead(a)
	// The pod is removed by force while there is no driver.
	require.NoError(t, syscall.Unmount(d.target(gone), syscall.MNT_DETACH))
	require.NoError(t, os.RemoveAll(filepath.Dir(d.target(gone))))
	d.start()
	d.until(func() bool { _, err := d.read(a, "worker-0.jsonl"); return err == nil })
	d.requireReads(a, "worker-0.jsonl", stream(t, data))
	require.Len(t, d.servers(), 1)
	d.unpublish(a)
	d.requireNothingLeft()
}

func containsArg(cmdline []byte, arg string) bool {
	for len(cmdline) > 0 {
		i := 0
		for i < len(cmdline) && cmdline[i] != 0 {
			i++
		}
		if string(cmdline[:i]) == arg {
			return true
		}
		cmdline = cmdline[min(i+1, len(cmdline)):]
	}
	return false
}

// A pod must not make the driver read what only the node can reach, by any of the ways to name a
// service.
func TestNodeServicesAreRefusedUnlessAllowed(t *testing.T) {
	d := startDriver(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	at := "http://" + l.Addr().String()
	keys := map[string]string{"AWS_ACCESS_KEY_ID": accessKey, "AWS_SECRET_ACCESS_KEY": secretKey, "AWS_REGION": "us-east-1"}
	for name, p := range map[string]pod{
		"a dataset":              {attributes: map[string]string{"dataset": at + "/x.tar"}},
		"a metadata service":     {attributes: map[string]string{"dataset": "http://169.254.169.254/latest/meta-data/x.tar"}},
		"a source of a mixture":  {attributes: map[string]string{"mix": "a=1:" + at + "/x.tar\nb=1:" + at + "/y.tar"}},
		"an endpoint":            {attributes: map[string]string{"dataset": "s3://train/", "endpoint": at}, secrets: keys},
		"an endpoint of secrets": {attributes: map[string]string{"dataset": "s3://train/"}, secrets: with(keys, "AWS_ENDPOINT_URL", at)},
	} {
		t.Run(name, func(t *testing.T) {
			p.name = "p"
			requireStatus(t, d.publish(p), codes.FailedPrecondition, "--allow-url")
			d.requireNothingLeft()
		})
	}
}

func with(m map[string]string, name, value string) map[string]string {
	m = maps.Clone(m)
	m[name] = value
	return m
}

// A link in a writable directory of data must not make the driver read the node's own files.
func TestLinksInADatasetDoNotLeadToTheNodesOwnFiles(t *testing.T) {
	d := startDriver(t)
	require.NoError(t, os.MkdirAll(d.path("kubelet", "pods", "other"), 0o700))
	require.NoError(t, os.WriteFile(d.path("kubelet", "pods", "other", "token.jsonl"), []byte("{\"secret\": 1}\n"), 0o600))
	for name, to := range map[string]string{"a directory": d.path("kubelet", "pods"), "a directory above": d.dir, "a file": d.path("kubelet", "pods", "other", "token.jsonl")} {
		for format, attributes := range map[string]map[string]string{"jsonl": {}, "files": {"format": "files"}, "growing": {"grow": "true"}} {
			t.Run(name+" "+format, func(t *testing.T) {
				data := t.TempDir()
				require.NoError(t, os.Mkdir(filepath.Join(data, "in"), 0o700))
				require.NoError(t, os.WriteFile(filepath.Join(data, "in", "a.jsonl"), []byte("{}\n"), 0o600))
				require.NoError(t, os.Symlink(to, filepath.Join(data, "in", "x.jsonl")))
				err := d.publish(pod{name: "p", attributes: with(attributes, "dataset", data)})
				requireStatus(t, err, codes.FailedPrecondition, filepath.Join(data, "in"), "x.jsonl", "the administrator of this machine")
				d.requireNothingLeft()
			})
		}
	}
}
